/* Prices of all-reduces: by hand, against every message counted, and at their limits. */
#include "price/collective.h"
#include "support/cmocka_first.h"
#include "support/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALPHA 3e-6
#define BETA 2e9

static const ech__algorithm algorithms[] = {
    ECH__ALGORITHM_RING,         ECH__ALGORITHM_TREE,   ECH__ALGORITHM_HALVING,
    ECH__ALGORITHM_HIERARCHICAL, ECH__ALGORITHM_DIRECT,
};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static ech__cluster one_node(void)
{
    ech__cluster c = ech__cluster_defaults();
    c.inside = (ech__link){.bytes_per_s = BETA, .latency_s = ALPHA};
    return c;
}

/* Inside 8 GB/s and 2 us, between 1 GB/s and 10 us. */
static ech__cluster nodes_of(int64_t per_node)
{
    return (ech__cluster){.devices_per_node = per_node,
                          .inside = {.bytes_per_s = 8e9, .latency_s = 2e-6},
                          .between = {.bytes_per_s = 1e9, .latency_s = 10e-6}};
}

static void check_close(double got, double wanted, const char *what, ech__algorithm a, int64_t n)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%s of %s on %lld devices is %.12g, not %.12g", what, ech__algorithm_name(a),
                 (long long)n, got, wanted);
}

static void check_seconds(const ech__cluster *c, ech__algorithm a, int64_t n, int64_t bytes,
                          double wanted)
{
    check_close(ech__price_allreduce(c, a, n, bytes).seconds, wanted, "the price", a, n);
}

/* ---- by hand ---- */

static void on_one_node(void **state)
{
    (void)state;
    const ech__cluster c = one_node();
    check_seconds(&c, ECH__ALGORITHM_RING, 4, 8000000, 6 * (ALPHA + 2e6 / BETA));
    check_seconds(&c, ECH__ALGORITHM_TREE, 4, 8000000, 4 * (ALPHA + 8e6 / BETA));
    check_seconds(&c, ECH__ALGORITHM_TREE, 5, 8000000, 6 * (ALPHA + 8e6 / BETA));
    check_seconds(&c, ECH__ALGORITHM_HALVING, 4, 8000000, 4 * ALPHA + 2 * 6e6 / BETA);
    /* Two more than four: a pair of steps with all bytes. */
    check_seconds(&c, ECH__ALGORITHM_HALVING, 6, 8000000, 6 * ALPHA + 2 * (8e6 + 6e6) / BETA);
    check_seconds(&c, ECH__ALGORITHM_HIERARCHICAL, 4, 8000000, 6 * (ALPHA + 2e6 / BETA));
    check_seconds(&c, ECH__ALGORITHM_DIRECT, 4, 8000000, 2 * (ALPHA + 6e6 / BETA));
}

static void over_nodes(void **state)
{
    (void)state;
    const ech__cluster c = nodes_of(4); /* 8 devices are two nodes */
    const int64_t mb8 = 8000000;
    check_seconds(&c, ECH__ALGORITHM_RING, 8, mb8, 14 * (10e-6 + 1e6 / 1e9));
    check_seconds(&c, ECH__ALGORITHM_TREE, 8, mb8, 2 * (2 * (2e-6 + 1e-3) + 10e-6 + 8e-3));
    /* 4 MB and 2 MB stay inside; four devices send 1 MB each through one port. */
    check_seconds(&c, ECH__ALGORITHM_HALVING, 8, mb8,
                  2 * (2e-6 + 4e6 / 8e9 + 2e-6 + 2e6 / 8e9 + 10e-6 + 4 * 1e6 / 1e9));
    check_seconds(&c, ECH__ALGORITHM_HIERARCHICAL, 8, mb8,
                  2 * (3 * (2e-6 + 2e6 / 8e9) + 10e-6 + 4 * 1e6 / 1e9));
    check_seconds(&c, ECH__ALGORITHM_DIRECT, 8, mb8,
                  2 * (2e-6 + 6e6 / 8e9 + 10e-6 + 4 * 1e6 / 1e9));
}

static void a_last_node_that_is_not_full(void **state)
{
    (void)state;
    const ech__cluster c = nodes_of(4); /* 6 devices: 4 and 2, so two owners of 4 MB */
    const int64_t mb8 = 8000000;
    check_seconds(&c, ECH__ALGORITHM_HIERARCHICAL, 6, mb8,
                  2 * (3 * (2e-6 + 4e6 / 8e9) + 10e-6 + 2 * 2e6 / 1e9));
    check_seconds(&c, ECH__ALGORITHM_RING, 6, mb8, 10 * (10e-6 + 8e6 / 6 / 1e9));
    check_seconds(&c, ECH__ALGORITHM_TREE, 6, mb8, 2 * (2 * (2e-6 + 1e-3) + 10e-6 + 8e-3));
    /* Devices 1, 3, 4, 5 go on: 1 with 3 and 4 with 5 inside, then two messages out of either node. */
    check_seconds(&c, ECH__ALGORITHM_HALVING, 6, mb8,
                  2 * (2e-6 + 1e-3 + 2e-6 + 4e6 / 8e9 + 10e-6 + 2 * 2e6 / 1e9));
}

static void a_device_cannot_send_faster_than_its_port(void **state)
{
    (void)state;
    ech__cluster c = nodes_of(2);
    c.inside.bytes_per_s = 0.5e9;
    check_seconds(&c, ECH__ALGORITHM_RING, 4, 4000000, 6 * (10e-6 + 1e6 / 0.5e9));
    c.devices_per_node = 1; /* then its port is the node's */
    check_seconds(&c, ECH__ALGORITHM_RING, 4, 4000000, 6 * (10e-6 + 1e6 / 1e9));
}

static void owners_share_the_port_of_their_node(void **state)
{
    (void)state;
    /* Links inside cost next to nothing: what is left is the exchange between four nodes, whose
     * bytes do not depend on how many owners send them. */
    ech__cluster c = nodes_of(8);
    c.inside = (ech__link){.bytes_per_s = 1e15, .latency_s = 0};
    const ech__collective_price many =
        ech__price_allreduce(&c, ECH__ALGORITHM_HIERARCHICAL, 32, 8000000);
    c.devices_per_node = 1;
    const ech__collective_price alone = ech__price_allreduce(&c, ECH__ALGORITHM_RING, 4, 8000000);
    assert_true(fabs(many.seconds / alone.seconds - 1) < 1e-5);
    assert_true(many.node_bytes == alone.node_bytes);
}

/* ---- every message counted ---- */

typedef struct ports {
    const ech__cluster *cluster;
    int64_t devices, per_node, step;
    bool alone; /* one device per node */
    double now[4][256], all[4][256];
    bool crossed, stayed; /* in this step */
    double seconds;
} ports;

enum { DEVICE_UP, DEVICE_DOWN, NODE_UP, NODE_DOWN };

static double largest(const ports *p, const double of[4][256], int port)
{
    double most = 0;
    for (int64_t i = 0; i < p->devices; i++)
        most = fmax(most, fmax(of[port][i], of[port + 1][i]));
    return most;
}

/* Ports carry what they have to; nothing ends before the fullest port of its kind is empty. Right
 * where messages that cross are of one size, and those that stay too. */
static void end_step(ports *p)
{
    const double nodes = largest(p, p->now, NODE_UP) / p->cluster->between.bytes_per_s;
    const double devices =
        p->alone ? 0 : largest(p, p->now, DEVICE_UP) / p->cluster->inside.bytes_per_s;
    double step = 0;
    if (p->stayed)
        step = p->cluster->inside.latency_s + devices;
    if (p->crossed)
        step = fmax(step, p->cluster->between.latency_s + fmax(nodes, devices));
    p->seconds += step;
    memset(p->now, 0, sizeof p->now);
    p->crossed = p->stayed = false;
}

static void carry(ports *p, int port, int64_t index, double bytes)
{
    p->now[port][index] += bytes;
    p->all[port][index] += bytes;
}

static void count_message(void *user, const schedule_message *m)
{
    ports *p = user;
    for (; p->step < m->step; p->step++)
        end_step(p);
    assert_true(m->src != m->dst && m->step == p->step);
    const int64_t from = m->src / p->per_node, to = m->dst / p->per_node;
    carry(p, DEVICE_UP, m->src, m->bytes);
    carry(p, DEVICE_DOWN, m->dst, m->bytes);
    if (from != to) {
        carry(p, NODE_UP, from, m->bytes);
        carry(p, NODE_DOWN, to, m->bytes);
    }
    p->crossed |= from != to;
    p->stayed |= from == to;
}

static void check_counted(ports *p, const ech__cluster *c, ech__algorithm a, int64_t n,
                          int64_t bytes)
{
    const int64_t per_node = c->devices_per_node < n ? c->devices_per_node : n;
    assert_true(n <= 256);
    *p = (ports){.cluster = c, .devices = n, .per_node = per_node, .alone = per_node == 1};
    const schedule s = {.algorithm = a,
                        .devices = n,
                        .per_node = per_node,
                        .bytes = (double)bytes,
                        .visit = count_message,
                        .user = p};
    const int64_t steps = schedule_run(&s);
    for (; p->step < steps; p->step++)
        end_step(p);
    const ech__collective_price price = ech__price_allreduce(c, a, n, bytes);
    assert_int_equal(price.algorithm, a);
    assert_int_equal(price.steps, steps);
    check_close(price.seconds, p->seconds, "the price", a, n);
    check_close(price.device_bytes, largest(p, p->all, DEVICE_UP), "a device's bytes", a, n);
    check_close(price.node_bytes, largest(p, p->all, NODE_UP), "a node's bytes", a, n);
    const double device_s = p->alone ? 0 : price.device_bytes / c->inside.bytes_per_s;
    const double node_s = price.node_bytes / c->between.bytes_per_s;
    assert_true(price.busiest_bytes == (node_s > device_s ? price.node_bytes : price.device_bytes));
}

static void closed_forms_are_what_messages_add_up_to(void **state)
{
    (void)state;
    ports *p = malloc(sizeof *p);
    assert_non_null(p);
    const int64_t sizes[] = {0, 4096, 44700000};
    for (int64_t per_node = 1; per_node <= 20; per_node++) {
        const ech__cluster c = nodes_of(per_node);
        for (int64_t n = 2; n <= 150; n += 1 + n / 40) {
            for (size_t a = 0; a < ALGORITHMS; a++) {
                for (int i = 0; i < 3; i++)
                    check_counted(p, &c, algorithms[a], n, sizes[i]);
            }
        }
    }
    /* Nodes whose numbers wander through the blocks for long, and powers of two. */
    const int64_t odd[][2] = {{255, 7}, {256, 8}, {250, 17}, {192, 9}, {256, 33}, {131, 5}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const ech__cluster c = nodes_of(odd[i][1]);
        check_counted(p, &c, ECH__ALGORITHM_HALVING, odd[i][0], 44700000);
    }
    free(p);
}

/* ---- limits ---- */

static void one_device_costs_nothing(void **state)
{
    (void)state;
    const ech__cluster c = nodes_of(4);
    for (int a = 0; a < ECH__ALGORITHM_COUNT; a++) {
        const ech__collective_price p = ech__price_allreduce(&c, (ech__algorithm)a, 1, 1 << 30);
        assert_true(p.seconds == 0 && p.busiest_bytes == 0 && p.device_bytes == 0 &&
                    p.node_bytes == 0 && p.steps == 0);
    }
}

static void two_devices_exchange_halves(void **state)
{
    (void)state;
    const ech__cluster c = one_node();
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const bool tree = algorithms[a] == ECH__ALGORITHM_TREE;
        check_seconds(&c, algorithms[a], 2, 8000000, 2 * (ALPHA + (tree ? 8e6 : 4e6) / BETA));
    }
}

static void no_bytes_cost_the_latencies(void **state)
{
    (void)state;
    const ech__cluster c = one_node();
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const ech__collective_price p = ech__price_allreduce(&c, algorithms[a], 12, 0);
        check_close(p.seconds, (double)p.steps * ALPHA, "the price of nothing", algorithms[a], 12);
        assert_true(p.busiest_bytes == 0);
    }
}

static void a_message_is_latency_and_bytes(void **state)
{
    (void)state;
    const ech__cluster c = one_node();
    assert_true(fabs(ech__price_message(&c.inside, 2000000) - (ALPHA + 1e-3)) < 1e-15);
    assert_true(ech__price_message(&c.inside, 0) == ALPHA);
}

static void more_bytes_never_cost_less(void **state)
{
    (void)state;
    for (int64_t per_node = 1; per_node <= 9; per_node += 2) {
        const ech__cluster c = nodes_of(per_node);
        for (int a = 0; a < ECH__ALGORITHM_COUNT; a++) {
            for (int64_t n = 2; n < 5000; n = n * 3 / 2 + 1) {
                double before = 0;
                for (int64_t bytes = 1; bytes < (int64_t)1 << 40; bytes *= 7) {
                    const double now =
                        ech__price_allreduce(&c, (ech__algorithm)a, n, bytes).seconds;
                    assert_true(now > before);
                    before = now;
                }
            }
        }
    }
}

static void worse_links_never_cost_less(void **state)
{
    (void)state;
    const ech__cluster c = nodes_of(6);
    ech__cluster worse[4] = {c, c, c, c};
    worse[0].inside.bytes_per_s /= 2;
    worse[1].inside.latency_s *= 2;
    worse[2].between.bytes_per_s /= 2;
    worse[3].between.latency_s *= 2;
    for (int a = 0; a < ECH__ALGORITHM_COUNT; a++) {
        for (int64_t n = 2; n < 200; n++) {
            const double price = ech__price_allreduce(&c, (ech__algorithm)a, n, 1000000).seconds;
            for (int i = 0; i < 4; i++) {
                const double other =
                    ech__price_allreduce(&worse[i], (ech__algorithm)a, n, 1000000).seconds;
                assert_true(other >= price);
            }
        }
    }
}

static void a_ring_carries_what_it_must(void **state)
{
    (void)state;
    const ech__cluster c = nodes_of(4);
    for (int64_t n = 2; n <= 4096; n *= 2) {
        const ech__collective_price p = ech__price_allreduce(&c, ECH__ALGORITHM_RING, n, 44700000);
        check_close(p.busiest_bytes, 2 * (double)(n - 1) / (double)n * 44.7e6, "the bytes",
                    ECH__ALGORITHM_RING, n);
    }
}

static void trees_win_small_and_rings_large(void **state)
{
    (void)state;
    const ech__cluster c = one_node();
    const int64_t n = 64;
    bool ring_won = false;
    for (int64_t bytes = 16; bytes < (int64_t)1 << 32; bytes *= 2) {
        const bool ring = ech__price_allreduce(&c, ECH__ALGORITHM_RING, n, bytes).seconds <
                          ech__price_allreduce(&c, ECH__ALGORITHM_TREE, n, bytes).seconds;
        assert_true(ring || !ring_won); /* one crossover */
        assert_true(bytes > 16 || !ring);
        ring_won = ring;
    }
    assert_true(ring_won);
    /* 126 (a + b/64B) = 12 (a + b/B) where b = 114 a B / (12 - 126/64). */
    const double cross = 114 * ALPHA * BETA / (12 - 126.0 / 64);
    const double ring = ech__price_allreduce(&c, ECH__ALGORITHM_RING, n, (int64_t)cross).seconds;
    const double tree = ech__price_allreduce(&c, ECH__ALGORITHM_TREE, n, (int64_t)cross).seconds;
    assert_true(fabs(ring / tree - 1) < 1e-4);
}

static void the_best_is_the_cheapest(void **state)
{
    (void)state;
    int chosen[ECH__ALGORITHM_COUNT] = {0};
    for (int64_t per_node = 1; per_node <= 16; per_node *= 2) {
        const ech__cluster c = nodes_of(per_node);
        for (int64_t n = 2; n <= 4096; n = n * 2 - n / 3) {
            for (int64_t bytes = 16; bytes < (int64_t)1 << 34; bytes *= 5) {
                const ech__collective_price best =
                    ech__price_allreduce(&c, ECH__ALGORITHM_BEST, n, bytes);
                assert_true(best.algorithm != ECH__ALGORITHM_BEST);
                chosen[best.algorithm]++;
                double least = INFINITY;
                for (size_t a = 0; a < ALGORITHMS; a++) {
                    if (algorithms[a] != ECH__ALGORITHM_DIRECT || n <= per_node)
                        least =
                            fmin(least, ech__price_allreduce(&c, algorithms[a], n, bytes).seconds);
                }
                assert_true(best.seconds == least);
            }
        }
    }
    for (size_t a = 0; a < ALGORITHMS; a++) {
        if (!chosen[algorithms[a]])
            fail_msg("%s is never the best", ech__algorithm_name(algorithms[a]));
    }
}

/* Not a matter of time but of loops: a price that walks over all devices would never end here. */
static void ten_billion_devices_have_a_price(void **state)
{
    (void)state;
    const int64_t per_node[] = {1, 8, 9973, 10000};
    for (int i = 0; i < 4; i++) {
        const ech__cluster c = nodes_of(per_node[i]);
        for (size_t a = 0; a < ALGORITHMS; a++) {
            const ech__collective_price p =
                ech__price_allreduce(&c, algorithms[a], 10000000000, 44700000);
            assert_true(isfinite(p.seconds) && p.seconds > 0 && p.node_bytes > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_node),
        cmocka_unit_test(over_nodes),
        cmocka_unit_test(a_last_node_that_is_not_full),
        cmocka_unit_test(a_device_cannot_send_faster_than_its_port),
        cmocka_unit_test(owners_share_the_port_of_their_node),
        cmocka_unit_test(closed_forms_are_what_messages_add_up_to),
        cmocka_unit_test(one_device_costs_nothing),
        cmocka_unit_test(two_devices_exchange_halves),
        cmocka_unit_test(no_bytes_cost_the_latencies),
        cmocka_unit_test(a_message_is_latency_and_bytes),
        cmocka_unit_test(more_bytes_never_cost_less),
        cmocka_unit_test(worse_links_never_cost_less),
        cmocka_unit_test(a_ring_carries_what_it_must),
        cmocka_unit_test(trees_win_small_and_rings_large),
        cmocka_unit_test(the_best_is_the_cheapest),
        cmocka_unit_test(ten_billion_devices_have_a_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
