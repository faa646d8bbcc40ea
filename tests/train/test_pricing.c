/* Prices from costs that are made up, so that they can be computed by hand; and the file that keeps costs. */
#include "support/cmocka_first.h"
#include "support/temp_dir.h"
#include "train/advise.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 32, DEPTH = 2 };
/* Forward and backward operators take FIXED + batch * EACH alone, and twice as long beside another; optimizers UPDATE. */
static const double FIXED = 1e-3, EACH = 1e-4, UPDATE = 2e-3, OVERHEAD = 5e-4;

typedef struct fixture {
    ech_ctx *ctx;
    ech__costs *costs;
    ech__run_config config;
    int nforward, nbackward, nupdates; /* operators of the graph */
} fixture;

static bool is_update(const ech__op_cost *op)
{
    return !strcmp(op->phase, "optimizer");
}

/* Operators as a real training has them; only their times are made up. */
static ech_status operators_of(fixture *f, ech__step_cost *cost)
{
    ech__costs *real;
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, 2);
    ECH_TRY(ech__costs_open(f->ctx, NULL, "here", &real));
    const ech_status status = ech__costs_measure(f->ctx, real, &single, NULL, 0.05);
    if (status == ECH_OK) {
        const ech__step_cost *found = ech__costs_find(real, ech__costs_key_of(&single).s, 2, 1);
        assert_non_null(found);
        assert_true(found->step_s > 0 && found->steps >= 5);
        cost->nops = found->nops;
        cost->ops = calloc(found->nops, sizeof *cost->ops);
        for (size_t i = 0; i < found->nops; i++) {
            cost->ops[i] = found->ops[i];
            cost->ops[i].op = strdup(found->ops[i].op);
            cost->ops[i].name = strdup(found->ops[i].name);
            cost->ops[i].phase = strdup(found->ops[i].phase);
            assert_true(found->ops[i].median_s >= found->ops[i].low_s &&
                        found->ops[i].median_s <= found->ops[i].high_s);
        }
        memcpy(cost->memory, found->memory, sizeof cost->memory);
    }
    ech__costs_close(real);
    return status;
}

static void put_batch(fixture *f, ech__step_cost *cost, int64_t batch, int beside)
{
    cost->batch = batch;
    cost->beside = beside;
    cost->steps = 9;
    cost->overhead_s = OVERHEAD;
    cost->step_s = OVERHEAD;
    for (size_t i = 0; i < cost->nops; i++) {
        cost->ops[i].median_s =
            is_update(&cost->ops[i]) ? UPDATE : (FIXED + EACH * (double)batch) * beside;
        cost->step_s += cost->ops[i].median_s;
    }
    memset(cost->memory, 0, sizeof cost->memory);
    cost->memory[ECH__MEMORY_ACTIVATIONS] = 1000 * batch;
    cost->memory[ECH__MEMORY_WEIGHTS] = 5000;
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, batch);
    assert_int_equal(ech__costs_put(f->costs, ech__costs_key_of(&single).s, cost), ECH_OK);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    f->config = ech__run_defaults();
    f->config.model = (ech__model_options){ECH__MODEL_LINEAR, DIM, DEPTH};
    f->config.train.threads = 1;
    f->config.train.tune = false;
    assert_int_equal(ech__costs_open(f->ctx, NULL, "here", &f->costs), ECH_OK);
    ech__step_cost cost = {0};
    if (operators_of(f, &cost) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    for (size_t i = 0; i < cost.nops; i++) {
        f->nforward += !strcmp(cost.ops[i].phase, "forward");
        f->nbackward += !strcmp(cost.ops[i].phase, "backward");
        f->nupdates += is_update(&cost.ops[i]);
    }
    for (int64_t batch = 8; batch <= 32; batch *= 4) {
        put_batch(f, &cost, batch, 1);
        put_batch(f, &cost, batch, 4);
    }
    for (size_t i = 0; i < cost.nops; i++) {
        free((char *)cost.ops[i].op);
        free((char *)cost.ops[i].name);
        free((char *)cost.ops[i].phase);
    }
    free(cost.ops);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ech__costs_close(f->costs);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static void close_to(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%.12g instead of %.12g", got, wanted);
}

static ech__pricing *pricing_of(fixture *f, const ech__cluster *cluster)
{
    ech__pricing *p;
    const ech__pricing_options o = {.config = &f->config,
                                    .strategy = ECH__STRATEGY_DDP,
                                    .costs = f->costs,
                                    .cluster = cluster,
                                    .algorithm = ECH__ALGORITHM_RING,
                                    .beside = cluster ? 1 : 4};
    if (ech__pricing_create(f->ctx, &o, &p) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return p;
}

static ech__price price_at(fixture *f, ech__pricing *p, int64_t devices, int64_t global)
{
    ech__price price;
    if (ech__pricing_at(p, devices, global, &price) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return price;
}

static double computing(const fixture *f, double batch)
{
    return (f->nforward + f->nbackward) * (FIXED + EACH * batch);
}

/* ---- one device ---- */

static void test_batches(void **state)
{
    fixture *f = *state;
    ech__cluster cluster = ech__cluster_defaults();
    ech__pricing *p = pricing_of(f, &cluster);
    const int64_t batches[] = {8, 32, 20, 100, 2};
    for (int i = 0; i < 5; i++) { /* measured twice, between, above and below */
        const ech__price price = price_at(f, p, 1, batches[i]);
        close_to(price.step.compute_s, computing(f, (double)batches[i]) + f->nupdates * UPDATE);
        close_to(price.step.step_s, price.step.compute_s + OVERHEAD);
        assert_int_equal(price.measured, i < 2);
        assert_int_equal(price.between, i >= 2);
        assert_int_equal(price.memory, 5000 + 1000 * batches[i]);
    }
    ech__pricing_destroy(p);
}

/* ---- given links: every device has memory of its own ---- */

static void test_links(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e6, .latency_s = 1e-3},
                                  .between = {.bytes_per_s = 1e6, .latency_s = 1e-3}};
    ech__pricing *p = pricing_of(f, &cluster);
    const int64_t bytes = 4 * DEPTH * (DIM * DIM + DIM);
    assert_int_equal(ech__pricing_params(p), bytes / 4);
    assert_int_equal(ech__pricing_exchanged(p), bytes);
    const ech__price four = price_at(f, p, 4, 4 * 8);
    const double ring = 6 * (1e-3 + (double)bytes / 4 / 1e6);
    close_to(four.step.comm_s, ring);
    close_to(four.step.compute_s, computing(f, 8) + f->nupdates * UPDATE);
    close_to(four.step.step_s, four.step.compute_s + ring + OVERHEAD); /* one bucket, at the end */
    close_to(four.step.exposed_s, ring);
    close_to(four.samples_per_s, 32 / four.step.step_s);
    close_to(four.step.busiest_bytes, 2 * 3 * (double)bytes / 4);
    assert_false(four.measured);
    /* The device with most samples counts. */
    assert_int_equal(price_at(f, p, 4, 30).batch, 8);
    ech__pricing_destroy(p);
}

static void test_buckets_hide(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e9, .latency_s = 1e-6},
                                  .between = {.bytes_per_s = 1e9, .latency_s = 1e-6}};
    f->config.train.bucket_bytes = 1;
    ech__pricing *p = pricing_of(f, &cluster);
    const ech__price price = price_at(f, p, 2, 2 * 32);
    assert_true(price.step.hidden_s > 0);
    assert_true(price.step.exposed_s > 0);
    assert_true(price.step.exposed_s < price.step.comm_s);
    close_to(price.step.hidden_s + price.step.exposed_s, price.step.comm_s);
    f->config.train.bucket_bytes = 25 << 20;
    ech__pricing_destroy(p);
}

/* ---- micro-steps, and gradients in bf16 ---- */

static void test_micro_steps(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e6, .latency_s = 1e-3},
                                  .between = {.bytes_per_s = 1e6, .latency_s = 1e-3}};
    const int64_t bytes = 4 * DEPTH * (DIM * DIM + DIM), largest = 4 * DIM * DIM;
    ech__costs_machine(f->costs)->add =
        (ech__size_costs){.count = 1, .bytes = {bytes}, .seconds = {7e-3}};
    ech__pricing *once = pricing_of(f, &cluster);
    const ech__price one = price_at(f, once, 4, 4 * 8), alone = price_at(f, once, 1, 8);
    f->config.train.accum = 5;
    ech__pricing *p = pricing_of(f, &cluster);
    const ech__price five = price_at(f, p, 4, 4 * 8), five_alone = price_at(f, p, 1, 8);
    const double more = 4 * (computing(f, 8) + 7e-3);
    close_to(five.step.compute_s, one.step.compute_s + more);
    close_to(five.step.step_s, one.step.step_s + more + 4 * OVERHEAD);
    close_to(five_alone.step.step_s, alone.step.step_s + more + 4 * OVERHEAD);
    close_to(five.step.comm_s, one.step.comm_s); /* exchanged once */
    assert_int_equal(five.global, 5 * 4 * 8);
    close_to(five.samples_per_s, 160 / five.step.step_s);
    assert_int_equal(five.memory, one.memory + largest);
    assert_true(alone.measured && !five_alone.measured);
    f->config.train.accum = 1;
    ech__costs_machine(f->costs)->add = (ech__size_costs){.count = 0};
    ech__pricing_destroy(once);
    ech__pricing_destroy(p);
}

static void test_gradients_in_bf16(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e6, .latency_s = 1e-3},
                                  .between = {.bytes_per_s = 1e6, .latency_s = 1e-3}};
    const int64_t params = DEPTH * (DIM * DIM + DIM);
    /* A copy takes a second for a GB, whatever its size. */
    ech__costs_machine(f->costs)->copy =
        (ech__size_costs){.count = 2, .bytes = {1, 1000000}, .seconds = {1e-9, 1e-3}};
    f->config.train.grad_dtype = ECH_BF16;
    ech__pricing *p = pricing_of(f, &cluster);
    assert_int_equal(ech__pricing_exchanged(p), 2 * params);
    const ech__price four = price_at(f, p, 4, 4 * 8), alone = price_at(f, p, 1, 8);
    const double ring = 6 * (1e-3 + 2 * (double)params / 4 / 1e6);
    close_to(four.step.comm_s, ring);
    close_to(four.step.compute_s,
             computing(f, 8) + f->nupdates * UPDATE + 2 * 3 * (double)params * 1e-9);
    close_to(alone.step.compute_s, computing(f, 8) + f->nupdates * UPDATE);
    assert_int_equal(four.memory, alone.memory + 2 * params);
    f->config.train.grad_dtype = ECH_F32;
    ech__costs_machine(f->costs)->copy = (ech__size_costs){.count = 0};
    ech__pricing_destroy(p);
}

/* ---- this machine: devices share its memory ---- */

static void test_contention(void **state)
{
    fixture *f = *state;
    ech__machine_costs *m = ech__costs_machine(f->costs);
    m->allreduce = (ech__size_costs){.count = 2, .bytes = {1000, 2000}, .seconds = {2e-6, 2.5e-6}};
    m->exchange = (ech__size_costs){.count = 2, .bytes = {1000, 2000}, .seconds = {3e-6, 4e-6}};
    ech__link link;
    assert_true(ech__costs_link(f->costs, 2000, false, &link));
    close_to(link.bytes_per_s, 2e9);
    close_to(link.latency_s, 0.75e-6);
    assert_true(ech__costs_link(f->costs, 2000, true, &link));
    close_to(link.bytes_per_s, 1e9);
    close_to(link.latency_s, 1e-6);
    ech__pricing *p = pricing_of(f, NULL);
    /* Four side by side take four times as long; two a third of the way, eight no longer than four. */
    const struct {
        int64_t devices;
        double factor;
    } rows[] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {8, 4}};
    for (int i = 0; i < 5; i++) {
        const int64_t n = rows[i].devices;
        const ech__price price = price_at(f, p, n, n * 8);
        /* Each updates its shard of the parameters. */
        const double update = f->nupdates * UPDATE / (double)n;
        close_to(price.step.compute_s, computing(f, 8) * rows[i].factor + update);
        close_to(price.step.hidden_s + 1, 1);
        assert_true(n == 1 ? price.step.exposed_s == 0 : price.step.exposed_s > 0);
    }
    const ech__price two = price_at(f, p, 2, 16);
    const double bytes = (double)ech__pricing_exchanged(p);
    const ech__cluster *c = ech__pricing_cluster(p);
    /* A/2 (1 + s + s/N) with one array that changes, and the report behind the step. */
    const double exchange = 2 * c->inside.latency_s + bytes / c->inside.bytes_per_s;
    assert_true(two.step.exposed_s >= exchange * (1 - 1e-6));
    /* The report comes behind it. */
    assert_true(two.step.exposed_s <= exchange + 2 * c->inside.latency_s + 1e-6);
    ech__pricing_destroy(p);
}

static void test_no_contention(void **state)
{
    fixture *f = *state;
    ech__pricing *p;
    const ech__pricing_options o = {.config = &f->config, .costs = f->costs, .beside = 7};
    assert_int_equal(ech__pricing_create(f->ctx, &o, &p), ECH_OK);
    assert_int_equal(ech__pricing_beside(p), 1); /* seven side by side were never measured */
    const ech__price two = price_at(f, p, 2, 16);
    close_to(two.step.compute_s, computing(f, 8) + f->nupdates * UPDATE / 2);
    ech__pricing_destroy(p);
}

/* ---- DataParallel ---- */

enum { COPIES = 4 };

/* Operators and phases as a real training has them, with times that are made up: operators take 1 ms, twice that beside others. */
static void put_dp(fixture *f, int64_t batch, int beside)
{
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DP, batch);
    const ech__costs_key key = ech__costs_key_of(&single);
    if (ech__costs_measure(f->ctx, f->costs, &single, NULL, 0.05) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    ech__step_cost cost = *ech__costs_find(f->costs, key.s, batch, 1);
    assert_true(cost.hand_over_s > 0 && cost.phase_s[ECH__DP_FORWARD] > 0);
    assert_true(cost.loader_s == 0); /* vectors are made once */
    cost.beside = beside;
    cost.overhead_s = OVERHEAD;
    cost.hand_over_s = 3e-5;
    cost.loader_s = 1e-4 * (double)batch;
    for (int p = 0; p < ECH__DP_PHASES; p++)
        cost.phase_s[p] = 1e-5;
    for (size_t i = 0; i < cost.nops; i++)
        cost.ops[i].median_s = beside > 1 ? 2e-3 : 1e-3;
    assert_int_equal(ech__costs_put(f->costs, key.s, &cost), ECH_OK);
}

static void test_data_parallel(void **state)
{
    fixture *f = *state;
    ech__machine_costs *m = ech__costs_machine(f->costs);
    ech__pricing *p;
    put_dp(f, 64, COPIES);
    put_dp(f, 64, 1);
    m->step_job_s = 1e-4;
    m->part_job_s = 2e-4;
    const ech__pricing_options o = {
        .config = &f->config, .strategy = ECH__STRATEGY_DP, .costs = f->costs, .beside = COPIES};
    if (ech__pricing_create(f->ctx, &o, &p) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    const ech__price one = price_at(f, p, 1, 64), four = price_at(f, p, 4, 4 * 64);
    /* One device hands over as it was measured, and leaves the loader a core. */
    close_to(one.overhead_s, OVERHEAD + 3e-5);
    close_to(one.step.exposed_s, 3e-5);
    /* Four have all cores: each loses a fourth of what loading of 256 samples takes. */
    close_to(four.overhead_s, OVERHEAD + 1e-4 + 2 * 2e-4 + 1e-4 * 256 / 4);
    close_to(four.step.step_s, four.step.compute_s + four.step.exposed_s + four.overhead_s);
    /* Small batches are loaded many at a time: most steps see nothing of it. */
    const ech__price small = price_at(f, p, 4, 4 * 8);
    close_to(small.overhead_s, OVERHEAD + 1e-4 + 2 * 2e-4);
    /* Only device 0 updates, while nobody else is at work. */
    close_to(four.step.compute_s - 4 * 1e-5 - 2 * (one.step.compute_s - 1e-5), -1e-3 * f->nupdates);
    ech__pricing_destroy(p);
}

/* ---- questions ---- */

static void test_break_even(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e9, .latency_s = 1e-3},
                                  .between = {.bytes_per_s = 1e9, .latency_s = 1e-3}};
    ech__pricing *p = pricing_of(f, &cluster);
    ech__break_even half;
    const ech__load load = {.batch = 8};
    assert_int_equal(ech__find_break_even(p, &load, &half), ECH_OK);
    assert_true(half.devices > 2);
    for (int64_t n = half.devices - 1; n <= half.devices; n++) {
        const ech__price price = price_at(f, p, n, n * 8);
        assert_int_equal(price.step.exposed_s >= price.step.step_s / 2, n == half.devices);
    }
    assert_int_equal(half.batch, 0); /* two messages of 1 ms against the optimizer alone */
    ech__pricing_destroy(p);
    const ech__cluster slow = {.inside = {.bytes_per_s = 1e9, .latency_s = 20e-3},
                               .between = {.bytes_per_s = 1e9, .latency_s = 20e-3}};
    p = pricing_of(f, &slow);
    assert_int_equal(ech__find_break_even(p, &load, &half), ECH_OK);
    assert_true(half.batch > 0);
    for (int64_t b = half.batch; b <= half.batch + 1; b++) {
        const ech__price price = price_at(f, p, 2, 2 * b);
        assert_int_equal(price.step.exposed_s >= price.step.step_s / 2, b == half.batch);
    }
    ech__pricing_destroy(p);
}

static void test_advice(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e9, .latency_s = 1e-4},
                                  .between = {.bytes_per_s = 1e9, .latency_s = 1e-4}};
    ech__pricing *p = pricing_of(f, &cluster);
    ech__advice advice;
    const ech__load load = {.batch = 8};
    assert_int_equal(ech__advise(p, &load, 100, 0.5, 0, &advice), ECH_OK);
    assert_true(advice.possible);
    assert_true(advice.best.efficiency >= 0.5);
    assert_int_equal(advice.best.price.batch, 32); /* larger ones always pay here */
    ech__scaled s;
    assert_int_equal(ech__scale(p, &load, advice.devices, &s), ECH_OK);
    assert_true(s.efficiency >= 0.5);
    /* A device without memory for 32 samples takes 8. */
    assert_int_equal(ech__advise(p, &load, 100, 0.5, 5000 + 1000 * 8, &advice), ECH_OK);
    assert_int_equal(advice.best.price.batch, 8);
    assert_int_equal(ech__advise(p, &load, 100, 1.1, 0, &advice), ECH_OK);
    assert_false(advice.possible);
    assert_int_equal(advice.devices, 1);
    ech__pricing_destroy(p);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    ech__cluster cluster = ech__cluster_defaults();
    ech__pricing *p = pricing_of(f, &cluster);
    ech__price price;
    assert_int_equal(ech__pricing_at(p, 0, 8, &price), ECH_E_INVALID);
    assert_int_equal(ech__pricing_at(p, 1000001, 1000001, &price), ECH_E_INVALID);
    assert_int_equal(ech__pricing_at(p, 9, 8, &price), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(f->ctx), "8 samples a step for 9 devices"));
    ech__pricing_destroy(p);
    fixture other = *f;
    other.config.model.dim = 64;
    const ech__pricing_options o = {
        .config = &other.config, .costs = f->costs, .cluster = &cluster, .beside = 1};
    assert_int_equal(ech__pricing_create(f->ctx, &o, &p), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(f->ctx), "linear 64x2"));
}

/* ---- the file ---- */

static void test_file(void **state)
{
    fixture *f = *state;
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "costs.json", path);
    ech__costs *a, *b;
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, 8);
    const ech__costs_key key = ech__costs_key_of(&single);
    const ech__step_cost *cost = ech__costs_find(f->costs, key.s, 8, 4), *read;
    assert_int_equal(ech__costs_open(f->ctx, path, "here", &a), ECH_OK);
    assert_int_equal(ech__costs_put(a, key.s, cost), ECH_OK);
    ech__costs_machine(a)->copy =
        (ech__size_costs){.count = 2, .bytes = {10, 20}, .seconds = {1, 3}};
    assert_int_equal(ech__costs_save(a), ECH_OK);
    ech__costs_close(a);
    /* Another machine does not see them, and keeps them. */
    assert_int_equal(ech__costs_open(f->ctx, path, "there", &b), ECH_OK);
    assert_null(ech__costs_find(b, key.s, 8, 4));
    assert_int_equal(ech__costs_save(b), ECH_OK);
    ech__costs_close(b);
    assert_int_equal(ech__costs_open(f->ctx, path, "here", &a), ECH_OK);
    read = ech__costs_find(a, key.s, 8, 4);
    assert_non_null(read);
    assert_null(ech__costs_find(a, key.s, 8, 1));
    assert_int_equal(read->nops, cost->nops);
    for (size_t i = 0; i < cost->nops; i++) {
        assert_string_equal(read->ops[i].op, cost->ops[i].op);
        assert_string_equal(read->ops[i].name, cost->ops[i].name);
        assert_true(read->ops[i].median_s == cost->ops[i].median_s);
    }
    assert_true(read->step_s == cost->step_s && read->overhead_s == cost->overhead_s);
    assert_memory_equal(read->memory, cost->memory, sizeof read->memory);
    const ech__size_costs *copy = &ech__costs_machine(a)->copy;
    close_to(ech__size_seconds(copy, 5), 1);
    close_to(ech__size_seconds(copy, 15), 2);
    close_to(ech__size_seconds(copy, 40), 6);
    ech__costs_close(a);
    temp_dir_destroy(&dir);
}

static void test_bad_files(void **state)
{
    fixture *f = *state;
    static const char *const texts[] = {
        "{}",
        "{\"version\": 3, \"machines\": {}}",
        "{\"version\": 2}",
        "{\"version\": 2, \"machines\": {\"here\": {}}}",
        "{\"version\": 2, \"machines\": {\"here\": {\"steps\": {\"x\": [{}]}}}}",
        "{\"version\": 2, \"machines\": {\"here\": {\"steps\": {}, \"copy\": [{\"bytes\": 1}]}}}",
        "{\"version\": 2, \"machines\": {\"here\": {\"steps\": {}, \"copy\": "
        "[{\"bytes\": 1, \"seconds\": -1}]}}}",
        "no json",
    };
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "costs.json", path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ech__costs *costs;
        assert_int_equal(ech__file_write(f->ctx, path, texts[i], strlen(texts[i])), ECH_OK);
        assert_true(ech__costs_open(f->ctx, path, "here", &costs) < 0);
        assert_null(costs);
        assert_non_null(strstr(ech_ctx_error(f->ctx), "delete it to measure anew"));
        assert_non_null(strstr(ech_ctx_error(f->ctx), path));
    }
    /* One of an earlier version is no mistake of the user's: there is nothing in it. */
    static const char old[] = "{\"version\": 1, \"machines\": {\"here\": {}}}";
    ech__costs *costs;
    assert_int_equal(ech__file_write(f->ctx, path, old, strlen(old)), ECH_OK);
    assert_int_equal(ech__costs_open(f->ctx, path, "here", &costs), ECH_OK);
    assert_int_equal(ech__costs_machine(costs)->copy.count, 0);
    ech__costs_close(costs);
    temp_dir_destroy(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_buckets_hide),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_gradients_in_bf16),
        cmocka_unit_test(test_contention),
        cmocka_unit_test(test_no_contention),
        cmocka_unit_test(test_break_even),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_data_parallel),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
