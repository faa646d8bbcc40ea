/* Timed collectives: their data, sizes and bandwidths, and that an error in a transport is counted.
 * Ranks are threads. */
#include "comm/bench.h"
#include "comm/bench_data.h"
#include "support/ranks.h"

#include <string.h>

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

/* Each rank's data differs from the next one's and from its own one position further, nearly
 * everywhere. */
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

/* What a rank has seen. */
typedef struct seen {
    ech_status status;
    ech__bench_place place;
    int rows;
    ech__bench_row row[MAX_ROWS];
} seen;

typedef struct job {
    const ech__bench_config *config;
    int spoiler; /* rank whose transport spoils one element of every all-reduce of f32; -1: none */
    seen rank[MAX_WORLD];
} job;

static void take_row(void *user, const ech__bench_row *row)
{
    seen *s = user;
    if (s->rows < MAX_ROWS)
        s->row[s->rows] = *row;
    s->rows++;
}

static const ech__comm_ops *right_ops; /* of the spoiler */

static ech_status run_wrong(ech__comm *comm, const ech__coll *coll)
{
    const ech_status status = right_ops->run(comm, coll);
    if (coll->op == ECH__COLL_ALLREDUCE && coll->dtype == ECH_F32)
        *(char *)coll->dst ^= 1;
    return status;
}

static void run_rank(ech__comm *comm, void *user)
{
    job *j = user;
    seen *s = &j->rank[comm->rank];
    const ech__comm_ops *own = comm->ops;
    ech__comm_ops wrong = *own;
    wrong.run = run_wrong;
    if (comm->rank == j->spoiler) {
        right_ops = own;
        comm->ops = &wrong;
    }
    RANK_OK(ech__bench_find(comm, &s->place));
    s->status = ech__bench_comm(comm, j->config, take_row, s);
    comm->ops = own;
}

static job measure(int world, const ech__bench_config *config, int spoiler)
{
    job j = {.config = config, .spoiler = spoiler};
    run_ranks(RANKS_AS_THREADS, world, 60, run_rank, &j);
    return j;
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
        const job j = measure(3, &c, -1);
        for (int k = 0; k < 3; k++) {
            const ech__bench_row *row = j.rank[k].row;
            assert_int_equal(j.rank[k].status, ECH_OK);
            assert_int_equal(j.rank[k].place.hosts, 1);
            assert_in_range(j.rank[k].place.cores, 1, 1 << 20);
            assert_int_equal(j.rank[k].rows, op == ECH__BENCH_BARRIER ? 1 : 3); /* 64 512 4096 */
            assert_int_equal(row->bytes, expected[op].bytes);
            assert_int_equal(row->count, expected[op].count);
            assert_int_equal(row->in_place, op == ECH__BENCH_ALLREDUCE);
            assert_int_equal(row->iters, c.iters);
            assert_true(row->time_s > 0 && row->time_s == j.rank[0].row->time_s);
            assert_true(row->busbw_gbs == row->algbw_gbs * expected[op].factor);
            for (int i = 0; i < j.rank[k].rows; i++)
                assert_int_equal(j.rank[k].row[i].wrong, 0);
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
                const job j = measure(MAX_WORLD, &c, -1);
                const bool none = dtypes[type] == ECH_S32 && reduction == ECH__REDUCTION_MEAN;
                for (int k = 0; k < MAX_WORLD; k++) {
                    assert_int_equal(j.rank[k].status, none ? ECH_E_UNSUPPORTED : ECH_OK);
                    assert_int_equal(j.rank[k].rows, none ? 0 : 3);
                    for (int i = 0; i < j.rank[k].rows; i++)
                        assert_int_equal(j.rank[k].row[i].wrong, 0);
                }
            }
}

static void an_error_of_one_rank_is_counted_on_all(void **state)
{
    (void)state;
    ech__bench_config c = small(ECH__BENCH_ALLREDUCE, ECH_F32);
    c.in_place = false;
    const job j = measure(2, &c, 1);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(j.rank[k].status, ECH_OK);
        assert_int_equal(j.rank[k].rows, 3);
        assert_int_equal(j.rank[k].row[0].wrong, 1);
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
    const job j = measure(3, &c, -1);
    assert_int_equal(j.rank[0].rows, 1);
    assert_int_equal(j.rank[0].row[0].bytes, 12);
    assert_int_equal(j.rank[0].row[0].wrong, 0);
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
