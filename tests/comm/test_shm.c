/* The shared-memory transport, with ranks as threads and as processes. Data are exactly
 * representable, so every result is known to the bit; where the order of a sum is tested, the data
 * make it matter. */
#include "support/ranks.h"

#include "base/system/clock.h"
#include "comm/shm/shm.h"
#include "price/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16, ECH_S32};
static const int64_t counts[] = {0, 1, 3, 17, 1000, 4097, 20011};
enum { NCOUNTS = sizeof counts / sizeof *counts, NDTYPES = sizeof dtypes / sizeof *dtypes };

/* ---- numbers: small integers, which every type holds and adds exactly ---- */

static int value(int rank, int64_t i)
{
    return (int)((rank * 7 + i * 3) % 8) - 3;
}

/* Small integers have few bits: 16-bit floats are cut from f32, or have their exponent moved. */
static void put(void *data, ech_dtype dtype, int64_t i, double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == ECH_F64)
        ((double *)data)[i] = x;
    else if (dtype == ECH_S32)
        ((int32_t *)data)[i] = (int32_t)x;
    else if (dtype == ECH_F32)
        ((float *)data)[i] = f;
    else if (dtype == ECH_BF16)
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    else
        ((uint16_t *)data)[i] =
            (uint16_t)((bits >> 16 & 0x8000) |
                       ((bits & 0x7fffffff) ? ((bits & 0x7fffffff) - (112u << 23)) >> 13 : 0));
}

static bool same(const void *data, ech_dtype dtype, int64_t i, double x)
{
    char expected[8] = {0};
    const int64_t each = ech__dtype_bytes(dtype);
    put(expected, dtype, 0, x);
    return memcmp(expected, (const char *)data + i * each, (size_t)each) == 0;
}

/* What a reduction over all ranks gives; values repeat after 8. */
typedef struct results {
    double at[8];
} results;

static results reduced(int world, ech__reduction reduction)
{
    results out;
    for (int i = 0; i < 8; i++) {
        double sum = 0, most = -100;
        for (int r = 0; r < world; r++) {
            sum += value(r, i);
            most = value(r, i) > most ? value(r, i) : most;
        }
        out.at[i] = reduction == ECH__REDUCTION_MAX    ? most
                    : reduction == ECH__REDUCTION_MEAN ? sum / world
                                                       : sum;
    }
    return out;
}

/* Means are exact where the world is a power of two. */
static bool exact(int world, ech__reduction reduction, ech_dtype dtype)
{
    return reduction != ECH__REDUCTION_MEAN || (dtype != ECH_S32 && (world & (world - 1)) == 0);
}

static void *room(int64_t bytes)
{
    void *memory = malloc((size_t)bytes + 64);
    assert_non_null(memory);
    memset(memory, 0xa5, (size_t)bytes + 64);
    return memory;
}

/* ---- reductions ---- */

static void check_allreduce(ech__comm *comm, ech__coll c, bool in_place)
{
    const int64_t each = ech__dtype_bytes(c.dtype);
    char *src = room(c.count * each), *dst = in_place ? src : room(c.count * each);
    for (int64_t i = 0; i < c.count; i++)
        put(src, c.dtype, i, value(comm->rank, i));
    c.op = ECH__COLL_ALLREDUCE;
    c.src = src;
    c.dst = dst;
    RANK_OK(ech__comm_run(comm, &c));
    const results want = reduced(comm->world, c.reduction);
    for (int64_t i = 0; i < c.count; i++) {
        RANK_CHECK(same(dst, c.dtype, i, want.at[i % 8]));
        RANK_CHECK(in_place || same(src, c.dtype, i, value(comm->rank, i)));
    }
    RANK_CHECK((unsigned char)dst[c.count * each] == 0xa5);
    free(src);
    if (!in_place)
        free(dst);
}

static void check_reduce_scatter(ech__comm *comm, ech__coll c)
{
    const int64_t each = ech__dtype_bytes(c.dtype), all = c.count * comm->world;
    char *src = room(all * each), *dst = room(c.count * each);
    for (int64_t i = 0; i < all; i++)
        put(src, c.dtype, i, value(comm->rank, i));
    c.op = ECH__COLL_REDUCE_SCATTER;
    c.src = src;
    c.dst = dst;
    RANK_OK(ech__comm_run(comm, &c));
    const results want = reduced(comm->world, c.reduction);
    for (int64_t i = 0; i < c.count; i++)
        RANK_CHECK(same(dst, c.dtype, i, want.at[(comm->rank * c.count + i) % 8]));
    RANK_CHECK((unsigned char)dst[c.count * each] == 0xa5);
    free(src);
    free(dst);
}

static void reduce_all(ech__comm *comm, void *user)
{
    (void)user;
    for (int d = 0; d < NDTYPES; d++)
        for (int op = 0; op < ECH__REDUCTION_COUNT; op++)
            for (int n = 0; n < NCOUNTS; n++) {
                ech__coll c = {
                    .reduction = (ech__reduction)op, .dtype = dtypes[d], .count = counts[n]};
                if (!exact(comm->world, c.reduction, c.dtype))
                    continue;
                check_allreduce(comm, c, n % 2);
                check_reduce_scatter(comm, c);
            }
}

/* ---- moving data ---- */

static void check_allgather(ech__comm *comm, int64_t count)
{
    int32_t *src = room(count * 4), *dst = room(count * 4 * comm->world);
    for (int64_t i = 0; i < count; i++)
        src[i] = (int32_t)(comm->rank * 1000003 + i);
    ech__coll c = {
        .op = ECH__COLL_ALLGATHER, .dtype = ECH_S32, .count = count, .src = src, .dst = dst};
    RANK_OK(ech__comm_run(comm, &c));
    for (int r = 0; r < comm->world; r++)
        for (int64_t i = 0; i < count; i++)
            RANK_CHECK(dst[r * count + i] == (int32_t)(r * 1000003 + i));
    free(src);
    free(dst);
}

static void check_broadcast(ech__comm *comm, int64_t count, int root)
{
    int32_t *data = room(count * 4);
    for (int64_t i = 0; i < count; i++)
        data[i] = (int32_t)(comm->rank * 1000003 + i);
    ech__coll c = {
        .op = ECH__COLL_BROADCAST, .dtype = ECH_S32, .count = count, .dst = data, .peer = root};
    RANK_OK(ech__comm_run(comm, &c));
    for (int64_t i = 0; i < count; i++)
        RANK_CHECK(data[i] == (int32_t)(root * 1000003 + i));
    free(data);
}

/* Around the ring: everybody sends before receiving as long as it fits, otherwise even ranks send
 * first. */
static void check_pairs(ech__comm *comm, int64_t count)
{
    const int next = (comm->rank + 1) % comm->world;
    const int before = (comm->rank + comm->world - 1) % comm->world;
    int32_t *out = room(count * 4), *in = room(count * 4);
    for (int64_t i = 0; i < count; i++)
        out[i] = (int32_t)(comm->rank * 1000003 + i);
    ech__coll send = {
        .op = ECH__COLL_SEND, .dtype = ECH_S32, .count = count, .src = out, .peer = next};
    ech__coll recv = {
        .op = ECH__COLL_RECV, .dtype = ECH_S32, .count = count, .dst = in, .peer = before};
    const bool first = count * 4 < 32768 || comm->rank % 2 == 0;
    RANK_OK(ech__comm_run(comm, first ? &send : &recv));
    RANK_OK(ech__comm_run(comm, first ? &recv : &send));
    for (int64_t i = 0; i < count; i++)
        RANK_CHECK(in[i] == (int32_t)(before * 1000003 + i));
    free(out);
    free(in);
}

static void move_all(ech__comm *comm, void *user)
{
    (void)user;
    for (int n = 0; n < NCOUNTS; n++) {
        check_allgather(comm, counts[n]);
        for (int root = 0; root < comm->world; root++)
            check_broadcast(comm, counts[n], root);
        RANK_OK(ech__comm_barrier(comm));
        check_pairs(comm, counts[n]);
    }
    check_pairs(comm, 300000);
}

/* ---- the order of sums ---- */

static float tree_sum(const float *terms, int n)
{
    if (n == 1)
        return terms[0];
    const int half = ech__tree_split(n);
    const float left = tree_sum(terms, half), right = tree_sum(terms + half, n - half);
    return left + right;
}

/* Terms of very different sizes, so that another order gives other bits. */
static float rough(int rank, int64_t i)
{
    const uint32_t x = (uint32_t)(rank * 2654435761u + (uint32_t)i * 40503u) * 2246822519u;
    const float scale[] = {1e-4f, 1, 3e3f, 7e6f};
    return ((float)(x >> 8) / 16777216.0f - 0.5f) * scale[x & 3];
}

static void sum_in_order(ech__comm *comm, void *user)
{
    (void)user;
    const int64_t sizes[] = {5, 1000, 30001};
    float *shared, *own;
    RANK_OK(ech__comm_alloc(comm, 30001 * 4, (void **)&shared));
    own = room(30001 * 4);
    for (int k = 0; k < 6; k++) {
        const int64_t n = sizes[k % 3];
        float *data = k < 3 ? own : shared;
        for (int64_t i = 0; i < n; i++)
            data[i] = rough(comm->rank, i);
        ech__coll c = {
            .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = n, .src = data, .dst = data};
        RANK_OK(ech__comm_run(comm, &c));
        int differs = 0;
        for (int64_t i = 0; i < n; i++) {
            float terms[8], plain = 0;
            for (int r = 0; r < comm->world; r++) {
                terms[r] = rough(r, i);
                plain += terms[r];
            }
            RANK_CHECK(data[i] == tree_sum(terms, comm->world));
            differs += data[i] != plain;
        }
        RANK_CHECK(comm->world < 4 || n < 100 || differs > 0);
    }
    free(own);
    ech__comm_free(comm, shared);
}

/* ---- all-reduces that are started ---- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Buckets of all sizes one behind the other, started with delays that differ between ranks, while
 * blocking collectives go on. */
static void start_buckets(ech__comm *comm, void *user)
{
    (void)user;
    enum { BUCKETS = 40 };
    uint64_t tickets[BUCKETS];
    int64_t first[BUCKETS], size[BUCKETS], total = 0;
    uint32_t shape = 1, mine = (uint32_t)comm->rank + 77;
    for (int b = 0; b < BUCKETS; b++) {
        first[b] = total;
        size[b] = b % 5 == 0 ? b / 5 : (int64_t)(next_random(&shape) % 5000);
        total += size[b];
    }
    const results want = reduced(comm->world, ECH__REDUCTION_SUM);
    float *data;
    RANK_OK(ech__comm_alloc(comm, total * 4, (void **)&data));
    for (int64_t i = 0; i < total; i++)
        RANK_CHECK(data[i] == 0);
    for (int round = 0; round < 5; round++) {
        for (int64_t i = 0; i < total; i++)
            data[i] = (float)value(comm->rank, i + round);
        for (int b = 0; b < BUCKETS; b++) {
            if (next_random(&mine) % 8 == 0)
                ech__clock_sleep((next_random(&mine) % 300) * 1e-6);
            ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                           .dtype = ECH_F32,
                           .count = size[b],
                           .src = data + first[b],
                           .dst = data + first[b]};
            RANK_OK(ech__comm_start(comm, &c, &tickets[b]));
            RANK_OK(ech__comm_progress(comm));
            if (b == 20)
                RANK_OK(ech__comm_barrier(comm));
        }
        for (int b = 0; b < BUCKETS; b++) {
            ech__coll_times t;
            RANK_OK(ech__comm_wait(comm, tickets[b], &t));
            RANK_CHECK(t.ready_ns > 0 && t.ready_ns <= t.start_ns && t.start_ns <= t.done_ns &&
                       t.work_ns >= 0 && t.done_ns <= ech__clock_wall());
            for (int64_t i = first[b]; i < first[b] + size[b]; i++)
                RANK_CHECK(data[i] == (float)want.at[(i + round) % 8]);
        }
        RANK_OK(ech__comm_barrier(comm));
    }
    ech__comm_free(comm, data);
}

/* ---- other nodes ---- */

enum { FLIGHTS = 3, CHUNK = 16 };

/* Stands for a second node whose ranks have the same data: what this node has added up is there
 * twice. */
typedef struct echo {
    struct {
        float *data;
        int64_t count;
    } chunks[FLIGHTS];
    int polls, begun, ended, most;
    uint64_t sequence;
    int64_t elements;
} echo;

static ech_status echo_begin(void *user, void *data, int64_t count, ech_dtype dtype,
                             ech__reduction reduction, uint64_t sequence)
{
    echo *e = user;
    if (dtype != ECH_F32 || reduction != ECH__REDUCTION_SUM || sequence < e->sequence ||
        count < 1 || count > CHUNK || e->begun - e->ended == FLIGHTS)
        return ECH_E_INTERNAL;
    e->chunks[e->begun % FLIGHTS].data = data;
    e->chunks[e->begun++ % FLIGHTS].count = count;
    e->sequence = sequence;
    e->elements += count;
    e->most = e->begun - e->ended > e->most ? e->begun - e->ended : e->most;
    return ECH_OK;
}

static ech_status echo_test(void *user, bool *done)
{
    echo *e = user;
    *done = e->begun > e->ended && ++e->polls % 4 == 0;
    if (!*done)
        return ECH_OK;
    for (int64_t i = 0; i < e->chunks[e->ended % FLIGHTS].count; i++)
        e->chunks[e->ended % FLIGHTS].data[i] *= 2;
    e->ended++;
    return ECH_OK;
}

static void reduce_between_nodes(ech__comm *comm, void *user)
{
    (void)user;
    enum { BUCKETS = 30 };
    echo e = {.polls = 0};
    int64_t elements = 0;
    const int owners = comm->world - 1, nodes = 2;
    const results sums = reduced(comm->world, ECH__REDUCTION_SUM);
    float *data;
    uint64_t tickets[BUCKETS];
    ech__shm_set_inter(comm, &(ech__inter){.begin = echo_begin,
                                           .test = echo_test,
                                           .user = &e,
                                           .flights = FLIGHTS,
                                           .chunk_bytes = CHUNK * 4,
                                           .owners = owners,
                                           .world = comm->world * nodes});
    RANK_OK(ech__comm_alloc(comm, BUCKETS * 100 * 4, (void **)&data));
    for (int64_t i = 0; i < BUCKETS * 100; i++)
        data[i] = (float)value(comm->rank, i);
    for (int b = 0; b < BUCKETS; b++) {
        float *bucket = data + b * 100;
        ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                       .reduction = b % 2 ? ECH__REDUCTION_MEAN : ECH__REDUCTION_SUM,
                       .dtype = ECH_F32,
                       .count =
                           b * 100 / (BUCKETS - 1), /* small ones leave owners without a shard */
                       .src = bucket,
                       .dst = bucket};
        RANK_OK(ech__comm_start(comm, &c, &tickets[b]));
        RANK_OK(ech__comm_progress(comm));
        elements += ech__shard(c.count, comm->rank, owners, 16).count;
    }
    RANK_OK(ech__comm_barrier(comm));
    for (int b = BUCKETS - 1; b >= 0; b--)
        RANK_OK(ech__comm_wait(comm, tickets[b], NULL));
    for (int64_t i = 0; i < BUCKETS * 100; i++) {
        const int64_t b = i / 100, count = b * 100 / (BUCKETS - 1);
        const float sum = (float)sums.at[i % 8] * 2;
        const float want = b % 2 ? sum / (float)(comm->world * nodes) : sum;
        RANK_CHECK(data[i] == (i % 100 < count ? want : (float)value(comm->rank, i)));
    }
    RANK_CHECK(e.elements == elements && e.begun == e.ended);
    RANK_CHECK(e.most <= FLIGHTS &&
               (e.most > 0) == (elements > 0)); /* how many is up to the clock */
    RANK_OK(ech__comm_barrier(comm));
}

/* ---- memory ---- */

static void allocate(ech__comm *comm, void *user)
{
    (void)user;
    for (int k = 0; k < 300; k++) { /* more than there may be at a time */
        char *a, *b;
        RANK_OK(ech__comm_alloc(comm, 1 + k * 100, (void **)&a));
        RANK_OK(ech__comm_alloc(comm, 0, (void **)&b));
        RANK_CHECK((uintptr_t)a % 64 == 0);
        RANK_CHECK(a[0] == 0 && a[k * 100] == 0);
        memset(a, 1 + comm->rank, (size_t)(1 + k * 100));
        RANK_OK(ech__comm_barrier(comm));
        RANK_CHECK(a[0] == 1 + comm->rank && a[k * 100] == 1 + comm->rank);
        ech__comm_free(comm, a);
        ech__comm_free(comm, b);
    }
    void *huge;
    RANK_REFUSED(ech__comm_alloc(comm, (int64_t)1 << 50, &huge), "bytes of shared memory for");
    RANK_CHECK(!huge);
    ech__comm_free(comm, NULL);
    RANK_OK(ech__comm_barrier(comm));
}

/* ---- every shape of group ---- */

static void both_ways(rank_fn work, int from, int to)
{
    for (int world = from; world <= to; world++) {
        run_ranks(RANKS_AS_THREADS, world, 60, work, NULL);
        if (world <= 3 || world == to)
            run_ranks(RANKS_AS_PROCESSES, world, 60, work, NULL);
    }
}

static void reductions_are_exact(void **state)
{
    (void)state;
    both_ways(reduce_all, 1, 8);
}

static void data_arrive(void **state)
{
    (void)state;
    both_ways(move_all, 2, 8);
}

static void sums_have_one_order(void **state)
{
    (void)state;
    both_ways(sum_in_order, 2, 8);
}

static void buckets_are_reduced(void **state)
{
    (void)state;
    both_ways(start_buckets, 1, 8);
}

static void shards_go_to_other_nodes(void **state)
{
    (void)state;
    both_ways(reduce_between_nodes, 2, 5);
}

static void memory_comes_and_goes(void **state)
{
    (void)state;
    both_ways(allocate, 1, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_exact),     cmocka_unit_test(data_arrive),
        cmocka_unit_test(sums_have_one_order),      cmocka_unit_test(buckets_are_reduced),
        cmocka_unit_test(shards_go_to_other_nodes), cmocka_unit_test(memory_comes_and_goes),
    };
    puts("covered - transport shared memory");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
