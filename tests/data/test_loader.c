/* Batches are a function of the options, the epoch and the step, and of nothing else. */
#include "base/system/clock.h"
#include "base/rng.h"
#include "data/loader.h"

#include "support/cmocka_first.h"
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { C = 3, H = 32, W = 32, IMAGE = C * H * W, MAX_COUNT = 512, PAD = 4 };

/* ---- a set of our own, whose pixels tell which sample they are of ---- */

typedef struct own_set {
    ech__images images;
    uint8_t labels[MAX_COUNT];
    int64_t fails_at; /* sample that cannot be read; -1: none */
    bool jitters;     /* takes its time now and then */
    double sleeps_s;
    atomic_int reads;
} own_set;

static uint8_t pixel_of(int64_t sample, int at)
{
    return (uint8_t)((uint64_t)(sample * 131 + at * 7 + at / 256 * 13 + 5) * 2654435761u >> 9);
}

static ech_status own_read(ech_ctx *ctx, const ech__images *images, int64_t stored,
                           uint8_t *scratch, const uint8_t **pixels)
{
    own_set *set = images->state;
    if (stored == set->fails_at)
        return ech__fail(ctx, ECH_E_IO, "sample %lld cannot be read", (long long)stored);
    const int reads = atomic_fetch_add(&set->reads, 1);
    if (set->jitters && reads % 7 == 3)
        usleep((useconds_t)(reads * 37 % 300));
    else if (set->jitters)
        sched_yield();
    if (set->sleeps_s > 0)
        ech__clock_sleep(set->sleeps_s);
    for (int i = 0; i < IMAGE; i++)
        scratch[i] = pixel_of(stored, i);
    *pixels = scratch;
    return ECH_OK;
}

static const ech__image_source own_source = {.read = own_read};

static ech_ctx *ctx;

static own_set *make_set(int64_t count)
{
    own_set *set = calloc(1, sizeof *set);
    assert_true(count <= MAX_COUNT);
    set->fails_at = -1;
    for (int64_t i = 0; i < count; i++)
        set->labels[i] = (uint8_t)(i * 3 % 10);
    set->images = (ech__images){.ctx = ctx,
                                .name = "own",
                                .count = count,
                                .channels = C,
                                .height = H,
                                .width = W,
                                .classes = 10,
                                .labels = set->labels,
                                .source = &own_source,
                                .state = set};
    return set;
}

static ech__loader *start(const own_set *set, const ech__loader_options *o)
{
    ech__loader *loader;
    const ech_status status = ech__loader_create(ctx, &set->images, o, &loader);
    if (status < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return loader;
}

static const ech__batch *next(ech__loader *loader)
{
    const ech__batch *batch;
    double waited = -1;
    assert_int_equal(ech__loader_next(loader, &batch, &waited), ECH_OK);
    assert_true(waited >= 0);
    return batch;
}

/* ---- what a sample must come out as, the slow way ---- */

static float normalise(ech__norm norm, int channel, uint8_t pixel)
{
    static const float means[2][3] = {{.4914f, .4822f, .4465f}, {.5f, .5f, .5f}};
    static const float stds[2][3] = {{.2470f, .2435f, .2616f}, {.5f, .5f, .5f}};
    return ((float)pixel / 255.0f - means[norm][channel]) / stds[norm][channel];
}

/* Pads with black, cuts out, flips, normalises: each over the whole image. */
static void reference(int64_t sample, ech__norm norm, ech__augment a, float *out)
{
    enum { PH = H + 2 * PAD, PW = W + 2 * PAD };
    static uint8_t padded[C][PH][PW], cut[C][H][W], flipped[C][H][W];
    memset(padded, 0, sizeof padded);
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                padded[c][y + PAD][x + PAD] = pixel_of(sample, (c * H + y) * W + x);
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                cut[c][y][x] = padded[c][y + a.down][x + a.right];
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                flipped[c][y][x] = cut[c][y][a.flip ? W - 1 - x : x];
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                out[(c * H + y) * W + x] = normalise(norm, c, flipped[c][y][x]);
}

static void assert_batch_is(const own_set *set, const ech__loader_options *o, const ech__batch *b)
{
    int32_t order[MAX_COUNT];
    static float want[IMAGE];
    const int64_t count = set->images.count;
    for (int64_t i = 0; i < count; i++)
        order[i] = (int32_t)i;
    if (o->shuffle)
        ech__loader_order(o->seed, b->epoch, count, order);
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t position = b->first + i;
        const ech__augment a = o->augment ? ech__loader_augment(o->seed, b->epoch, position)
                                          : (ech__augment){PAD, PAD, false};
        reference(order[position], o->norm, a, want);
        assert_memory_equal(b->x + i * IMAGE, want, sizeof want);
        assert_int_equal(b->y[i], set->labels[order[position]]);
    }
}

/* ---- values ---- */

/* From PyTorch 1.13: (torch.tensor(p) / 255 - mean) / std, in f32. */
static void normalises_as_pytorch_does(void **state)
{
    (void)state;
    static const uint8_t pixels[5] = {0, 1, 128, 254, 255};
    static const float want[3][5] = {
        {-0x1.fd4e26p+0f, -0x1.f93da6p+0f, 0x1.5e428p-5f, 0x1.0588a4p+1f, 0x1.0790e6p+1f},
        {-0x1.faf42p+0f, -0x1.f6d4aap+0f, 0x1.4c675cp-4f, 0x1.0e211p+1f, 0x1.1030c8p+1f},
        {-0x1.b4f122p+0f, -0x1.b11ab4p+0f, 0x1.b2304ap-3f, 0x1.0ce82ap+1f, 0x1.0ed362p+1f},
    };
    static const float half[5] = {-1, -0x1.fbfbfcp-1f, 0x1.0102p-8f, 0x1.fbfbfcp-1f, 1};
    own_set *set = make_set(8);
    int met = 0;
    for (int norm = 0; norm < 2; norm++) {
        ech__loader_options o = ech__loader_defaults();
        o.batch = 8;
        o.shuffle = false;
        o.norm = (ech__norm)norm;
        ech__loader *loader = start(set, &o);
        const ech__batch *b = next(loader);
        for (int64_t i = 0; i < 8 * IMAGE; i++)
            for (int p = 0; p < 5; p++)
                if (pixel_of(i / IMAGE, (int)(i % IMAGE)) == pixels[p]) {
                    const int64_t channel = i % IMAGE / (H * W);
                    assert_true(b->x[i] == (norm == ECH__NORM_HALF ? half[p] : want[channel][p]));
                    met |= 1 << (norm * 15 + channel * 5 + p);
                }
        ech__loader_destroy(loader);
    }
    assert_int_equal(met, (1 << 30) - 1);
    free(set);
}

static void matches_the_slow_reference(void **state)
{
    (void)state;
    own_set *set = make_set(97);
    for (int kind = 0; kind < 8; kind++) {
        ech__loader_options o = ech__loader_defaults();
        o.batch = 10;
        o.seed = 1000 + (uint64_t)kind;
        o.shuffle = kind & 1;
        o.augment = kind & 2;
        o.norm = kind & 4 ? ECH__NORM_HALF : ECH__NORM_CIFAR10;
        o.drop_last = false;
        o.epochs = 2;
        ech__loader *loader = start(set, &o);
        assert_int_equal(ech__loader_steps(loader), 10);
        for (int64_t k = 0; k < 20; k++) {
            const ech__batch *b = next(loader);
            assert_non_null(b);
            assert_int_equal(b->epoch, k / 10);
            assert_int_equal(b->step, k % 10);
            assert_int_equal(b->count, k % 10 == 9 ? 7 : 10);
            assert_int_equal(b->global_count, b->count);
            assert_int_equal(b->first, k % 10 * 10);
            assert_batch_is(set, &o, b);
        }
        assert_null(next(loader));
        assert_null(next(loader));
        ech__loader_destroy(loader);
    }
    free(set);
}

static void augments_every_way(void **state)
{
    (void)state;
    int shifts[9][9] = {{0}}, flips = 0, changes = 0;
    enum { DRAWS = 20000 };
    for (int64_t i = 0; i < DRAWS; i++) {
        const ech__augment a = ech__loader_augment(3, 5, i), later = ech__loader_augment(3, 6, i);
        assert_in_range(a.down, 0, 8);
        assert_in_range(a.right, 0, 8);
        shifts[a.down][a.right]++;
        flips += a.flip;
        changes += a.down != later.down || a.right != later.right || a.flip != later.flip;
    }
    for (int y = 0; y < 9; y++)
        for (int x = 0; x < 9; x++)
            assert_in_range(shifts[y][x], DRAWS / 81 / 2, DRAWS / 81 * 2);
    assert_in_range(flips, DRAWS * 48 / 100, DRAWS * 52 / 100);
    assert_in_range(changes, DRAWS * 98 / 100, DRAWS);
}

static void orders_are_permutations_of_their_own(void **state)
{
    (void)state;
    int32_t order[100], other[100];
    for (int64_t epoch = 0; epoch < 50; epoch++) {
        bool seen[100] = {false};
        ech__loader_order(9, epoch, 100, order);
        for (int i = 0; i < 100; i++) {
            assert_in_range(order[i], 0, 99);
            assert_false(seen[order[i]]);
            seen[order[i]] = true;
        }
        ech__loader_order(9, epoch, 100, other);
        assert_memory_equal(order, other, sizeof order);
        ech__loader_order(9, epoch + 1, 100, other);
        assert_memory_not_equal(order, other, sizeof order);
        ech__loader_order(10, epoch, 100, other);
        assert_memory_not_equal(order, other, sizeof order);
    }
    ech__loader_order(9, 0, 1, order);
    assert_int_equal(order[0], 0);
}

/* Each of 6 orders of 3 comes about equally often. */
static void orders_are_uniform(void **state)
{
    (void)state;
    int times[27] = {0};
    enum { DRAWS = 12000 };
    for (int64_t epoch = 0; epoch < DRAWS; epoch++) {
        int32_t o[3];
        ech__loader_order(1, epoch, 3, o);
        times[o[0] * 9 + o[1] * 3 + o[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 27; i++)
        if (times[i]) {
            orders++;
            assert_in_range(times[i], DRAWS / 6 * 9 / 10, DRAWS / 6 * 11 / 10);
        }
    assert_int_equal(orders, 6);
}

/* ---- timing and threads ---- */

typedef struct digest {
    uint64_t hash;
    int64_t batches;
} digest;

static digest run_all(const own_set *set, const ech__loader_options *o, bool slow_reader)
{
    digest d = {.hash = 14695981039346656037u};
    ech__loader *loader = start(set, o);
    for (const ech__batch *b; (b = next(loader)); d.batches++) {
        if (slow_reader && d.batches % 5 == 2)
            usleep(300);
        const int64_t head[5] = {b->count, b->global_count, b->first, b->epoch, b->step};
        const void *parts[3] = {head, b->x, b->y};
        const size_t sizes[3] = {sizeof head, (size_t)b->count * IMAGE * sizeof(float),
                                 (size_t)b->count * sizeof(int32_t)};
        for (int p = 0; p < 3; p++)
            for (size_t i = 0; i < sizes[p]; i++)
                d.hash = (d.hash ^ ((const uint8_t *)parts[p])[i]) * 1099511628211u;
    }
    ech__loader_destroy(loader);
    return d;
}

static void timing_changes_nothing(void **state)
{
    (void)state;
    own_set *set = make_set(61);
    ech__loader_options o = ech__loader_defaults();
    o.batch = 4;
    o.augment = true;
    o.drop_last = false;
    o.epochs = 3;
    const digest want = run_all(set, &o, false);
    assert_int_equal(want.batches, 48);
    for (int round = 0; round < 6; round++) {
        static const int buffers[6] = {0, 2, 3, 5, 16, 64};
        o.buffers = buffers[round];
        set->jitters = round % 2;
        const digest got = run_all(set, &o, round % 3 == 0);
        assert_int_equal(got.batches, want.batches);
        assert_true(got.hash == want.hash);
    }
    o.seed++;
    assert_true(run_all(set, &o, false).hash != want.hash);
    free(set);
}

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* A joined thread may linger in the list for a moment. */
static void assert_threads(int want)
{
    for (int i = 0; i < 1000 && count_threads() != want; i++)
        usleep(1000);
    assert_int_equal(count_threads(), want);
}

static void stops_at_any_time(void **state)
{
    (void)state;
    own_set *set = make_set(40);
    ech__loader_options o = ech__loader_defaults();
    const int before = count_threads();
    for (int taken = 0; taken < 12; taken++)
        for (int buffers = 2; buffers < 6; buffers++)
            for (int pause = 0; pause < 2; pause++) {
                o.batch = 4;
                o.buffers = buffers;
                o.epochs = taken % 2;
                set->jitters = taken % 3 == 0;
                ech__loader *loader = start(set, &o);
                for (int i = 0; i < taken; i++)
                    (void)next(loader);
                if (pause)
                    usleep(500);
                ech__loader_destroy(loader);
            }
    assert_threads(before);
    ech__loader_destroy(NULL);
    free(set);
}

static void waits_only_where_loading_is_slower(void **state)
{
    (void)state;
    own_set *set = make_set(32);
    ech__loader_options o = ech__loader_defaults();
    const ech__batch *b;
    double waited;
    o.batch = 4;
    o.buffers = 3;
    set->sleeps_s = 5e-3;
    ech__loader *loader = start(set, &o);
    assert_int_equal(ech__loader_next(loader, &b, &waited), ECH_OK);
    assert_true(waited > 5e-3);
    for (int i = 0; i < 5000 && atomic_load(&set->reads) < 12; i++) /* two more batches */
        usleep(1000);
    ech__clock_sleep(0.2); /* the last image is being read */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ech__loader_next(loader, &b, &waited), ECH_OK);
        assert_true(waited == 0);
    }
    assert_int_equal(ech__loader_next(loader, &b, NULL), ECH_OK);
    ech__loader_destroy(loader);
    free(set);
}

/* A batch stays as it was handed out until the next call, however far the thread gets. */
static void leaves_a_batch_alone_until_the_next(void **state)
{
    (void)state;
    own_set *set = make_set(64);
    for (int buffers = 2; buffers < 5; buffers++) {
        ech__loader_options o = ech__loader_defaults();
        o.batch = 4;
        o.buffers = buffers;
        ech__loader *loader = start(set, &o);
        for (int i = 0; i < 20; i++) {
            const ech__batch *b = next(loader);
            usleep(1500);
            assert_batch_is(set, &o, b);
        }
        ech__loader_destroy(loader);
    }
    free(set);
}

/* ---- ranks ---- */

/* Every rank takes the same steps; together they see each sample once, in the order of one rank. */
static void check_ranks(int64_t count, int64_t batch, int world, bool drop_last)
{
    own_set *set = make_set(count);
    ech__loader_options o = ech__loader_defaults();
    ech__loader *ranks[4];
    const int64_t global = batch * world;
    const int64_t steps = drop_last ? count / global : (count + global - 1) / global;
    o.augment = true;
    o.drop_last = drop_last;
    o.seed = 77;
    o.batch = batch;
    o.world = world;
    for (o.rank = 0; o.rank < world; o.rank++) {
        ranks[o.rank] = start(set, &o);
        assert_int_equal(ech__loader_steps(ranks[o.rank]), steps);
    }
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int64_t position = 0; /* every rank goes on where the one before stopped */
        for (int64_t step = 0; step < steps; step++) {
            int64_t sum = 0, fewest = batch, most = 0, told = 0;
            for (int r = 0; r < world; r++) {
                const ech__batch *b = next(ranks[r]);
                assert_int_equal(b->epoch, epoch);
                assert_int_equal(b->step, step);
                assert_true(b->count == 0 || b->first == position);
                assert_batch_is(set, &o, b);
                position += b->count;
                sum += b->count;
                fewest = b->count < fewest ? b->count : fewest;
                most = b->count > most ? b->count : most;
                told = b->global_count;
            }
            assert_int_equal(told, sum);
            assert_true(most - fewest <= 1);
            assert_true(most <= batch && (step + 1 == steps || fewest == batch));
        }
        assert_int_equal(position, drop_last ? steps * global : count);
    }
    for (int r = 0; r < world; r++)
        ech__loader_destroy(ranks[r]);
    free(set);
}

static void ranks_share_each_sample_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 3, 24, 25, 47, 100};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int world = 1; world <= 4; world++)
            for (int64_t batch = 1; batch <= 8; batch += 7) {
                check_ranks(counts[c], batch, world, false);
                if (counts[c] >= batch * world)
                    check_ranks(counts[c], batch, world, true);
            }
}

/* Four ranks of 3 see what one rank of 12 sees, bit for bit. */
static void ranks_together_see_one_large_batch(void **state)
{
    (void)state;
    own_set *set = make_set(60);
    ech__loader_options o = ech__loader_defaults();
    o.augment = true;
    o.batch = 12;
    ech__loader *one = start(set, &o), *four[4];
    o.batch = 3;
    o.world = 4;
    for (o.rank = 0; o.rank < 4; o.rank++)
        four[o.rank] = start(set, &o);
    for (int k = 0; k < 10; k++) {
        const ech__batch *whole = next(one);
        for (int r = 0; r < 4; r++) {
            const ech__batch *part = next(four[r]);
            assert_memory_equal(part->x, whole->x + (int64_t)r * 3 * IMAGE,
                                3 * IMAGE * sizeof(float));
            assert_memory_equal(part->y, whole->y + (int64_t)r * 3, 3 * sizeof(int32_t));
        }
    }
    ech__loader_destroy(one);
    for (int r = 0; r < 4; r++)
        ech__loader_destroy(four[r]);
    free(set);
}

/* ---- start in the middle ---- */

static void goes_on_where_it_is_told(void **state)
{
    (void)state;
    own_set *set = make_set(50);
    for (int64_t at = 0; at <= 14; at++) {
        ech__loader_options o = ech__loader_defaults();
        o.batch = 8;
        o.drop_last = false;
        o.augment = true;
        o.epochs = 3;
        ech__loader *all = start(set, &o);
        const int64_t steps = ech__loader_steps(all); /* 7 */
        for (int64_t k = 0; k < at; k++)
            assert_non_null(next(all));
        /* The end of an epoch is the start of the next one. */
        o.epoch = at == 14 ? 1 : at / steps;
        o.step = at == 14 ? steps : at % steps;
        ech__loader *rest = start(set, &o);
        for (int64_t k = at; k < 3 * steps; k++) {
            const ech__batch *a = next(all), *b = next(rest);
            assert_int_equal(a->epoch, b->epoch);
            assert_int_equal(a->step, b->step);
            assert_int_equal(a->first, b->first);
            assert_int_equal(a->count, b->count);
            assert_memory_equal(a->x, b->x, (size_t)a->count * IMAGE * sizeof(float));
            assert_memory_equal(a->y, b->y, (size_t)a->count * sizeof(int32_t));
        }
        assert_null(next(all));
        assert_null(next(rest));
        ech__loader_destroy(all);
        ech__loader_destroy(rest);
    }
    free(set);
}

/* ---- failures ---- */

static void reports_what_stopped_the_thread(void **state)
{
    (void)state;
    own_set *set = make_set(40);
    ech__loader_options o = ech__loader_defaults();
    const ech__batch *b;
    o.batch = 4;
    o.shuffle = false;
    set->fails_at = 22; /* of batch 5 */
    ech__loader *loader = start(set, &o);
    for (int k = 0; k < 5; k++)
        assert_non_null(next(loader));
    for (int again = 0; again < 3; again++) {
        assert_int_equal(ech__loader_next(loader, &b, NULL), ECH_E_IO);
        assert_null(b);
        assert_string_equal(ech_ctx_error(ctx), "sample 22 cannot be read");
    }
    ech__loader_destroy(loader);
    free(set);
}

static void assert_refused(const own_set *set, const ech__loader_options *o, const char *sentence)
{
    ech__loader *loader;
    assert_int_equal(ech__loader_create(ctx, &set->images, o, &loader), ECH_E_INVALID);
    assert_null(loader);
    assert_string_equal(ech_ctx_error(ctx), sentence);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    own_set *set = make_set(20);
    const int before = count_threads();
    ech__loader_options o = ech__loader_defaults();
    o.batch = 0;
    assert_refused(set, &o, "a batch of 0 images: it must have at least 1");
    o.batch = 11;
    o.world = 2;
    assert_refused(set, &o, "a batch of 11 on 2 devices is more than the 20 images of the set");
    o.batch = INT64_MAX / 2 + 2;
    o.drop_last = false;
    assert_refused(set, &o,
                   "a batch of 4611686018427387905 on 2 devices is more than the 20 images "
                   "of the set");
    o.batch = 4;
    o.world = 1;
    o.step = 6;
    assert_refused(set, &o, "cannot start at step 6 of an epoch of 5");
    set->images.count = 0;
    o.step = 0;
    assert_refused(set, &o, "the set has no images");
    assert_threads(before);
    free(set);
}

/* A batch far over the set takes memory for the set only. */
static void a_huge_batch_is_the_whole_set(void **state)
{
    (void)state;
    own_set *set = make_set(20);
    ech__loader_options o = ech__loader_defaults();
    o.batch = INT64_MAX;
    o.drop_last = false;
    o.epochs = 1;
    ech__loader *loader = start(set, &o);
    assert_int_equal(ech__loader_steps(loader), 1);
    assert_int_equal(next(loader)->count, 20);
    assert_null(next(loader));
    ech__loader_destroy(loader);
    free(set);
}

static int make_ctx(void **state)
{
    (void)state;
    return ech_ctx_create(NULL, &ctx);
}

static int end_ctx(void **state)
{
    (void)state;
    ech_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises_as_pytorch_does),
        cmocka_unit_test(matches_the_slow_reference),
        cmocka_unit_test(augments_every_way),
        cmocka_unit_test(orders_are_permutations_of_their_own),
        cmocka_unit_test(orders_are_uniform),
        cmocka_unit_test(timing_changes_nothing),
        cmocka_unit_test(stops_at_any_time),
        cmocka_unit_test(waits_only_where_loading_is_slower),
        cmocka_unit_test(leaves_a_batch_alone_until_the_next),
        cmocka_unit_test(ranks_share_each_sample_once),
        cmocka_unit_test(ranks_together_see_one_large_batch),
        cmocka_unit_test(goes_on_where_it_is_told),
        cmocka_unit_test(reports_what_stopped_the_thread),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(a_huge_batch_is_the_whole_set),
    };
    return cmocka_run_group_tests(tests, make_ctx, end_ctx);
}
