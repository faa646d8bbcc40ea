/* What is priced is what runs: the operators that a price is made of are those that a real step
 * of the same options stamps, one by one, on every device and in every role of a micro-step,
 * with the same bytes. Ranks are threads here. */
#include "predict/pricing_internal.h"
#include "support/ranks.h"
#include "train/strategy/dp.h"
#include "train/strategy/pipe.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 8 };

typedef struct step_case {
    const char *name;
    ech__strategy strategy;
    ech__model_kind model;
    int devices, micros;
    void (*set)(ech_train_options *o); /* NULL: the defaults */
} step_case;

typedef struct job {
    const step_case *c;
    ech__run_config config;
    const ech__operators *priced;
} job;

/* ---- one graph ---- */

#define REFUSE(...)                                                                                \
    do {                                                                                           \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        return false;                                                                              \
    } while (0)

static bool in_phases(const ech__operator_list *list, const ech__node *node)
{
    return (list->phases >> node->phase & 1) != 0;
}

static const ech__node *next_priced(const ech__operator_list *list, size_t *at)
{
    while (*at < list->graph->nnodes && !in_phases(list, &list->graph->nodes[*at]))
        ++*at;
    return *at < list->graph->nnodes ? &list->graph->nodes[(*at)++] : NULL;
}

static bool same(const ech__node *a, const ech__node *b)
{
    return a->op == b->op && !strcmp(a->name, b->name) && a->phase == b->phase &&
           a->device == b->device && a->attrs.seconds == b->attrs.seconds && a->nin == b->nin;
}

/* Which of the two a device has is known with its kernels: an operator that adds to gradients,
 * as it is priced, or one that makes them and one behind it for each that adds it. */
static bool adds_apart(const ech__node *run, const ech__node *priced)
{
    return run->op == ECH__OP_LINEAR_BWD_WEIGHTS && priced->op == ECH__OP_LINEAR_ADD_WEIGHTS &&
           !strcmp(run->name, priced->name) && run->device == priced->device;
}

/* A refreshed copy that a plan needs not has no kernel: it takes no time, and has no stamp. */
static bool is_run(const ech__operator_list *list, const ech__plan *plan, const ech__exec *exec,
                   const char *name)
{
    const ech__node *priced;
    size_t at = 0;
    int apart = 0; /* sums that are priced as part of what makes them */
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *run = plan->instrs[n].node;
        const bool stamped = ech__exec_spans(exec)[n].end_ns > 0;
        if (stamped != in_phases(list, run) && !ech__plan_is_idle(plan, &plan->instrs[n]))
            REFUSE("%s: %s '%s' %s", name, ech__op_name(run->op), run->name,
                   stamped ? "runs and is not priced" : "is priced and does not run");
        if (!in_phases(list, run))
            continue;
        if (apart && run->op == ECH__OP_ACCUMULATE) {
            apart--;
            continue;
        }
        priced = next_priced(list, &at);
        if (priced && adds_apart(run, priced))
            apart = run->nout;
        else if (!priced || !same(run, priced))
            REFUSE("%s: %s '%s' runs where %s '%s' is priced", name, ech__op_name(run->op),
                   run->name, priced ? ech__op_name(priced->op) : "nothing",
                   priced ? priced->name : "");
    }
    priced = next_priced(list, &at);
    if (priced)
        REFUSE("%s: %s '%s' is priced, and nothing runs", name, ech__op_name(priced->op),
               priced->name);
    return true;
}

static int64_t bytes_of(const ech__operator_list *list, ech__op op)
{
    int64_t bytes = 0;
    for (size_t n = 0; n < list->graph->nnodes; n++)
        bytes += list->graph->nodes[n].op == op ? list->bytes[n] : 0;
    return bytes;
}

/* ---- all graphs of a strategy ---- */

static bool are_exchanged(const ech__operator_list *list, const ech_trainer *t, const char *name)
{
    const ech__ddp_bytes run = ech__ddp_count(t->graph);
    if (!t->ranks)
        return true;
    if (bytes_of(list, ECH__OP_ALLREDUCE) != run.gradients ||
        bytes_of(list, ECH__OP_BROADCAST) != run.buffers ||
        bytes_of(list, ECH__OP_SYNC_STATS) + bytes_of(list, ECH__OP_SYNC_SUMS) != run.statistics)
        REFUSE("%s: other bytes are exchanged than are priced", name);
    for (size_t n = 0; n < list->graph->nnodes; n++) { /* they travel with their padding */
        const ech__node *node = &list->graph->nodes[n];
        if (node->op == ECH__OP_ALLREDUCE &&
            t->ranks->buckets[node->attrs.bucket].bytes < list->bytes[n])
            REFUSE("%s: '%s' has fewer bytes than are priced", name, node->name);
    }
    return true;
}

static bool ranks_are_priced(const ech__operators *priced, const ech_trainer *t, const char *name)
{
    if (priced->count != t->nroles)
        REFUSE("%s: %d roles run, %d are priced", name, t->nroles, priced->count);
    for (int i = 0; i < priced->count; i++) {
        const ech__operator_list *list = &priced->at[i];
        const ech__variant *v = NULL;
        for (int k = 0; k < t->nvariants; k++) {
            if (t->variants[k].training && t->variants[k].role == list->role)
                v = &t->variants[k];
        }
        if (!v)
            REFUSE("%s: role %d does not run", name, list->role);
        if (!is_run(list, v->plan, v->exec, name) || !are_exchanged(list, t, name))
            return false;
    }
    return true;
}

static bool halves_are_priced(const ech__operators *priced, const ech_trainer *t, const char *name)
{
    const ech__plan *plan;
    const ech__exec *exec;
    const ech__operator_list head = {.graph = priced->split.head, .phases = ~0U};
    for (int d = 0; d < ech__dp_devices(ech__trainer_dp(t)); d++) {
        if (!ech__dp_last(ech__trainer_dp(t), d, &plan, &exec) ||
            !is_run(&priced->at[d ? 1 : 0], plan, exec, name))
            REFUSE("%s: device %d", name, d);
    }
    return is_run(&head, t->variants[0].plan, t->variants[0].exec, name);
}

static bool layers_are_priced(const ech__operators *priced, const ech_trainer *t, int micros,
                              const char *name)
{
    const ech__pass *pass = t->variants[0].own;
    for (int i = 0; i < priced->count; i++) {
        const ech__operator_list *list = &priced->at[i];
        const int d = list->device;
        const ech__stage_work *work = &ech__pipe_stage(ech__trainer_pipe(t), d)->work;
        for (int m = list->role ? 1 : 0; m < (list->role ? micros : 1); m++) {
            const int at = d * pass->micros + m;
            if (!is_run(list, pass->plans[at], pass->execs[at], name))
                REFUSE("%s: device %d, micro-batch %d", name, d, m);
        }
        if (bytes_of(list, ECH__OP_SEND) * BATCH != work->bytes_out ||
            bytes_of(list, ECH__OP_RECV) * BATCH != work->bytes_in)
            REFUSE("%s: device %d sends other bytes than are priced", name, d);
    }
    return pass->micros == micros &&
           priced->count == ech__pipe_devices(ech__trainer_pipe(t)) * priced->roles &&
           priced->roles == (micros > 1 ? 2 : 1);
}

/* ---- a real step ---- */

static void run_step(ech__comm *comm, void *user)
{
    const job *j = user;
    ech_group group = {comm, false};
    ech__run_config config = j->config;
    ech__run *run;
    if (comm->world > 1)
        config.train.ddp.group = &group;
    RANK_OK(ech__run_create(comm->ctx, &config, &run));
    RANK_OK(ech__run_steps(run, &(ech__run_events){.on_step = NULL}));
    const ech_trainer *t = run->trainer;
    RANK_CHECK(ech__trainer_dp(t)     ? halves_are_priced(j->priced, t, j->c->name)
               : ech__trainer_pipe(t) ? layers_are_priced(j->priced, t, j->c->micros, j->c->name)
                                      : ranks_are_priced(j->priced, t, j->c->name));
    ech__run_destroy(run);
}

/* ---- its price ---- */

/* The operators of a device alone, each with a second. */
static void put_costs(ech_ctx *ctx, const ech__run_config *config, ech__strategy strategy,
                      ech__costs *costs)
{
    const ech__run_config single = ech__pricing_single(config, strategy, BATCH);
    ech__model model;
    ech_graph *graph;
    ech_trainer *t;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    assert_int_equal(ech__model_build(graph, &single.model, &model), ECH_OK);
    if (ech__trainer_plan(ctx, graph, model.loss, &single.train, &t) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    ech__step_cost cost = {
        .batch = BATCH, .beside = 1, .steps = 9, .nops = t->plan->ninstrs, .step_s = 1000};
    cost.ops = calloc(cost.nops, sizeof *cost.ops);
    for (size_t n = 0; n < cost.nops; n++) {
        const ech__node *node = t->plan->instrs[n].node;
        cost.ops[n] = (ech__op_cost){.op = ech__op_name(node->op),
                                     .name = node->name,
                                     .phase = ech__phase_name(node->phase),
                                     .median_s = 1};
    }
    assert_int_equal(ech__costs_put(costs, ech__costs_key_of(&single).s, &cost), ECH_OK);
    free(cost.ops);
    ech_trainer_destroy(t);
    ech_graph_destroy(graph);
}

static ech__run_config config_of(const step_case *c)
{
    ech__run_config config = ech__run_defaults();
    config.model = (ech__model_options){c->model, 32, 4};
    config.steps = 1;
    config.warmup = 0;
    config.train.threads = 1;
    config.train.tune = false;
    config.train.batch = BATCH;
    config.train.ddp.bucket_bytes = 16 << 10;
    if (c->set)
        c->set(&config.train);
    return config;
}

static void price_and_run(const step_case *c)
{
    ech_ctx *ctx;
    ech__costs *costs;
    ech__pricing *p;
    ech__price price;
    job j = {.c = c, .config = config_of(c)};
    const bool ranks = c->strategy == ECH__STRATEGY_DDP, cuts = c->strategy > ECH__STRATEGY_DP;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__costs_open(ctx, NULL, "here", &costs), ECH_OK);
    if (c->strategy == ECH__STRATEGY_PIPELINE)
        j.config.train.pipeline.micro_batches = c->micros;
    put_costs(ctx, &j.config, c->strategy, costs);
    const ech__pricing_options o = {
        .config = &j.config, .strategy = c->strategy, .costs = costs, .beside = 1};
    if (ech__pricing_create(ctx, &o, &p) < 0 ||
        ech__pricing_at(p, c->devices, cuts ? BATCH : BATCH * c->devices, &price) < 0)
        fail_msg("%s: %s", c->name, ech_ctx_error(ctx));
    assert_true(price.step.step_s > 0);
    j.priced = c->devices == 1 || c->strategy == ECH__STRATEGY_DP ? &p->alone : &p->several;
    j.config.train.dp.devices = c->strategy == ECH__STRATEGY_DP ? c->devices : 0;
    j.config.train.pipeline.devices = cuts ? c->devices : 0;
    if (c->strategy == ECH__STRATEGY_DP) {
        j.config.train.batch = 0;
        j.config.global_batch = BATCH * c->devices;
    }
    run_ranks(RANKS_AS_THREADS, ranks ? c->devices : 1, 120, run_step, &j);
    ech__pricing_destroy(p);
    ech__costs_close(costs);
    ech_ctx_destroy(ctx);
}

/* ---- options that change a graph ---- */

static void accum(ech_train_options *o)
{
    o->accum = 3;
}

static void bf16(ech_train_options *o)
{
    o->amp.type = ECH_AMP_BF16;
}

static void fp16(ech_train_options *o)
{
    o->amp.type = ECH_AMP_FP16;
    o->amp.loss_scale = 1024;
}

static void clip(ech_train_options *o)
{
    o->optimizer.clip_norm = 1;
}

static void wire(ech_train_options *o)
{
    o->ddp.grad_dtype = ECH_BF16;
}

static void sync_bn(ech_train_options *o)
{
    o->ddp.sync_bn = true;
}

static void whole_update(ech_train_options *o)
{
    o->ddp.sharded_update = false;
}

static void keep_all(ech_train_options *o)
{
    o->recompute = false;
}

static void momentum(ech_train_options *o)
{
    o->optimizer.momentum = 0.9;
}

static void adam(ech_train_options *o)
{
    o->optimizer.kind = ECH_OPTIMIZER_ADAM;
}

static void delay(ech_train_options *o)
{
    o->delay_ms = 1;
}

static void reproducible(ech_train_options *o)
{
    o->ddp.reproducible = true;
}

static void one_bucket(ech_train_options *o)
{
    o->ddp.bucket_bytes = 25 << 20;
}

static void no_buffers(ech_train_options *o)
{
    o->ddp.broadcast_buffers = false;
}

static void ranks_run_what_is_priced(void **state)
{
    (void)state;
    static void (*const options[])(ech_train_options *) = {
        NULL,     accum, bf16,  fp16,         clip,       wire,       sync_bn, whole_update,
        keep_all, adam,  delay, reproducible, one_bucket, no_buffers, momentum};
    static const char *const names[] = {"defaults", "accum",        "bf16",    "fp16",
                                        "clip",     "grad-dtype",   "sync-bn", "whole update",
                                        "keep all", "adam",         "delay",   "reproducible",
                                        "bucket",   "no broadcast", "momentum"};
    for (int devices = 1; devices <= 2; devices++) {
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            price_and_run(&(step_case){.name = names[i],
                                       .model = ECH__MODEL_RESNET8,
                                       .devices = devices,
                                       .micros = 1,
                                       .set = options[i]});
            if (options[i] != sync_bn)
                price_and_run(&(step_case){.name = names[i],
                                           .model = ECH__MODEL_LINEAR,
                                           .devices = devices,
                                           .micros = 1,
                                           .set = options[i]});
        }
    }
}

static void data_parallel_runs_what_is_priced(void **state)
{
    (void)state;
    static void (*const options[])(ech_train_options *) = {NULL, bf16, keep_all, adam, delay};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        price_and_run(&(step_case){.name = "dp",
                                   .strategy = ECH__STRATEGY_DP,
                                   .model = ECH__MODEL_RESNET8,
                                   .devices = 2,
                                   .micros = 1,
                                   .set = options[i]});
}

static void layers_run_what_is_priced(void **state)
{
    (void)state;
    static void (*const options[])(ech_train_options *) = {NULL,  keep_all, adam, momentum,
                                                           delay, bf16,     fp16, clip};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        for (int k = 0; k < 4; k++)
            price_and_run(
                &(step_case){.name = k / 2 ? "pipeline" : "mp",
                             .strategy = k / 2 ? ECH__STRATEGY_PIPELINE : ECH__STRATEGY_MP,
                             .model = k % 2 ? ECH__MODEL_RESNET8 : ECH__MODEL_LINEAR,
                             .devices = 2,
                             .micros = k / 2 ? 4 : 1,
                             .set = options[i]});
    }
}

/* Two ranks, each with its layers on two devices: no strategy is priced so, but the operators
 * are the same ones. */
static void groups_run_what_would_be_priced(void **state)
{
    (void)state;
    const step_case c = {.name = "groups", .model = ECH__MODEL_RESNET8, .devices = 2, .micros = 2};
    job j = {.c = &c, .config = config_of(&c)};
    const ech__graphs_options options = {.train = &j.config.train, .ranks = 2};
    ech_ctx *ctx;
    ech_graph *model, *fused;
    ech__model built;
    ech__layers layers;
    ech__operators priced;
    j.config.train.pipeline.devices = 2;
    j.config.train.pipeline.micro_batches = 2;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech_graph_create(ctx, &model), ECH_OK);
    assert_int_equal(ech__model_build(model, &j.config.model, &built), ECH_OK);
    ech__operators_init(&priced, ctx);
    assert_int_equal(ech__graphs_of_layers(model, &options, &fused, &layers), ECH_OK);
    assert_int_equal(ech__operators_of_layers(model, built.loss, &options, &layers, &priced),
                     ECH_OK);
    assert_true(bytes_of(&priced.at[0], ECH__OP_ALLREDUCE) > 0);
    j.priced = &priced;
    run_ranks(RANKS_AS_THREADS, 2, 120, run_step, &j);
    ech__operators_fini(&priced);
    ech_graph_destroy(fused);
    ech_graph_destroy(model);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_run_what_is_priced),
        cmocka_unit_test(data_parallel_runs_what_is_priced),
        cmocka_unit_test(layers_run_what_is_priced),
        cmocka_unit_test(groups_run_what_would_be_priced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
