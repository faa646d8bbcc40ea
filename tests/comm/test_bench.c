/* Timed collectives: their data, sizes and bandwidths, and that an error in a transport is counted. Ranks are threads. */
#include "comm/bench.h"
#include "comm/bench_data.h"
#include "comm/shm.h"

#include "support/cmocka_first.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORLD = 4, MAX_ROWS = 8 };

/* ---- data ---- */

static void reductions_are_those_of_the_values(void **state)
{
    (void)state;
    static const int worlds[] = {1, 2, 3, 8, 100};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (int64_t i = 0; i < 1000; i++) {
            const int n = worlds[w];
            float sum = 0, max = 0;
            for (int rank = 0; rank < n; rank++) {
                const float value = ech__bench_value(rank, n, i);
                sum += value;
                max = value > max ? value : max;
            }
            assert_true(ech__bench_reduced(ECH__REDUCTION_SUM, n, i) == sum);
            assert_true(ech__bench_reduced(ECH__REDUCTION_MEAN, n, i) == sum / (float)n);
            assert_true(ech__bench_reduced(ECH__REDUCTION_MAX, n, i) == max);
        }
}

/* Each rank's data differs from the next one's and from its own one position further, nearly everywhere. */
static void values_tell_ranks_and_positions_apart(void **state)
{
    (void)state;
    int as_neighbour = 0, as_before = 0, largest[3] = {0};
    for (int64_t i = 0; i < 1000; i++) {
        as_neighbour += ech__bench_value(0, 3, i) == ech__bench_value(1, 3, i);
        as_before += ech__bench_value(0, 3, i) == ech__bench_value(0, 3, i + 1);
        for (int rank = 0; rank < 3; rank++)
            largest[rank] +=
                ech__bench_value(rank, 3, i) == ech__bench_reduced(ECH__REDUCTION_MAX, 3, i);
    }
    assert_int_equal(as_neighbour, 0);
    assert_in_range(as_before, 0, 200);
    for (int rank = 0; rank < 3; rank++)
        assert_in_range(largest[rank], 200, 500);
}

static void elements_have_the_bits_of_their_type(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint16_t bf16, f16;
    } halves[] = {{1, 0x3f80, 0x3c00},    {1.5f, 0x3fc0, 0x3e00},
                  {255, 0x437f, 0x5bf8},  {257, 0x4380, 0x5c04}, /* halfway in bf16: down to even */
                  {259, 0x4382, 0x5c0c},                         /* halfway in bf16: up to even */
                  {2049, 0x4500, 0x6800},                        /* halfway in f16: down to even */
                  {36736, 0x4710, 0x787c}}; /* near to the largest sum of 256 ranks */
    for (size_t k = 0; k < sizeof halves / sizeof *halves; k++) {
        uint16_t data[2] = {0, 0};
        ech__bench_store(ECH_BF16, data, 1, halves[k].value);
        assert_int_equal(data[1], halves[k].bf16);
        ech__bench_store(ECH_F16, data, 1, halves[k].value);
        assert_int_equal(data[1], halves[k].f16);
        assert_true(ech__bench_holds(ECH_F16, data, 1, halves[k].value));
        data[1] ^= 1;
        assert_false(ech__bench_holds(ECH_F16, data, 1, halves[k].value));
        assert_int_equal(data[0], 0);
    }
    int32_t whole;
    ech__bench_store(ECH_S32, &whole, 0, 12);
    assert_int_equal(whole, 12);
}

/* ---- ranks ---- */

typedef struct rank {
    pthread_t thread;
    int fd, number, world;
    const ech__bench_config *config;
    bool spoil; /* one element of every all-reduce of f32 */
    ech_status status;
    ech__bench_place place;
    int rows;
    ech__bench_row row[MAX_ROWS];
} rank;

static void take_row(void *user, const ech__bench_row *row)
{
    rank *r = user;
    assert_true(row->iters == r->config->iters && row->samples_s[0] <= row->time_s);
    assert_true(r->rows < MAX_ROWS);
    r->row[r->rows++] = *row;
}

static const ech__comm_ops *right_ops; /* of the one rank that spoils */

static ech_status run_wrong(ech__comm *comm, const ech__coll *coll)
{
    const ech_status status = right_ops->run(comm, coll);
    if (coll->op == ECH__COLL_ALLREDUCE && coll->dtype == ECH_F32)
        *(char *)coll->dst ^= 1;
    return status;
}

static void *run_rank(void *user)
{
    rank *r = user;
    ech_ctx *ctx;
    ech__comm *comm;
    r->status = ech_ctx_create(NULL, &ctx);
    if (r->status < 0)
        return NULL;
    r->status = ech__shm_join(ctx, r->fd, r->number, r->world, 60, &comm);
    if (r->status >= 0) {
        ech__comm_ops ops = *comm->ops;
        ops.run = run_wrong;
        const ech__comm_ops *own = comm->ops;
        if (r->spoil) {
            right_ops = own;
            comm->ops = &ops;
        }
        r->status = ech__bench_find(comm, &r->place);
        if (r->status >= 0)
            r->status = ech__bench_comm(comm, r->config, take_row, r);
        comm->ops = own;
        ech__comm_close(comm);
    }
    ech_ctx_destroy(ctx);
    return NULL;
}

/* ranks[world]; spoiler: a rank whose transport errs, or -1. */
static void run_ranks(rank *ranks, int world, const ech__bench_config *config, int spoiler)
{
    ech_ctx *ctx;
    int fd;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__shm_create(ctx, world, &fd), ECH_OK);
    for (int k = 0; k < world; k++) {
        ranks[k] =
            (rank){.fd = fd, .number = k, .world = world, .config = config, .spoil = k == spoiler};
        assert_int_equal(pthread_create(&ranks[k].thread, NULL, run_rank, &ranks[k]), 0);
    }
    for (int k = 0; k < world; k++)
        pthread_join(ranks[k].thread, NULL);
    close(fd);
    ech_ctx_destroy(ctx);
}

static ech__bench_config small(ech__bench_op op, ech_dtype dtype)
{
    ech__bench_config c = ech__bench_defaults();
    c.op = op;
    c.dtype = dtype;
    c.min_bytes = 64;
    c.max_bytes = 5000;
    c.factor = 8;
    c.iters = 2;
    c.warmup = 1;
    return c;
}

static void sizes_and_bandwidths_are_those_of_nccl_tests(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes, count; /* of the first size, 64 bytes of f32, with 3 ranks */
        double factor;
    } expected[] = {
        [ECH__BENCH_ALLREDUCE] = {64, 16, 4. / 3}, [ECH__BENCH_REDUCE_SCATTER] = {60, 5, 2. / 3},
        [ECH__BENCH_ALLGATHER] = {60, 5, 2. / 3},  [ECH__BENCH_BROADCAST] = {64, 16, 1},
        [ECH__BENCH_BARRIER] = {0, 0, 1},          [ECH__BENCH_SENDRECV] = {64, 16, 1}};
    for (int op = 0; op < ECH__BENCH_COUNT; op++) {
        const ech__bench_config c = small((ech__bench_op)op, ECH_F32);
        rank ranks[3];
        run_ranks(ranks, 3, &c, -1);
        for (int k = 0; k < 3; k++) {
            const ech__bench_row *row = ranks[k].row;
            assert_int_equal(ranks[k].status, ECH_OK);
            assert_int_equal(ranks[k].place.hosts, 1);
            assert_in_range(ranks[k].place.cores, 1, 1 << 20);
            assert_int_equal(ranks[k].rows, op == ECH__BENCH_BARRIER ? 1 : 3); /* 64 512 4096 */
            assert_int_equal(row->bytes, expected[op].bytes);
            assert_int_equal(row->count, expected[op].count);
            assert_int_equal(row->in_place, op == ECH__BENCH_ALLREDUCE);
            assert_true(row->time_s > 0 && row->time_s == ranks[0].row->time_s);
            assert_true(row->busbw_gbs == row->algbw_gbs * expected[op].factor);
            for (int i = 0; i < ranks[k].rows; i++)
                assert_int_equal(ranks[k].row[i].wrong, 0);
        }
    }
}

static void every_type_and_reduction_is_right(void **state)
{
    (void)state;
    static const ech_dtype dtypes[] = {ECH_F32, ECH_BF16, ECH_F16, ECH_S32};
    for (int place = 0; place < 2; place++)
        for (int reduction = 0; reduction < ECH__REDUCTION_COUNT; reduction++)
            for (int type = 0; type < 4; type++) {
                ech__bench_config c = small(ECH__BENCH_ALLREDUCE, dtypes[type]);
                c.reduction = (ech__reduction)reduction;
                c.in_place = place;
                rank ranks[MAX_WORLD];
                run_ranks(ranks, MAX_WORLD, &c, -1);
                const bool none = dtypes[type] == ECH_S32 && reduction == ECH__REDUCTION_MEAN;
                for (int k = 0; k < MAX_WORLD; k++) {
                    assert_int_equal(ranks[k].status, none ? ECH_E_UNSUPPORTED : ECH_OK);
                    assert_int_equal(ranks[k].rows, none ? 0 : 3);
                    for (int i = 0; i < ranks[k].rows; i++)
                        assert_int_equal(ranks[k].row[i].wrong, 0);
                }
            }
}

static void an_error_of_one_rank_is_counted_on_all(void **state)
{
    (void)state;
    ech__bench_config c = small(ECH__BENCH_ALLREDUCE, ECH_F32);
    c.in_place = false;
    rank ranks[2];
    run_ranks(ranks, 2, &c, 1);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(ranks[k].status, ECH_OK);
        assert_int_equal(ranks[k].rows, 3);
        assert_int_equal(ranks[k].row[0].wrong, 1);
    }
}

/* Fewer bytes than one element of each rank, and sizes that round to the same. */
static void tiny_sizes_have_one_element_once(void **state)
{
    (void)state;
    ech__bench_config c = small(ECH__BENCH_ALLGATHER, ECH_F32);
    c.min_bytes = 1;
    c.max_bytes = 8;
    c.factor = 2;
    rank ranks[3];
    run_ranks(ranks, 3, &c, -1);
    assert_int_equal(ranks[0].rows, 1);
    assert_int_equal(ranks[0].row[0].bytes, 12);
    assert_int_equal(ranks[0].row[0].wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_those_of_the_values),
        cmocka_unit_test(values_tell_ranks_and_positions_apart),
        cmocka_unit_test(elements_have_the_bits_of_their_type),
        cmocka_unit_test(sizes_and_bandwidths_are_those_of_nccl_tests),
        cmocka_unit_test(every_type_and_reduction_is_right),
        cmocka_unit_test(an_error_of_one_rank_is_counted_on_all),
        cmocka_unit_test(tiny_sizes_have_one_element_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
