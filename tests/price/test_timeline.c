/* Timelines of a step: hand-computed cases of what is hidden and what is not. */
#include "price/timeline.h"
#include "support/cmocka_first.h"

#include <math.h>

/* On two devices a ring of b bytes takes 2 (1 ms + b/2 / 1 GB/s), so 2 MB take 4 ms. */
static const ech__cluster cluster = {.nodes = 1,
                                     .inside = {1e9, .latency_s = 1e-3, .overhead_s = 1e-3},
                                     .between = {1e9, .latency_s = 1e-3, .overhead_s = 1e-3}};
enum { MB = 1000000 };

static void is(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-12))
        fail_msg("%.12g s instead of %.12g s", got, wanted);
}

static ech__priced_step price(const ech__priced_op *ops, size_t count, ech__algorithm algorithm,
                              int64_t devices)
{
    return ech__price_step(ops, count, &cluster, algorithm, devices, 0.5e-3);
}

static const ech__priced_op overlapping[] = {
    {ECH__PRICED_FORWARD, 3e-3, 0},   {ECH__PRICED_BACKWARD, 2e-3, 0},
    {ECH__PRICED_BUCKET, 0, 2 * MB},  {ECH__PRICED_BACKWARD, 10e-3, 0},
    {ECH__PRICED_BUCKET, 0, 2 * MB},  {ECH__PRICED_WAIT, 0, 0},
    {ECH__PRICED_OPTIMIZER, 1e-3, 0},
};
enum { OPS = sizeof overlapping / sizeof *overlapping };

static void test_hidden(void **state)
{
    (void)state;
    /* The first bucket travels from 5.5 to 9.5 ms under the backward pass that ends at 15.5; the
     * second one from there. */
    const ech__priced_step s = price(overlapping, OPS, ECH__ALGORITHM_RING, 2);
    is(s.compute_s, 16e-3);
    is(s.comm_s, 8e-3);
    is(s.exposed_s, 4e-3);
    is(s.hidden_s, 4e-3);
    is(s.step_s, 0.5e-3 + 16e-3 + 4e-3);
    is(s.busiest_bytes, 4e6);
}

static void test_queue(void **state)
{
    (void)state;
    /* The link is busy with the first bucket when the second one is ready. */
    const ech__priced_op ops[] = {
        {ECH__PRICED_BACKWARD, 1e-3, 0}, {ECH__PRICED_BUCKET, 0, 2 * MB},
        {ECH__PRICED_BACKWARD, 1e-3, 0}, {ECH__PRICED_BUCKET, 0, 2 * MB},
        {ECH__PRICED_WAIT, 0, 0},
    };
    const ech__priced_step s = price(ops, 5, ECH__ALGORITHM_RING, 2);
    is(s.step_s, 0.5e-3 + 1e-3 + 8e-3);
    is(s.exposed_s, 7e-3);
    is(s.hidden_s, 1e-3);
}

static void test_movers(void **state)
{
    (void)state;
    /* The devices do it themselves: nothing is hidden, and the order does not matter. */
    ech__cluster memory = cluster;
    memory.mover = ECH__MOVER_DEVICES;
    const ech__priced_step s =
        ech__price_step(overlapping, OPS, &memory, ECH__ALGORITHM_DIRECT, 2, 0.5e-3);
    is(s.comm_s, 8e-3);
    is(s.exposed_s, 8e-3);
    is(s.hidden_s, 0);
    is(s.step_s, 0.5e-3 + 16e-3 + 8e-3);
    /* Over links the same algorithm is hidden as any other. */
    is(price(overlapping, OPS, ECH__ALGORITHM_DIRECT, 2).hidden_s, 4e-3);
}

/* The best one and the one that it is have one price. */
static void test_best(void **state)
{
    (void)state;
    for (int64_t devices = 2; devices < 3000; devices = devices * 3 / 2 + 1) {
        const ech__algorithm named =
            ech__price_allreduce(&cluster, ECH__ALGORITHM_BEST, devices, 2 * MB).algorithm;
        const ech__priced_step best = price(overlapping, OPS, ECH__ALGORITHM_BEST, devices);
        is(price(overlapping, OPS, named, devices).step_s, best.step_s);
    }
}

static void test_sync(void **state)
{
    (void)state;
    const ech__priced_op ops[] = {{ECH__PRICED_FORWARD, 2e-3, 0},
                                  {ECH__PRICED_SYNC, 0, 2 * MB},
                                  {ECH__PRICED_FORWARD, 1e-3, 0},
                                  {ECH__PRICED_WAIT, 0, 0}};
    const ech__priced_step s = price(ops, 4, ECH__ALGORITHM_RING, 2);
    is(s.step_s, 0.5e-3 + 3e-3 + 4e-3);
    is(s.exposed_s, 4e-3);
    is(s.hidden_s, 0);
}

static void test_alone(void **state)
{
    (void)state;
    const ech__priced_step s = price(overlapping, OPS, ECH__ALGORITHM_BEST, 1);
    is(s.step_s, 0.5e-3 + 16e-3);
    is(s.comm_s, 0);
    is(s.busiest_bytes, 0);
}

static void test_nothing(void **state)
{
    (void)state;
    const ech__priced_step s = price(NULL, 0, ECH__ALGORITHM_RING, 4);
    is(s.step_s, 0.5e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden),  cmocka_unit_test(test_queue), cmocka_unit_test(test_movers),
        cmocka_unit_test(test_best),    cmocka_unit_test(test_sync),  cmocka_unit_test(test_alone),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
