/* What is priced is what runs: the operators that a price is made of are those that a real step
 * of the same options stamps, one by one, on every device and in every role of a micro-step,
 * with the same bytes. Ranks are threads here. */
#include "predict/pricing_internal.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
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
    bool tuned;                        /* kernels are timed before */
    void (*set)(ech_train_options *o); /* NULL: the defaults */
} step_case;

typedef struct job {
    const step_case *c;
    ech__run_config config;
    const ech__operators *priced; /* NULL: as the rank plans them */
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

/* A refreshed copy that a plan needs not has no kernel: it takes no time, and has no stamp. */
static bool is_run(const ech__operator_list *list, const ech__plan *plan, const ech__exec *exec,
                   const char *name)
{
    const ech__node *priced;
    size_t at = 0;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *run = plan->instrs[n].node;
        const bool stamped = ech__exec_spans(exec)[n].end_ns > 0;
        if (stamped != in_phases(list, run) && !ech__plan_is_idle(plan, &plan->instrs[n]))
            REFUSE("%s: %s '%s' %s", name, ech__op_name(run->op), run->name,
                   stamped ? "runs and is not priced" : "is priced and does not run");
        if (!in_phases(list, run))
            continue;
        priced = next_priced(list, &at);
        if (!priced || !same(run, priced))
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

/* The first micro-batch of a step writes gradients, and all others add to them. */
static bool pass_is_priced(const ech__operator_list *list, const ech__variant *v, const char *name)
{
    const ech__pass *pass = v->own;
    for (int m = 0; m < pass->micros; m++) {
        const int at = list->device * pass->micros + m;
        const bool adds = m || v->role;
        if (adds == (list->role == ECH__PIPE_ADDS) &&
            !is_run(list, pass->plans[at], pass->execs[at], name))
            REFUSE("%s: device %d, micro-step %d, micro-batch %d", name, list->device, v->role, m);
    }
    return true;
}

static bool layers_are_priced(const ech__operators *priced, const ech_trainer *t, int micros,
                              int accum, const char *name)
{
    for (int i = 0; i < priced->count; i++) {
        const ech__operator_list *list = &priced->at[i];
        const int d = list->device;
        const ech__stage_work *work = &ech__pipe_stage(ech__trainer_pipe(t), d)->work;
        for (int k = 0; k < t->nvariants; k++) {
            if (t->variants[k].training && !pass_is_priced(list, &t->variants[k], name))
                return false;
        }
        if (bytes_of(list, ECH__OP_SEND) * BATCH * accum != work->bytes_out ||
            bytes_of(list, ECH__OP_RECV) * BATCH * accum != work->bytes_in)
            REFUSE("%s: device %d sends other bytes than are priced", name, d);
    }
    return t->nvariants == (accum > 1 ? 2 : 1) && t->variants[0].micros == micros &&
           priced->count == ech__pipe_devices(ech__trainer_pipe(t)) * priced->roles &&
           priced->roles == (micros * accum > 1 ? 2 : 1);
}

/* ---- a real step ---- */

/* Groups of devices have no price, but the operators that one would have. */
static void plan_layers(ech__comm *comm, const ech__run_config *config, ech__operators *out)
{
    ech__model model;
    ech_graph *graph;
    ech_trainer *t;
    RANK_OK(ech_graph_create(comm->ctx, &graph));
    RANK_OK(ech__model_build(graph, &config->model, &model));
    RANK_OK(ech__trainer_plan(comm->ctx, graph, model.loss, &config->train, &t));
    RANK_OK(ech__operators_of_layers(t, out));
    RANK_CHECK(bytes_of(&out->at[0], ECH__OP_ALLREDUCE) > 0);
    ech_graph_destroy(graph);
}

static void run_step(ech__comm *comm, void *user)
{
    const job *j = user;
    ech_group group = {comm, false};
    ech__run_config config = j->config;
    ech__run *run;
    ech__operators planned;
    if (comm->world > 1)
        config.train.ddp.group = &group;
    ech__operators_init(&planned, comm->ctx);
    if (!j->priced)
        plan_layers(comm, &config, &planned);
    const ech__operators *priced = j->priced ? j->priced : &planned;
    RANK_OK(ech__run_create(comm->ctx, &config, &run));
    RANK_OK(ech__run_steps(run, &(ech__run_events){.on_step = NULL}));
    const ech_trainer *t = run->trainer;
    RANK_CHECK(ech__trainer_dp(t) ? halves_are_priced(priced, t, j->c->name)
               : ech__trainer_pipe(t)
                   ? layers_are_priced(priced, t, j->c->micros, config.train.accum, j->c->name)
                   : ranks_are_priced(priced, t, j->c->name));
    ech__run_destroy(run);
    ech__operators_fini(&planned);
}

/* ---- its price ---- */

/* The operators of a device alone, each with a second. */
static void put_costs(ech_ctx *ctx, const ech__run_config *config, ech__strategy strategy,
                      ech__costs *costs)
{
    const int64_t batch = BATCH / ech__micro_batches(&config->train);
    const ech__run_config single = ech__pricing_single(config, strategy, batch);
    ech__model model;
    ech_graph *graph;
    ech_trainer *t;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    assert_int_equal(ech__model_build(graph, &single.model, &model), ECH_OK);
    if (ech__trainer_plan(ctx, graph, model.loss, &single.train, &t) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    ech__step_cost cost = {
        .batch = batch, .beside = 1, .steps = 9, .nops = t->plan->ninstrs, .step_s = 1000};
    cost.ops = calloc(cost.nops, sizeof *cost.ops);
    for (size_t n = 0; n < cost.nops; n++) {
        const ech__node *node = t->plan->instrs[n].node;
        cost.ops[n] = (ech__op_cost){.op = ech__op_name(node->op),
                                     .name = node->name,
                                     .phase = ech__phase_name(node->phase),
                                     .median_s = 1,
                                     .tuned_s = t->plan->instrs[n].seconds};
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

/* As echelon plan does when it measures: the times of all kernels are in the file then. */
static void tune(ech_ctx *ctx, const step_case *c, const ech__run_config *config)
{
    const int64_t batch = BATCH / ech__micro_batches(&config->train);
    const ech__run_config single = ech__pricing_single(config, c->strategy, batch);
    ech__run *run;
    if (ech__run_create(ctx, &single, &run) < 0)
        fail_msg("%s: %s", c->name, ech_ctx_error(ctx));
    ech__run_destroy(run);
}

static void price_and_run(const step_case *c)
{
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
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
    if (c->tuned) {
        temp_dir_path(&dir, "tuning.json", path);
        j.config.train.tune = true;
        j.config.train.tuning_file = path;
        tune(ctx, c, &j.config);
    }
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
    temp_dir_destroy(&dir);
}

/* ---- options that change a graph ---- */

static void accum(ech_train_options *o)
{
    o->accum = 3;
}

/* Memory is balanced otherwise than time. */
static void wide_accum(ech_train_options *o)
{
    o->accum = 2;
    o->pipeline.placement = "balanced-memory";
}

/* By operations, where no kernel was timed. */
static void balanced(ech_train_options *o)
{
    o->pipeline.placement = "balanced";
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
    static void (*const options[])(ech_train_options *) = {
        NULL, keep_all, adam, momentum, delay, bf16, fp16, clip, accum, wide_accum, balanced};
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

/* Which layers are where, and which kernels add to gradients by themselves, depends on times. */
static void tuned_layers_run_what_is_priced(void **state)
{
    (void)state;
    static void (*const options[])(ech_train_options *) = {NULL, balanced, accum};
    static const ech__model_kind models[] = {ECH__MODEL_LINEAR, ECH__MODEL_LENET,
                                             ECH__MODEL_RESNET8};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        for (size_t k = 0; k < sizeof models / sizeof *models; k++)
            price_and_run(&(step_case){.name = "tuned pipeline",
                                       .strategy = ECH__STRATEGY_PIPELINE,
                                       .model = models[k],
                                       .devices = 2,
                                       .micros = 4,
                                       .tuned = true,
                                       .set = options[i]});
    }
}

/* Two ranks, each with its layers on two devices: no strategy is priced so, but the operators
 * are the same ones. */
static void groups_run_what_would_be_priced(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const step_case c = {.name = "groups",
                             .model = ECH__MODEL_RESNET8,
                             .devices = 2,
                             .micros = 2,
                             .set = i ? accum : NULL};
        job j = {.c = &c, .config = config_of(&c)};
        j.config.train.pipeline.devices = 2;
        j.config.train.pipeline.micro_batches = 2;
        run_ranks(RANKS_AS_THREADS, 2, 120, run_step, &j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_run_what_is_priced),
        cmocka_unit_test(data_parallel_runs_what_is_priced),
        cmocka_unit_test(layers_run_what_is_priced),
        cmocka_unit_test(tuned_layers_run_what_is_priced),
        cmocka_unit_test(groups_run_what_would_be_priced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
