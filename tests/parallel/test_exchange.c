/* The exchange between ranks, with batch norms over all of them, against one device with the whole
 * batch: in f64 on the reference device, where nothing but a mistake makes a difference. Gradients,
 * the statistics of the batch and the running statistics of residual networks are compared; samples
 * are shared out evenly, unevenly, and with a rank that has none. */
#include "base/rng.h"
#include "device/device.h"
#include "models/internal.h"
#include "parallel/ddp/ddp.h"
#include "parallel/ddp/exchange.h"
#include "plan/plan.h"
#include "support/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double TOLERANCE = 1e-9;

enum { MOST_RANKS = 4, IMAGE = 3 * 32 * 32, CLASSES = 10 };

typedef struct case_of {
    ech__resnet shape;
    int64_t samples;           /* of the whole batch */
    int64_t parts[MOST_RANKS]; /* samples of each rank; they add up */
    int world;
    bool sync_bn;
    int64_t bucket_bytes;
} case_of;

/* Values of one run by name, in doubles: every gradient, batch statistic and buffer. */
typedef struct record {
    const char *name;
    double *at;
    int64_t elems;
} record;

typedef struct records {
    record *all;
    size_t count;
} records;

typedef struct job {
    const case_of *c;
    records got[MOST_RANKS];
} job;

/* A rank's part of the whole: the first sample, how many it computes on, and how many of these count. */
typedef struct share {
    int64_t first, batch, counted;
} share;

static void check(bool good, const char *what, ech_ctx *ctx)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, ech_ctx_error(ctx));
    abort(); /* ranks are threads, so cmocka cannot catch it */
}

/* ---- a network in f64 ---- */

static void to_f64(ech_graph *graph)
{
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].type.dtype == ECH_F32)
            graph->values[v].type.dtype = ECH_F64;
    }
}

static ech_graph *build(ech_ctx *ctx, const case_of *c, bool exchanged)
{
    ech_graph *g;
    check(ech_graph_create(ctx, &g) == ECH_OK, "graph", ctx);
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value loss = ech_cross_entropy(g, ech__resnet_of(g, x, &c->shape), labels);
    to_f64(g);
    check(ech__fuse(g) == ECH_OK, "fuse", ctx);
    check(ech__autodiff(g, loss) == ECH_OK, "autodiff", ctx);
    check(ech__recompute(g) == ECH_OK, "recompute", ctx);
    if (exchanged)
        check(ech__ddp(g, &(ech__ddp_options){.bucket_bytes = c->bucket_bytes,
                                              .sync_bn = c->sync_bn}) == ECH_OK,
              "ddp", ctx);
    check(ech__graph_check(g) == ECH_OK, "check", ctx);
    for (size_t n = 0; n < g->nnodes; n++) {
        for (int i = 0; g->nodes[n].op == ECH__OP_BN_STATS && i < 2; i++)
            ech__graph_keep(g, g->nodes[n].out[i]);
    }
    return g;
}

/* ---- values in and out ---- */

/* Inputs are those of samples first, first + 1...; parameters are the same everywhere. */
static void fill(const ech__plan *plan, const ech__exec *exec, const share *part)
{
    const ech_graph *g = plan->graph;
    for (size_t v = 0; v < g->nvalues; v++) {
        const ech__value *value = &g->values[v];
        const bool is_input = value->kind == ECH__VALUE_INPUT;
        if ((!is_input && value->kind != ECH__VALUE_PARAM && value->kind != ECH__VALUE_BUFFER) ||
            !plan->places[v].used)
            continue;
        const ech__layout *layout = &plan->places[v].layout;
        const uint64_t stream = ech__rng_stream(value->name);
        const int64_t each = value->type.dtype == ECH_S32 ? 1 : IMAGE;
        int64_t elems = 0;
        ech__shape_elems(&layout->shape, &elems);
        for (int64_t i = 0; i < elems; i++) {
            const uint64_t k = (uint64_t)(is_input ? part->first * each + i : i);
            const double u = (double)ech__rng_uniform(1, stream, k);
            const int32_t label = (int32_t)(u * CLASSES);
            const double low = value->init.low, high = value->init.high;
            const double real = is_input ? 2 * u - 1 : low + u * (high - low);
            check(ech__exec_write(exec, (ech_value)v, i, 1,
                                  value->type.dtype == ECH_S32 ? (const void *)&label : &real) ==
                      ECH_OK,
                  value->name, plan->ctx);
        }
    }
}

static void take(records *r, const ech__plan *plan, const ech__exec *exec, ech_value v,
                 const char *name)
{
    record *next;
    r->all = realloc(r->all, (r->count + 1) * sizeof *r->all);
    next = &r->all[r->count++];
    const ech__layout *layout = &plan->places[v].layout;
    ech__shape_elems(&layout->shape, &next->elems);
    next->name = strdup(name);
    next->at = malloc((size_t)next->elems * sizeof *next->at);
    check(ech__exec_read(exec, v, 0, next->elems, next->at) == ECH_OK, name, plan->ctx);
}

static records take_all(const ech__plan *plan, const ech__exec *exec)
{
    const ech_graph *g = plan->graph;
    records r = {NULL, 0};
    char name[128];
    for (size_t v = 0; v < g->nvalues; v++) {
        const ech__value *value = &g->values[v];
        if (value->kind == ECH__VALUE_GRADIENT)
            snprintf(name, sizeof name, "gradient of %s", g->values[value->of].name);
        else if (value->kind == ECH__VALUE_BUFFER)
            snprintf(name, sizeof name, "%s", value->name);
        else
            continue;
        take(&r, plan, exec, (ech_value)v, name);
    }
    for (size_t n = 0; n < g->nnodes; n++) {
        for (int i = 0; g->nodes[n].op == ECH__OP_BN_STATS && i < 2; i++) {
            snprintf(name, sizeof name, "%s of the batch at %s", i ? "variance" : "mean",
                     g->nodes[n].name);
            take(&r, plan, exec, g->nodes[n].out[i], name);
        }
    }
    return r;
}

static void records_destroy(records *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free((char *)r->all[i].name);
        free(r->all[i].at);
    }
    free(r->all);
}

/* ---- one rank ---- */

static records compute(ech_ctx *ctx, const case_of *c, const share *part, ech__ranks *ranks)
{
    ech__device *device;
    ech__plan *plan;
    ech__exec *exec;
    ech_graph *g = build(ctx, c, ranks != NULL);
    ech__device_options d = {.threads = 1};
    check(ech__device_asked(ctx, &d.kind) == ECH_OK, "kind", ctx);
    if (d.kind == ECH__DEVICE_CPU) /* which has no kernels for f64 */
        d.kind = ECH__DEVICE_REFERENCE;
    const ech__plan_options o = {.batch = part->batch, .exchange = ech__ranks_exchange(ranks)};
    check(ech__device_create(ctx, &d, &device) == ECH_OK, "device", ctx);
    check(ech__plan_create(g, device, &o, &plan) == ECH_OK, "plan", ctx);
    check(ech__exec_create(plan, NULL, &exec) == ECH_OK, "exec", ctx);
    fill(plan, exec, part);
    const double weight = (double)part->counted / (double)c->samples;
    const ech__scalars scalars = {
        .loss_scale = weight, .grad_factor = 1, .share = weight, .step = 1};
    const unsigned phases =
        ECH__PHASE_BIT(FORWARD) | ECH__PHASE_BIT(BACKWARD) | ECH__PHASE_BIT(EXCHANGE);
    check(ech__exec_run(exec, phases, &scalars, NULL) == ECH_OK, "run", ctx);
    records r = take_all(plan, exec);
    ech__exec_destroy(exec);
    ech__plan_destroy(plan);
    ech__device_destroy(device);
    ech_graph_destroy(g);
    return r;
}

static void expect_stamps(const ech__comm *comm, const ech__ranks *ranks)
{
    RANK_CHECK(ranks->nbuckets > 0);
    for (int b = 0; b < ranks->nbuckets; b++) {
        const ech__bucket *bucket = &ranks->buckets[b];
        RANK_CHECK(bucket->bytes > 0 && !bucket->started);
        RANK_CHECK(bucket->times.ready_ns > 0);
        RANK_CHECK(bucket->times.ready_ns <= bucket->times.start_ns);
        RANK_CHECK(bucket->times.start_ns <= bucket->times.done_ns);
        RANK_CHECK(bucket->times.work_ns >= 0);
        RANK_CHECK(b == 0 || bucket[-1].times.ready_ns <= bucket->times.ready_ns);
    }
}

static void be_rank(ech__comm *comm, void *user)
{
    job *j = user;
    share part = {.counted = j->c->parts[comm->rank], .batch = j->c->parts[comm->rank]};
    for (int r = 0; r < comm->rank; r++)
        part.first += j->c->parts[r];
    if (!part.batch) /* it computes on a sample that does not count */
        part.batch = 1;
    ech__ranks *ranks;
    RANK_OK(ech__ranks_create(comm, &ranks));
    j->got[comm->rank] = compute(comm->ctx, j->c, &part, ranks);
    expect_stamps(comm, ranks);
    ech__ranks_destroy(ranks);
}

/* ---- the comparison ---- */

static records whole_batch(const case_of *c)
{
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    records r = compute(ctx, c, &(share){0, c->samples, c->samples}, NULL);
    ech_ctx_destroy(ctx);
    return r;
}

static double distance(const record *a, const record *b)
{
    double apart = 0, norm = 0;
    assert_int_equal(a->elems, b->elems);
    for (int64_t i = 0; i < b->elems; i++) {
        apart += (a->at[i] - b->at[i]) * (a->at[i] - b->at[i]);
        norm += b->at[i] * b->at[i];
    }
    if (!(norm > 1e-20))
        fail_msg("%s has the norm %g: a check of nothing", b->name, sqrt(norm));
    return sqrt(apart / norm);
}

static double worst_of(const records *got, const records *want, const char *beginning)
{
    double worst = 0;
    int compared = 0;
    assert_int_equal(got->count, want->count);
    for (size_t i = 0; i < want->count; i++) {
        assert_string_equal(got->all[i].name, want->all[i].name);
        if (strncmp(want->all[i].name, beginning, strlen(beginning)) != 0)
            continue;
        worst = fmax(worst, distance(&got->all[i], &want->all[i]));
        compared++;
    }
    assert_true(compared > 0);
    return worst;
}

static void expect_whole(const case_of *c, const records *whole)
{
    job j = {.c = c};
    double worst = 0;
    run_ranks(RANKS_AS_THREADS, c->world, 60, be_rank, &j);
    for (int rank = 0; rank < c->world; rank++) {
        const double off = worst_of(&j.got[rank], whole, "");
        if (!(off <= TOLERANCE))
            fail_msg("rank %d of %d with %lld of %lld samples is off by %g", rank, c->world,
                     (long long)c->parts[rank], (long long)c->samples, off);
        worst = fmax(worst, off);
        records_destroy(&j.got[rank]);
    }
    print_message("    %d ranks: off by %.2g at most\n", c->world, worst);
}

/* All blocks of resnet18, with narrow layers. */
static const ech__resnet narrow = {.width = 4, .stages = 4, .blocks = 2};

static void synced_batch_norms_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    static const case_of cases[] = {
        {.world = 2, .parts = {2, 2}, .bucket_bytes = 25 << 20},
        {.world = 2, .parts = {3, 1}, .bucket_bytes = 10000},
        {.world = 3, .parts = {2, 1, 1}, .bucket_bytes = 1},
        {.world = 3, .parts = {3, 1, 0}, .bucket_bytes = 10000},
        {.world = 4, .parts = {1, 1, 1, 1}, .bucket_bytes = 10000},
    };
    case_of c = {.shape = narrow, .samples = 4};
    records whole = whole_batch(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c = cases[i];
        c.shape = narrow;
        c.samples = 4;
        c.sync_bn = true;
        expect_whole(&c, &whole);
    }
    records_destroy(&whole);
}

/* One sample a rank: the reference device takes its time. */
static void resnet18_itself_is_exact(void **state)
{
    (void)state;
    const case_of c = {.shape = {.width = 64, .stages = 4, .blocks = 2},
                       .samples = 2,
                       .world = 2,
                       .parts = {1, 1},
                       .sync_bn = true,
                       .bucket_bytes = 1 << 20};
    records whole = whole_batch(&c);
    expect_whole(&c, &whole);
    records_destroy(&whole);
}

/* Statistics of a part are others than those of the whole: the tests above can fail. */
static void local_batch_norms_are_not(void **state)
{
    (void)state;
    const case_of c = {
        .shape = narrow, .samples = 4, .world = 2, .parts = {3, 1}, .bucket_bytes = 10000};
    records whole = whole_batch(&c);
    job j = {.c = &c};
    run_ranks(RANKS_AS_THREADS, c.world, 60, be_rank, &j);
    assert_true(worst_of(&j.got[0], &whole, "gradient") > 1e-3);
    assert_true(worst_of(&j.got[0], &whole, "mean") > 1e-3);
    /* What is exchanged is the same on both even so. */
    assert_true(worst_of(&j.got[0], &j.got[1], "gradient") == 0);
    for (int rank = 0; rank < c.world; rank++)
        records_destroy(&j.got[rank]);
    records_destroy(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synced_batch_norms_are_those_of_the_whole_batch),
        cmocka_unit_test(resnet18_itself_is_exact),
        cmocka_unit_test(local_batch_norms_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
