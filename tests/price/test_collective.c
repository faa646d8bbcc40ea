/* Prices of all-reduces: by hand, against every message counted, and at their limits. */
#include "price/collective.h"
#include "support/cmocka_first.h"
#include "support/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALPHA 3e-6
#define BETA 2e9
#define HALVING_OFF 0.5

static const ech__algorithm algorithms[] = {
    ECH__ALGORITHM_RING,         ECH__ALGORITHM_TREE,   ECH__ALGORITHM_HALVING,
    ECH__ALGORITHM_HIERARCHICAL, ECH__ALGORITHM_DIRECT,
};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static ech__cluster one_node(void)
{
    ech__cluster c = ech__cluster_defaults();
    c.inside = (ech__link){.bytes_per_s = BETA, .latency_s = ALPHA, .overhead_s = ALPHA};
    return c;
}

/* Inside 8 GB/s and 2 us, between 1 GB/s and 10 us. */
static ech__cluster nodes_of(int64_t per_node)
{
    return (ech__cluster){.devices_per_node = per_node,
                          .inside = {8e9, .latency_s = 2e-6, .overhead_s = 2e-6},
                          .between = {1e9, .latency_s = 10e-6, .overhead_s = 10e-6}};
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
    /* Two more than four: they hand over a quarter to each of two devices, and get it back. */
    check_seconds(&c, ECH__ALGORITHM_HALVING, 6, 8000000, 6 * ALPHA + 2 * (6e6 + 4e6) / BETA);
    /* Three messages, a latency apart. */
    check_seconds(&c, ECH__ALGORITHM_DIRECT, 4, 800, 6 * ALPHA + 2 * 200 / BETA);
    check_seconds(&c, ECH__ALGORITHM_DIRECT, 4, 8000000, 2 * (ALPHA + 6e6 / BETA));
    check_seconds(&c, ECH__ALGORITHM_HIERARCHICAL, 4, 8000000, 2 * (ALPHA + 6e6 / BETA));
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
                  2 * (2e-6 + 6e6 / 8e9 + 10e-6 + 4 * 1e6 / 1e9));
    check_seconds(&c, ECH__ALGORITHM_DIRECT, 8, mb8,
                  2 * (2e-6 + 6e6 / 8e9 + 10e-6 + 4 * 1e6 / 1e9));
}

/* A message costs the device that sends it, so direct grows with the devices and tree with their logarithm. */
static void every_message_costs(void **state)
{
    (void)state;
    const ech__cluster c = one_node();
    const int64_t million = 1000000;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const bool logarithmic =
            algorithms[a] == ECH__ALGORITHM_TREE || algorithms[a] == ECH__ALGORITHM_HALVING;
        const double seconds = ech__price_allreduce(&c, algorithms[a], million, 0).seconds;
        if (logarithmic)
            assert_true(seconds < 200 * ALPHA);
        else
            check_close(seconds, 2 * (million - 1) * ALPHA, "latencies", algorithms[a], million);
    }
    ech__cluster faster = c;
    faster.inside.overhead_s = ALPHA / 10;
    check_close(ech__price_allreduce(&faster, ECH__ALGORITHM_DIRECT, 11, 0).seconds,
                2 * (ALPHA + 9 * ALPHA / 10), "an overhead", ECH__ALGORITHM_DIRECT, 11);
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

enum { MOST = 256 };

typedef struct ports {
    int64_t device_out[MOST], device_in[MOST], node_out[MOST], node_in[MOST];
} ports;

static void count_messages(const ech__schedule *s, ports *p)
{
    ech__move *moves = calloc((size_t)ech__schedule_most(s), sizeof *moves);
    assert_non_null(moves);
    memset(p, 0, sizeof *p);
    for (int64_t step = 0; step < ech__schedule_steps(s); step++) {
        for (int64_t r = 0; r < s->devices; r++) {
            const int64_t n = ech__schedule_moves(s, r, step, moves);
            for (int64_t i = 0; i < n; i++) {
                const int64_t to = moves[i].peer, bytes = moves[i].range.count;
                if (moves[i].kind != ECH__MOVE_SEND)
                    continue;
                p->device_out[r] += bytes;
                p->device_in[to] += bytes;
                if (r / s->per_node == to / s->per_node)
                    continue;
                p->node_out[r / s->per_node] += bytes;
                p->node_in[to / s->per_node] += bytes;
            }
        }
    }
    free(moves);
}

static double largest(const int64_t *out, const int64_t *in)
{
    int64_t most = 0;
    for (int i = 0; i < MOST; i++) {
        most = out[i] > most ? out[i] : most;
        most = in[i] > most ? in[i] : most;
    }
    return (double)most;
}

static void check_bytes(const ech__cluster *c, ech__algorithm a, int64_t n)
{
    const int64_t per_node = c->devices_per_node < n ? c->devices_per_node : n;
    const int64_t bytes = (int64_t)1 << 24; /* a byte more or less in a part is rounding */
    const ech__schedule s = {a, n, per_node, bytes, 1};
    ports p;
    count_messages(&s, &p);
    const ech__collective_price price = ech__price_allreduce(c, a, n, bytes);
    assert_int_equal(price.algorithm, a);
    assert_int_equal(price.steps, ech__schedule_steps(&s));
    const double device = largest(p.device_out, p.device_in);
    const double node = largest(p.node_out, p.node_in);
    if (fabs(price.device_bytes - device) > 1e-4 * device ||
        fabs(price.node_bytes - node) > 1e-4 * node)
        fail_msg("%s on %lld devices, %lld per node: %.0f and %.0f bytes, not %.0f and %.0f",
                 ech__algorithm_name(a), (long long)n, (long long)per_node, price.device_bytes,
                 price.node_bytes, device, node);
    const double device_s = per_node == 1 ? 0 : price.device_bytes / c->inside.bytes_per_s;
    const double node_s = price.node_bytes / c->between.bytes_per_s;
    assert_true(price.busiest_bytes == (node_s > device_s ? price.node_bytes : price.device_bytes));
}

static void ports_carry_what_messages_add_up_to(void **state)
{
    (void)state;
    for (int64_t per_node = 1; per_node <= 20; per_node++) {
        const ech__cluster c = nodes_of(per_node);
        for (int64_t n = 2; n <= 150; n += 1 + n / 40) {
            for (size_t a = 0; a < ALGORITHMS; a++)
                check_bytes(&c, algorithms[a], n);
        }
    }
    const int64_t odd[][2] = {{255, 7}, {256, 8}, {250, 17}, {192, 9}, {256, 33}, {131, 5}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const ech__cluster c = nodes_of(odd[i][1]);
        check_bytes(&c, ECH__ALGORITHM_HALVING, odd[i][0]);
        check_bytes(&c, ECH__ALGORITHM_TREE, odd[i][0]);
    }
}

/* ---- every message simulated ---- */

/* How far a price may be from the simulation. Rings and trees are exact. Where nodes are not full, or messages of a device
 * overlap, devices get out of step, and formulas have no such thing. */
static double tolerance(ech__algorithm a, int64_t n, int64_t per_node)
{
    const bool regular = (n & (n - 1)) == 0 && (per_node & (per_node - 1)) == 0;
    if (a == ECH__ALGORITHM_RING || a == ECH__ALGORITHM_TREE)
        return 1e-4;
    if (a == ECH__ALGORITHM_HALVING)
        return regular ? 1e-4 : HALVING_OFF;
    return 0.1;
}

static void check_simulated(const ech__cluster *c, ech__algorithm a, int64_t n, int64_t bytes)
{
    const double price = ech__price_allreduce(c, a, n, bytes).seconds;
    const double wanted = simulate_allreduce(c, a, n, bytes);
    if (!(fabs(price / wanted - 1) <= tolerance(a, n, c->devices_per_node)))
        fail_msg("%s of %lld bytes on %lld devices, %lld per node, takes %.6g us, not %.6g",
                 ech__algorithm_name(a), (long long)bytes, (long long)n,
                 (long long)c->devices_per_node, wanted * 1e6, price * 1e6);
}

static void closed_forms_are_what_messages_take(void **state)
{
    (void)state;
    const int64_t per_node[] = {1, 2, 4, 5, 8, 64}, sizes[] = {4096, 1 << 20, 44700000};
    for (int i = 0; i < 6; i++) {
        ech__cluster c = nodes_of(per_node[i]);
        c.inside.bytes_per_s = 12e9;
        c.between.bytes_per_s = 12.5e9;
        for (int64_t n = 2; n <= 64; n++) {
            for (size_t a = 0; a < ALGORITHMS; a++) {
                /* Hundreds of messages at once take long to simulate. */
                if (algorithms[a] < ECH__ALGORITHM_HIERARCHICAL ||
                    (per_node[i] <= 8 && n <= 12 * per_node[i]) || n <= 12)
                    check_simulated(&c, algorithms[a], n, sizes[n % 3]);
            }
        }
    }
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
        assert_true(p.seconds >= 8 * ALPHA && p.busiest_bytes == 0);
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
                for (size_t a = 0; a < ALGORITHMS; a++)
                    least = fmin(least, ech__price_allreduce(&c, algorithms[a], n, bytes).seconds);
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

static double cpu_seconds(int64_t devices)
{
    const ech__cluster c = nodes_of(8);
    const clock_t start = clock();
    for (int64_t i = 0; i < 2000; i++)
        ech__price_allreduce(&c, ECH__ALGORITHM_BEST, devices + i % 8, 1 << 20);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* A price takes as long for millions of devices as for dozens, but for the logarithm. */
static void a_price_takes_no_longer_for_more_devices(void **state)
{
    (void)state;
    double few = 0, many = 0;
    for (int i = 0; i < 5; i++) {
        few += cpu_seconds(60);
        many += cpu_seconds(60000000);
    }
    assert_true(many < 20 * few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_node),
        cmocka_unit_test(over_nodes),
        cmocka_unit_test(every_message_costs),
        cmocka_unit_test(a_device_cannot_send_faster_than_its_port),
        cmocka_unit_test(owners_share_the_port_of_their_node),
        cmocka_unit_test(ports_carry_what_messages_add_up_to),
        cmocka_unit_test(closed_forms_are_what_messages_take),
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
        cmocka_unit_test(a_price_takes_no_longer_for_more_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
