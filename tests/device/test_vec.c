/* Loops that promise the same bits in every vector width: each width that this processor has against the generic one. */
#include "support/cmocka_first.h"
#include "device/cpu/loops.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* Longest of the arrays, and most elements by which they begin off a vector's boundary. */
enum { MOST = 200, SHIFTS = 3, WIDTHS = 3 };

typedef struct width {
    ech__isa isa;
    const ech__loops *loops;
} width;

/* The generic one first; returns how many. */
static int widths(width out[WIDTHS])
{
    static const ech__isa levels[WIDTHS] = {ECH__ISA_GENERIC, ECH__ISA_AVX2, ECH__ISA_AVX512};
    int count = 0;
    for (; count < WIDTHS && levels[count] <= ech__isa_of_processor(); count++)
        out[count] = (width){levels[count], ech__loops_for(levels[count])};
    return count;
}

/* Otherwise the tests below compare a width with itself. */
static void widths_are_different_loops(void **state)
{
    (void)state;
    width all[WIDTHS];
    for (int k = widths(all); k-- > 1;) {
        assert_ptr_not_equal(all[k].loops->vec, all[k - 1].loops->vec);
        assert_ptr_not_equal(all[k].loops->image, all[k - 1].loops->image);
        assert_ptr_not_equal(all[k].loops->winograd, all[k - 1].loops->winograd);
        assert_ptr_not_equal(all[k].loops->direct, all[k - 1].loops->direct);
        assert_ptr_not_equal(all[k].loops->panel, all[k - 1].loops->panel);
        assert_ptr_not_equal(all[k].loops->int8, all[k - 1].loops->int8);
        assert_int_equal(all[k].loops->channels, all[k].loops->image->channels);
    }
}

/* Numbers of all sizes and both signs, with zeros, subnormal and infinite ones and NaN among them where odd is set. */
static void fill(float *x, int n, int seed, bool odd)
{
    static const float specials[] = {0.0f,      -0.0f, 1e-42f,  -FLT_MIN, INFINITY,
                                     -INFINITY, NAN,   FLT_MAX, -1e-45f};
    for (int i = 0; i < n; i++) {
        const uint32_t r = (uint32_t)(i + 1) * 2654435761u + (uint32_t)seed * 40503u;
        x[i] = ((float)(r >> 8) * 0x1p-23f - 1) * (float)(1 << (r % 11)) * 0x1p-5f;
        if (odd && r % 7 == 0)
            x[i] = specials[r / 7 % LENGTH(specials)];
    }
}

/* One NaN is as good as another. */
static void assert_same_floats(const char *what, ech__isa isa, const float *a, const float *b,
                               int n)
{
    for (int i = 0; i < n; i++) {
        if (ech__bits_of_float(a[i]) != ech__bits_of_float(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s of %d, %s: element %d is %a, not %a", what, n, ech__isa_name(isa), i,
                     (double)b[i], (double)a[i]);
    }
}

/* ---- arrays ---- */

typedef struct arrays {
    float a[MOST + SHIFTS], b[MOST + SHIFTS], c[MOST + SHIFTS], d[MOST + SHIFTS];
    double sums[4];
} arrays;

typedef void job(const ech__vec *vec, int n, int shift, arrays *x);

static void run_relu(const ech__vec *vec, int n, int shift, arrays *x)
{
    vec->relu(n, x->a + shift, x->b + shift);
    vec->relu_bwd(n, x->c + shift, x->a + shift, x->d + shift);
}

static void run_add(const ech__vec *vec, int n, int shift, arrays *x)
{
    vec->add(n, x->a + shift, x->b + shift, x->c + shift);
    vec->bias_act(n, x->b + shift, true, x->d + shift);
    vec->bias_act(n, NULL, true, x->a + shift);
    vec->bias_act(n, x->c + shift, false, x->b + shift);
}

static void run_losses(const ech__vec *vec, int n, int shift, arrays *x)
{
    x->sums[0] = vec->square_error(n, x->a + shift, x->b + shift);
    vec->scaled_difference(n, 0.37f, x->a + shift, x->b + shift, x->c + shift);
    vec->grad_stats(n, x->d + shift, x->sums + 1);
}

static void run_sgd(const ech__vec *vec, int n, int shift, arrays *x)
{
    ech__sgd_rule rule = {0.7f, 0.013f, 0.9f, 0, false};
    vec->sgd(n, &rule, x->a + shift, x->b + shift);
    rule.weight_decay = 0.011f;
    vec->sgd(n, &rule, x->a + shift, x->b + shift);
    vec->sgd_momentum(n, &rule, x->a + shift, x->b + shift, x->c + shift);
    rule.nesterov = true;
    vec->sgd_momentum(n, &rule, x->a + shift, x->b + shift, x->c + shift);
}

static void run_adam(const ech__vec *vec, int n, int shift, arrays *x)
{
    const ech__adam_rule rule = {.factor = 0.7f,
                                 .step_size = 0.013f,
                                 .root_correction = 0.31f,
                                 .shrink = 0.999f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.999f,
                                 .rest1 = 0.1f,
                                 .rest2 = 0.001f,
                                 .epsilon = 1e-8f,
                                 .weight_decay = 0.01f};
    for (int i = 0; i < MOST; i++)
        x->d[i] = fabsf(x->d[i]); /* squares, under a root */
    vec->adam(n, &rule, x->a + shift, x->b + shift, x->c + shift, x->d + shift);
}

static void run_half(const ech__vec *vec, int n, int shift, arrays *x)
{
    uint16_t half[MOST + SHIFTS];
    vec->narrow(ECH_BF16, n, x->a + shift, half + shift);
    vec->widen(ECH_BF16, n, half + shift, x->b + shift);
    vec->narrow(ECH_F16, n, x->a + shift, half + shift);
    vec->widen(ECH_F16, n, half + shift, x->c + shift);
}

static void compare(const char *what, job *run, int n, int shift, bool odd)
{
    width all[WIDTHS];
    const int count = widths(all);
    static arrays result[WIDTHS];
    for (int k = 0; k < count; k++) {
        arrays *x = &result[k];
        float *const parts[] = {x->a, x->b, x->c, x->d};
        float *const generic[] = {result[0].a, result[0].b, result[0].c, result[0].d};
        for (int p = 0; p < LENGTH(parts); p++)
            fill(parts[p], MOST + SHIFTS, n + p, odd);
        memset(x->sums, 0, sizeof x->sums);
        run(all[k].loops->vec, n, shift, x);
        for (int p = 0; p < LENGTH(parts); p++)
            assert_same_floats(what, all[k].isa, generic[p], parts[p], MOST + SHIFTS);
        for (int s = 0; s < LENGTH(x->sums); s++)
            assert_true(x->sums[s] == result[0].sums[s] || isnan(result[0].sums[s]));
    }
}

/* Every length around the vectors', at every distance from their boundaries: what lies before and behind stays as it is too. */
static void arrays_have_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        job *run;
    } jobs[] = {{"relu", run_relu}, {"add", run_add},   {"losses", run_losses},
                {"sgd", run_sgd},   {"adam", run_adam}, {"half", run_half}};
    for (int j = 0; j < LENGTH(jobs); j++) {
        for (int n = 0; n <= MOST; n += 1 + (n > 70) * 12) {
            for (int shift = 0; shift <= SHIFTS; shift++)
                compare(jobs[j].name, jobs[j].run, n, shift, shift % 2);
        }
    }
}

/* ---- images ---- */

/* 16 channels, which are two blocks of 8 or one of 16; [block][pixel][channel of the block] inside. */
enum { CHANNELS = 16, SIDE = 7, PIXELS = SIDE * SIDE, ALL = CHANNELS * PIXELS };

typedef struct planes {
    _Alignas(64) float in[4][ALL]; /* blocked */
    _Alignas(64) float out[6][ALL];
    _Alignas(64) uint8_t place[ALL];
    _Alignas(64) double sums[4][CHANNELS];
} planes;

static int place_of(int B, int channel, int pixel)
{
    return channel / B * PIXELS * B + pixel * B + channel % B;
}

static void run_images(const ech__image_loops *loops, const float canonical[4][ALL], planes *p)
{
    const int B = loops->channels;
    const ech__runs runs = {.count = 1, .pixels = PIXELS, .step = (int64_t)PIXELS * B};
    const ech__windows windows[] = {{3, 2, 1, SIDE, SIDE, 4, 4}, {2, 2, 0, 6, 6, 3, 3}};
    memset(p, 0, sizeof *p);
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < ALL; i++)
            p->in[k][place_of(B, i / PIXELS, i % PIXELS)] = canonical[k][i];
    }
    _Alignas(64) float vectors[4 * CHANNELS];
    _Alignas(64) double sums[2 * CHANNELS];
    for (int block = 0; block < CHANNELS / B; block++) {
        const int at = block * PIXELS * B;
        for (int c = 0; c < 4 * B; c++)
            vectors[c] = canonical[c / B][block * B + c % B] * 0.25f + 1;
        loops->normalise(PIXELS, vectors, p->in[0] + at, p->in[1] + at, true, p->out[0] + at);
        loops->normalise_bwd(PIXELS, vectors, p->in[0] + at, p->in[2] + at, p->out[0] + at,
                             p->out[1] + at);
        loops->moments(&runs, p->in[0] + at, sums);
        memcpy(&p->sums[0][block * B], sums, (size_t)B * sizeof *sums);
        memcpy(&p->sums[1][block * B], sums + B, (size_t)B * sizeof *sums);
        loops->products(&runs, p->in[0] + at, p->in[2] + at, p->out[0] + at, vectors, sums);
        memcpy(&p->sums[2][block * B], sums, (size_t)B * sizeof *sums);
        memcpy(&p->sums[3][block * B], sums + B, (size_t)B * sizeof *sums);
        for (int w = 0; w < LENGTH(windows); w++) {
            loops->maxpool(&windows[w], B, p->in[3] + at, p->out[2] + at, p->place + at);
            loops->maxpool_bwd(&windows[w], p->out[2] + at, p->place + at, p->out[3 + w] + at);
        }
        loops->avgpool(&windows[0], p->in[3] + at, p->out[5] + at);
        loops->avgpool_bwd(&windows[0], p->out[5] + at, p->out[3] + at);
    }
}

static void images_have_the_same_bits(void **state)
{
    (void)state;
    width all[WIDTHS];
    const int count = widths(all);
    static float canonical[4][ALL], first[ALL], other[ALL];
    static planes result[WIDTHS];
    for (int k = 0; k < 4; k++)
        fill(canonical[k], ALL, 31 * k, false);
    for (int w = 0; w < count; w++) {
        run_images(all[w].loops->image, (const float(*)[ALL])canonical, &result[w]);
        for (int k = 0; k < 6; k++) {
            for (int i = 0; i < ALL; i++) {
                const int c = i / PIXELS, pixel = i % PIXELS;
                first[i] = result[0].out[k][place_of(all[0].loops->image->channels, c, pixel)];
                other[i] = result[w].out[k][place_of(all[w].loops->image->channels, c, pixel)];
            }
            assert_same_floats("an image", all[w].isa, first, other, ALL);
        }
        assert_memory_equal(result[0].sums, result[w].sums, sizeof result[0].sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_are_different_loops),
        cmocka_unit_test(arrays_have_the_same_bits),
        cmocka_unit_test(images_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
