/* Prices from costs that are made up, so that they can be computed by hand; and the file that keeps costs. */
#include "support/cmocka_first.h"
#include "support/temp_dir.h"
#include "predict/advise.h"
#include "predict/capacity.h"

#include "base/file/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 32, DEPTH = 2 };
/* Forward and backward operators take FIXED + batch * EACH alone, and twice as long beside another; optimizers UPDATE. */
static const double FIXED = 1e-3, EACH = 1e-4, UPDATE = 2e-3, OVERHEAD = 5e-4;
static const double LOW = 0.9, HIGH = 1.2; /* middle half of the steps, of the median */

typedef struct fixture {
    ech_ctx *ctx;
    char log[512]; /* the last line */
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
    cost->low_s = LOW * cost->step_s;
    cost->high_s = HIGH * cost->step_s;
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, batch);
    assert_int_equal(ech__costs_put(f->costs, ech__costs_key_of(&single).s, cost), ECH_OK);
}

static void keep_line(void *user, const char *line)
{
    fixture *f = user;
    snprintf(f->log, sizeof f->log, "%s", line);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    const ech_ctx_options options = {.log = keep_line, .log_user = f};
    assert_int_equal(ech_ctx_create(&options, &f->ctx), ECH_OK);
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

static void put_dp(fixture *f, int64_t batch, int beside);
static ech__pricing *layers_pricing(fixture *f, ech__strategy strategy,
                                    const ech__cluster *cluster);

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
    }
    ech__pricing_destroy(p);
}

/* A larger batch takes no less time, and no more per sample. */
static void test_intervals(void **state)
{
    fixture *f = *state;
    ech__cluster cluster = ech__cluster_defaults();
    ech__pricing *p = pricing_of(f, &cluster);
    const double at8 = price_at(f, p, 1, 8).step.step_s, at32 = price_at(f, p, 1, 32).step.step_s;
    static const struct {
        int64_t batch, from;
        double extrapolated;
    } cases[] = {{8, 0, 1}, {32, 0, 1}, {20, 0, 1}, {128, 32, 4}, {33, 32, 33 / 32.}, {2, 8, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double batch = (double)cases[i].batch;
        const ech__price price = price_at(f, p, 1, cases[i].batch);
        const double low = batch < 8    ? at8 * batch / 8
                           : batch < 32 ? fmax(at8, at32 * batch / 32)
                                        : at32;
        const double high = batch <= 8    ? at8
                            : batch <= 32 ? fmin(at32, at8 * batch / 8)
                                          : at32 * batch / 32;
        close_to(price.low_s, LOW * low);
        close_to(price.high_s, HIGH * high);
        assert_true(price.low_s < price.step.step_s && price.step.step_s < price.high_s);
        assert_int_equal(price.from, cases[i].from);
        close_to(price.extrapolated, cases[i].extrapolated);
    }
    /* The exchange over given links is no part of the doubt. */
    const ech__price alone = price_at(f, p, 1, 128), two = price_at(f, p, 2, 256);
    close_to(two.high_s - two.step.step_s, alone.high_s - alone.step.step_s);
    ech__pricing_destroy(p);
}

/* The first device's part of what was measured is what was measured, whatever the operators' medians add up to. */
static void what_was_measured_is_the_price(void **state)
{
    fixture *f = *state;
    ech__cluster cluster = ech__cluster_defaults();
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, 8);
    const char *key = ech__costs_key_of(&single).s;
    const ech__step_cost kept = *ech__costs_find(f->costs, key, 8, 1);
    for (int k = 0; k < 2; k++) {
        ech__step_cost cost = kept;
        cost.step_s = k ? kept.step_s * 3 / 4 : kept.step_s * 5 / 4;
        cost.overhead_s += cost.step_s - kept.step_s;
        assert_int_equal(ech__costs_put(f->costs, key, &cost), ECH_OK);
        ech__pricing *p = pricing_of(f, &cluster);
        const ech__price one = price_at(f, p, 1, 8);
        assert_true(one.measured && one.step.step_s == cost.step_s);
        close_to(one.step.compute_s + one.other_s, cost.step_s);
        assert_true(one.other_s >= 0);
        ech__pricing_destroy(p);
    }
    assert_int_equal(ech__costs_put(f->costs, key, &kept), ECH_OK);
}

static void parts_add_up(void **state)
{
    fixture *f = *state;
    const ech__cluster slow = {.inside = {.bytes_per_s = 1e6, .latency_s = 1e-3},
                               .between = {.bytes_per_s = 1e6, .latency_s = 1e-3}};
    f->config.train.pipeline.micro_batches = 0;
    for (int k = 0; k < 2 * ECH__STRATEGY_COUNT; k++) {
        const ech__strategy strategy = (ech__strategy)(k / 2);
        const ech__pricing_options o = {.config = &f->config,
                                        .strategy = strategy,
                                        .costs = f->costs,
                                        .cluster = k % 2 ? &slow : NULL,
                                        .beside = 4};
        ech__pricing *p;
        if (strategy == ECH__STRATEGY_DP) {
            put_dp(f, 16, 4);
            put_dp(f, 16, 1);
        }
        for (int accum = 1; accum <= (strategy == ECH__STRATEGY_DP ? 1 : 3); accum++) {
            f->config.train.accum = accum;
            if (ech__pricing_create(f->ctx, &o, &p) < 0)
                fail_msg("%s", ech_ctx_error(f->ctx));
            for (int64_t devices = 1; devices <= 2; devices++) {
                const ech__price price = price_at(f, p, devices, 32);
                const ech__priced_step *s = &price.step;
                close_to(s->compute_s + s->exposed_s + price.wait_s + price.other_s, s->step_s);
                assert_true(s->compute_s > 0 && s->exposed_s >= 0 && price.wait_s >= 0 &&
                            price.other_s >= 0);
            }
            ech__pricing_destroy(p);
        }
        f->config.train.accum = 1;
    }
}

/* ---- which batches are measured ---- */

static bool fits_up_to(void *user, int64_t batch)
{
    return batch <= *(const int64_t *)user;
}

static void a_step_of(fixture *f, ech__costs *costs, int64_t batch, double step_s)
{
    ech__step_cost cost = {.batch = batch, .beside = 1, .step_s = step_s};
    (void)f;
    assert_int_equal(ech__costs_put(costs, "k", &cost), ECH_OK);
}

static void batches_are_measured_within_a_budget(void **state)
{
    fixture *f = *state;
    ech__costs *costs;
    int64_t room = 1000000;
    ech__costs_budget b = {
        .seconds = 1, .most_s = 60, .guess_s = 1, .fits = fits_up_to, .user = &room};
    assert_int_equal(ech__costs_open(f->ctx, NULL, "here", &costs), ECH_OK);
    /* Nothing is known: as large as the guess allows, and one sample at least. */
    const int64_t first = ech__costs_next_batch(costs, "k", 64, &b);
    assert_true(first >= 2 && first < 64 && ech__costs_measuring(1, (double)first) <= 60);
    b.guess_s = 1000;
    assert_int_equal(ech__costs_next_batch(costs, "k", 64, &b), 1);
    b.guess_s = 1e-6;
    assert_int_equal(ech__costs_next_batch(costs, "k", 64, &b), 64);
    room = 20; /* what does not fit is not tried */
    assert_int_equal(ech__costs_next_batch(costs, "k", 64, &b), 16);
    room = 1000000;
    /* A step that does not grow with the batch is found to be quick on the way. */
    a_step_of(f, costs, 2, 0.5);
    int64_t last = 2, next;
    while ((next = ech__costs_next_batch(costs, "k", 512, &b)) != 0) {
        assert_true(next > last && next <= 512);
        assert_true(ech__costs_measuring(1, 0.5 * (double)next / (double)last) <= 60);
        a_step_of(f, costs, next, 0.5);
        last = next;
    }
    assert_int_equal(last, 512);
    assert_int_equal(ech__costs_next_batch(costs, "k", 512, &b), 0);
    assert_int_equal(ech__costs_next_batch(costs, "k", 700, &b), 0); /* as good as known */
    /* One that does is not measured for more than a minute. */
    a_step_of(f, costs, 512, 6);
    assert_int_equal(ech__costs_next_batch(costs, "k", 4096, &b), 0);
    ech__costs_close(costs);
}

/* ---- memory ---- */

static void memory_is_that_of_the_plan(void **state)
{
    fixture *f = *state;
    static const int64_t batches[] = {2, 24, 64, 1000};
    ech__cluster cluster = ech__cluster_defaults();
    for (int s = 0; s < ECH__STRATEGY_COUNT; s++) {
        for (int64_t devices = 1; devices <= 2; devices++) {
            for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
                f->config.train.pipeline.micro_batches = s == ECH__STRATEGY_PIPELINE ? 2 : 0;
                ech__run_config c = f->config;
                ech__capacity capacity;
                ech__need need;
                int64_t bytes;
                const bool ranks = s == ECH__STRATEGY_DDP;
                ech__pricing *p = layers_pricing(f, (ech__strategy)s, &cluster);
                assert_int_equal(ech__pricing_memory(
                                     p, devices, ranks ? devices * batches[i] : batches[i], &bytes),
                                 ECH_OK);
                c.train.dp.devices = s == ECH__STRATEGY_DP ? (int)devices : 0;
                c.train.pipeline.devices = s >= ECH__STRATEGY_MP && devices > 1 ? (int)devices : 0;
                c.train.pipeline.micro_batches =
                    c.train.pipeline.devices ? c.train.pipeline.micro_batches : 0;
                c.train.batch = batches[i];
                assert_int_equal(
                    ech__capacity_init(f->ctx, &c, ranks ? (int)devices : 1, &capacity), ECH_OK);
                assert_int_equal(ech__capacity_need(&capacity, batches[i], &need), ECH_OK);
                assert_true(need.total > 0);
                assert_int_equal(bytes, need.total);
                ech__pricing_destroy(p);
            }
        }
    }
    f->config.train.pipeline.micro_batches = 0;
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
    f->config.train.ddp.bucket_bytes = 1;
    ech__pricing *p = pricing_of(f, &cluster);
    const ech__price price = price_at(f, p, 2, 2 * 32);
    assert_true(price.step.hidden_s > 0);
    assert_true(price.step.exposed_s > 0);
    assert_true(price.step.exposed_s < price.step.comm_s);
    close_to(price.step.hidden_s + price.step.exposed_s, price.step.comm_s);
    f->config.train.ddp.bucket_bytes = 25 << 20;
    ech__pricing_destroy(p);
}

/* ---- micro-steps, and gradients in bf16 ---- */

static void test_micro_steps(void **state)
{
    fixture *f = *state;
    const ech__cluster cluster = {.inside = {.bytes_per_s = 1e6, .latency_s = 1e-3},
                                  .between = {.bytes_per_s = 1e6, .latency_s = 1e-3}};
    ech__pricing *once = pricing_of(f, &cluster);
    const ech__price one = price_at(f, once, 4, 4 * 8), alone = price_at(f, once, 1, 8);
    f->config.train.accum = 5;
    ech__pricing *p = pricing_of(f, &cluster);
    const ech__price five = price_at(f, p, 4, 4 * 8), five_alone = price_at(f, p, 1, 8);
    /* A sum moves as many arrays as an update without states. */
    const double more = 4 * (computing(f, 8) + f->nupdates * UPDATE);
    close_to(five.step.compute_s, one.step.compute_s + more);
    close_to(five.step.step_s, one.step.step_s + more + 4 * OVERHEAD);
    close_to(five_alone.step.step_s, alone.step.step_s + more + 4 * OVERHEAD);
    close_to(five.step.comm_s, one.step.comm_s); /* exchanged once */
    assert_int_equal(five.global, 5 * 4 * 8);
    close_to(five.samples_per_s, 160 / five.step.step_s);
    assert_true(alone.measured && !five_alone.measured);
    f->config.train.accum = 1;
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
    f->config.train.ddp.grad_dtype = ECH_BF16;
    ech__pricing *p = pricing_of(f, &cluster);
    assert_int_equal(ech__pricing_exchanged(p), 2 * params);
    const ech__price four = price_at(f, p, 4, 4 * 8), alone = price_at(f, p, 1, 8);
    const double ring = 6 * (1e-3 + 2 * (double)params / 4 / 1e6);
    close_to(four.step.comm_s, ring);
    close_to(four.step.compute_s,
             computing(f, 8) + f->nupdates * UPDATE + 2 * 3 * (double)params * 1e-9);
    close_to(alone.step.compute_s, computing(f, 8) + f->nupdates * UPDATE);
    f->config.train.ddp.grad_dtype = ECH_F32;
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
    /* With what device 0 does besides: scatter, gather, loss and scatter again. */
    cost.step_s = 1e-3 * (double)cost.nops + 4e-5 + OVERHEAD + cost.hand_over_s;
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
    int64_t bytes;
    assert_int_equal(ech__pricing_memory(p, 100, 100 * 8, &bytes), ECH_OK);
    assert_int_equal(ech__advise(p, &load, 100, 0.5, bytes, &advice), ECH_OK);
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
    assert_non_null(strstr(ech_ctx_error(f->ctx), "8 samples per step for 9 devices"));
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
        char *kept;
        size_t bytes;
        f->log[0] = 0;
        assert_int_equal(ech__file_write(f->ctx, path, texts[i], strlen(texts[i])), ECH_OK);
        assert_int_equal(ech__costs_open(f->ctx, path, "here", &costs), ECH_OK);
        assert_non_null(strstr(f->log, "delete it to measure anew"));
        assert_non_null(strstr(f->log, path));
        assert_int_equal(ech__costs_machine(costs)->copy.count, 0);
        ech__costs_machine(costs)->copy =
            (ech__size_costs){.count = 1, .bytes = {10}, .seconds = {1}};
        assert_true(ech__costs_save(costs) < 0); /* it is not ours to replace */
        ech__costs_close(costs);
        assert_int_equal(ech__file_read(f->ctx, path, 1000, &kept, &bytes), ECH_OK);
        assert_string_equal(kept, texts[i]);
        free(kept);
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

static void what_is_no_time_is_not_kept(void **state)
{
    fixture *f = *state;
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, 8);
    const ech__costs_key key = ech__costs_key_of(&single);
    const ech__step_cost good = *ech__costs_find(f->costs, key.s, 8, 1);
    const double bad[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ech__step_cost cost = good;
        cost.step_s = bad[i];
        assert_int_equal(ech__costs_put(f->costs, key.s, &cost), ECH_E_FORMAT);
        if (isfinite(bad[i]))
            continue;
        cost = good;
        cost.overhead_s = bad[i];
        assert_int_equal(ech__costs_put(f->costs, key.s, &cost), ECH_E_FORMAT);
        ech__op_cost op = good.ops[0];
        op.median_s = bad[i];
        cost = good;
        cost.ops = &op;
        cost.nops = 1;
        assert_int_equal(ech__costs_put(f->costs, key.s, &cost), ECH_E_FORMAT);
    }
    assert_true(ech__costs_find(f->costs, key.s, 8, 1)->step_s == good.step_s);
}

/* Two processes that have read the same file and measured different things. */
static void costs_of_several_are_merged(void **state)
{
    fixture *f = *state;
    const ech__run_config single = ech__pricing_single(&f->config, ECH__STRATEGY_DDP, 8);
    const ech__costs_key key = ech__costs_key_of(&single);
    ech__step_cost cost = *ech__costs_find(f->costs, key.s, 8, 1);
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "costs.json", path);
    ech__costs *a, *b;
    assert_int_equal(ech__costs_open(f->ctx, path, "here", &a), ECH_OK);
    assert_int_equal(ech__costs_open(f->ctx, path, "here", &b), ECH_OK);
    assert_int_equal(ech__costs_put(a, key.s, &cost), ECH_OK);
    ech__costs_machine(a)->copy = (ech__size_costs){.count = 1, .bytes = {10}, .seconds = {1}};
    cost.batch = 9;
    assert_int_equal(ech__costs_put(b, key.s, &cost), ECH_OK);
    ech__costs_machine(b)->add = (ech__size_costs){.count = 1, .bytes = {10}, .seconds = {2}};
    assert_int_equal(ech__costs_save(a), ECH_OK);
    assert_int_equal(ech__costs_save(b), ECH_OK);
    ech__costs_close(a);
    ech__costs_close(b);
    assert_int_equal(ech__costs_open(f->ctx, path, "here", &a), ECH_OK);
    assert_int_equal(ech__costs_open(f->ctx, NULL, "here", &b), ECH_OK);
    assert_int_equal(ech__costs_add_file(b, path), ECH_OK);
    for (int k = 0; k < 2; k++) {
        const ech__costs *all = k ? b : a;
        int64_t batches[4];
        assert_int_equal(ech__costs_batches(all, key.s, 1, batches, 4), 2);
        assert_true(batches[0] == 8 && batches[1] == 9);
        assert_true(ech__costs_machine((ech__costs *)all)->copy.seconds[0] == 1);
        assert_true(ech__costs_machine((ech__costs *)all)->add.seconds[0] == 2);
    }
    ech__costs_forget(a, key.s);
    assert_null(ech__costs_find(a, key.s, 8, 1));
    ech__costs_close(a);
    ech__costs_close(b);
    temp_dir_destroy(&dir);
}

/* ---- layers on several devices ---- */

static ech__pricing *layers_pricing(fixture *f, ech__strategy strategy, const ech__cluster *cluster)
{
    ech__pricing *p;
    const ech__pricing_options o = {.config = &f->config,
                                    .strategy = strategy,
                                    .costs = f->costs,
                                    .cluster = cluster,
                                    .beside = 1};
    if (ech__pricing_create(f->ctx, &o, &p) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return p;
}

/* One device after the other: all operators once, two messages, and the update of the first device, which is the last. */
static void a_spread_model_takes_the_sum_of_its_devices(void **state)
{
    fixture *f = *state;
    ech__cluster cluster = ech__cluster_defaults();
    cluster.inside = (ech__link){.bytes_per_s = 1e6, .latency_s = 1e-3};
    ech__pricing *p = layers_pricing(f, ECH__STRATEGY_MP, &cluster);
    const double op = FIXED + EACH * 8, message = 1e-3 + 8 * DIM * 4 / 1e6;
    const ech__price one = price_at(f, p, 1, 8), two = price_at(f, p, 2, 8);
    close_to(one.step.step_s, OVERHEAD + (f->nforward + f->nbackward) * op + f->nupdates * UPDATE);
    close_to(two.step.step_s,
             OVERHEAD + (f->nforward + f->nbackward) * op + 2 * message + f->nupdates * UPDATE / 2);
    assert_int_equal(two.batch, 8);
    assert_int_equal(two.micros, 1);
    close_to(two.step.busiest_bytes, 8 * DIM * 4);
    assert_true(two.bubble >= 0.5 && two.bubble < 0.6); /* with the messages */
    ech__price none;
    assert_int_equal(ech__pricing_at(p, 3, 8, &none), ECH_E_INVALID); /* of two layers */
    ech__pricing_destroy(p);
}

static void a_pipeline_hides_what_it_can(void **state)
{
    fixture *f = *state;
    f->config.train.pipeline.micro_batches = 4;
    ech__cluster cluster = ech__cluster_defaults();
    cluster.inside = (ech__link){.bytes_per_s = 1e12, .latency_s = 0};
    ech__pricing *p = layers_pricing(f, ECH__STRATEGY_PIPELINE, &cluster);
    const ech__price two = price_at(f, p, 2, 32);
    const double op = FIXED + EACH * 8, computed = 4 * (f->nforward + f->nbackward) * op;
    const double sums = 3 * f->nupdates * UPDATE; /* at most: some kernels add by themselves */
    assert_int_equal(two.batch, 8);
    assert_int_equal(two.micros, 4);
    assert_true(!two.between && !two.measured);
    /* The device with more operators is never idle once it has begun; the other one is on both ends. */
    assert_true(two.step.step_s > computed / 2 && two.step.step_s < computed + sums);
    assert_true(two.bubble > 0 && two.bubble < 0.5);
    ech__price none;
    assert_int_equal(ech__pricing_at(p, 2, 30, &none), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(f->ctx), "30 samples in 4 micro-batches"));
    /* On one device it is the plain training. */
    assert_int_equal(price_at(f, p, 1, 32).micros, 1);
    ech__pricing_destroy(p);
    assert_int_equal(ech__pricing_check_layers(f->ctx, &f->config, 2), ECH_OK);
    assert_int_equal(ech__pricing_check_layers(f->ctx, &f->config, 3), ECH_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_intervals),
        cmocka_unit_test(what_was_measured_is_the_price),
        cmocka_unit_test(batches_are_measured_within_a_budget),
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
        cmocka_unit_test(what_is_no_time_is_not_kept),
        cmocka_unit_test(costs_of_several_are_merged),
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(a_spread_model_takes_the_sum_of_its_devices),
        cmocka_unit_test(a_pipeline_hides_what_it_can),
        cmocka_unit_test(memory_is_that_of_the_plan),
        cmocka_unit_test(parts_add_up),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
