#include "predict/pricing.h"
#include "device/device.h"
#include "predict/pricing_internal.h"

#include <string.h>

ech__run_config ech__pricing_single(const ech__run_config *config, ech__strategy strategy,
                                    int64_t batch)
{
    ech__run_config c = *config;
    c.train.batch = batch;
    c.global_batch = 0;
    c.train.ddp.group = NULL;
    c.train.accum = 1;
    c.train.delay_ms = 0;
    c.train.ddp.reproducible = false;
    if (ech__loss_scale(&c.train) == 0) /* as it is, without a word about why */
        c.train.amp.loss_scale = -1;
    ech__strategy_set(&c.train, strategy, ech__strategy_row_of(strategy)->cuts_model ? 0 : 1);
    return c;
}

/* ---- what was measured ---- */

/* How many devices share this machine's memory, as a share of those that were measured side by
 * side. */
double ech__pricing_crowding(const ech__pricing *p, int64_t devices)
{
    const int K = p->options.beside;
    if (p->options.cluster || K < 2 || devices < 2)
        return 0;
    return devices >= K ? 1 : (double)(devices - 1) / (double)(K - 1);
}

static double overhead_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->overhead_s;
}

static double overhead_more(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->beside->overhead_s - point->alone->overhead_s;
}

static double wait_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->beside->wait_s;
}

static double loading_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->loading_s;
}

const ech__machine_costs *ech__pricing_machine(const ech__pricing *p)
{
    if (p->options.device)
        return &p->described;
    return ech__costs_machine((ech__costs *)p->options.costs);
}

ech__operator_times ech__pricing_times(const ech__pricing *p, int64_t devices, int64_t batch,
                                       double crowding)
{
    return (ech__operator_times){.alone = &p->points,
                                 .crowded = &p->crowded,
                                 .crowding = crowding,
                                 .devices = devices,
                                 .batch = batch,
                                 .train = &p->config.train,
                                 .machine = ech__pricing_machine(p),
                                 .device = p->options.device};
}

/* Two measurements of one graph have the same operators in the same order. */
static ech_status check_same(const ech__pricing *p, const ech__step_cost *a,
                             const ech__step_cost *b)
{
    bool same = a->nops == b->nops;
    for (size_t i = 0; same && i < a->nops; i++)
        same = !strcmp(a->ops[i].op, b->ops[i].op) && !strcmp(a->ops[i].name, b->ops[i].name) &&
               !strcmp(a->ops[i].phase, b->ops[i].phase);
    return same ? ECH_OK
                : ech__fail(p->ctx, ECH_E_FORMAT,
                            "the costs that are kept of batches %lld and %lld are of different "
                            "graphs; measure anew",
                            (long long)a->batch, (long long)b->batch);
}

static ech_status find_points(ech__pricing *p)
{
    ech__pricing_options *o = &p->options;
    const ech__run_config single = ech__pricing_single(&p->config, o->strategy, 1);
    const ech__costs_key key = ech__costs_key_of(&single);
    const char *machine = ech__costs_exported(o->costs);
    int64_t batches[ECH__MOST_POINTS];
    if (o->cluster ||
        ech__costs_batches(o->costs, key.s, o->beside, batches, ECH__MOST_POINTS) == 0)
        o->beside = 1; /* copies side by side may have been too large for the memory */
    const int count = ech__costs_batches(o->costs, key.s, 1, batches, ECH__MOST_POINTS);
    for (int i = 0; i < count; i++) {
        ech__cost_point point = {.batch = batches[i],
                                 .alone = ech__costs_find(o->costs, key.s, batches[i], 1)};
        if (o->beside > 1)
            point.beside = ech__costs_find(o->costs, key.s, batches[i], o->beside);
        p->points.at[p->points.count++] = point;
        ECH_TRY(check_same(p, p->points.at[0].alone, point.alone));
        if (!point.beside)
            continue;
        ECH_TRY(check_same(p, point.alone, point.beside));
        p->crowded.at[p->crowded.count++] = point;
    }
    return p->points.count
               ? ECH_OK
               : ech__fail(p->ctx, ECH_E_INVALID, "the costs of '%s' are not known on %s", key.s,
                           machine ? machine : "this machine");
}

/* ---- the operators of a step ---- */

static ech__graphs_options graphs_options(const ech__pricing *p, int64_t ranks)
{
    ech__device_kind kind;
    const bool shards =
        ech__device_asked(p->ctx, &kind) == ECH_OK && ech__device_shards_updates(kind);
    return (ech__graphs_options){.train = &p->config.train,
                                 .ranks = (int)ranks,
                                 .shared_memory = shards && !p->options.cluster};
}

ech_status ech__pricing_match(const ech__pricing *p, ech__operators *operators)
{
    return p->options.device ? ECH_OK : ech__operators_match(operators, p->points.at[0].alone);
}

static ech_status build_ranks(ech__pricing *p, int64_t ranks, ech__operators *out)
{
    const ech__graphs_options options = graphs_options(p, ranks);
    ECH_TRY(ech__operators_of_ranks(p->model, p->loss, &options, out));
    return ech__pricing_match(p, out);
}

static ech_status build_alone(ech__pricing *p)
{
    return build_ranks(p, 1, &p->alone);
}

/* ---- ddp ---- */

/* What ranks tell each other after a step: figures, and when each bucket was where. */
static int64_t report_bytes(int64_t buckets)
{
    return (int64_t)sizeof(ech__report) + buckets * (int64_t)sizeof(ech__coll_times);
}

/* The bytes that are exchanged, and how they go. */
static void count_buckets(ech__pricing *p)
{
    const ech__operator_list *list = &p->several.at[0];
    for (size_t n = 0; n < list->graph->nnodes; n++) {
        if (list->ops[n].kind != ECH__PRICED_BUCKET)
            continue;
        p->buckets++;
        p->exchanged += list->bytes[n];
        p->largest_bucket = list->bytes[n] > p->largest_bucket ? list->bytes[n] : p->largest_bucket;
    }
}

static ech_status prepare_ddp(ech__pricing *p)
{
    ECH_TRY(build_alone(p));
    ECH_TRY(build_ranks(p, 2, &p->several));
    count_buckets(p);
    return ECH_OK;
}

/* All numbers of ranks above one have the same graphs, unless they share a number of slots. */
static ech_status operators_of(ech__pricing *p, int64_t ranks, const ech__operators **out)
{
    *out = ranks == 1 ? &p->alone : &p->several;
    if (ranks == 1 || !p->config.train.ddp.reproducible || p->several.devices == ranks)
        return ECH_OK;
    return build_ranks(p, ranks, &p->several);
}

/* A micro-step of a role, with its forward and backward pass or with all that there is. */
static ech_status price_role(ech__pricing *p, const ech__price *price, int role, bool all,
                             ech__priced_step *out)
{
    const ech__operators *operators;
    ECH_TRY(operators_of(p, price->devices, &operators));
    ech__operator_list *list = &operators->at[role];
    const ech_graph *graph = list->graph;
    const ech__operator_times times =
        ech__pricing_times(p, price->devices, ech__pricing_samples(p, price),
                           ech__pricing_crowding(p, price->devices));
    ech__operators_time(list, &times);
    const size_t bytes = (graph->nnodes + 1) * sizeof(ech__priced_op);
    ech__priced_op *ops = ech__new(p->ctx, bytes);
    size_t count = 0;
    if (!ops)
        return ech__no_memory(p->ctx, "%zu operators", graph->nnodes);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__phase phase = graph->nodes[n].phase;
        if (all || phase == ECH__PHASE_FORWARD || phase == ECH__PHASE_BACKWARD)
            ops[count++] = list->ops[n];
    }
    if (all && p->buckets && price->devices > 1 && !p->options.cluster)
        ops[count++] = (ech__priced_op){ECH__PRICED_SYNC, 0, report_bytes(p->buckets)};
    *out = ech__price_step(ops, count, &p->cluster, p->algorithm, price->devices,
                           all ? price->overhead_s : 0);
    ech__delete(p->ctx, ops, bytes);
    return ECH_OK;
}

static int micro_steps(const ech__pricing *p, int64_t devices)
{
    return ech__micro_steps(&p->config.train, (int)devices);
}

/* Gradients of the others' shards in, what was changed out. */
static double sharded_bytes(const ech__pricing *p, int64_t devices)
{
    const ech_graph *graph = p->several.at[0].graph;
    double bytes = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].op == ECH__OP_ALLREDUCE)
            bytes += (double)p->several.at[0].bytes[n] * (graph->nodes[n].nin - 1);
    }
    return bytes * (double)(devices - 1) / (double)devices;
}

/* The last micro-step of a step, which exchanges. */
ech_status ech__price_ranks(ech__pricing *p, ech__price *price)
{
    const ech__graphs_options options = graphs_options(p, price->devices);
    const int count = micro_steps(p, price->devices);
    const int role = ech__role_of(p->config.train.ddp.reproducible, count - 1, count);
    ECH_TRY(price_role(p, price, role, true, &price->step));
    if (price->devices == 1)
        return ECH_OK;
    price->algorithm =
        ech__price_allreduce(&p->cluster, p->algorithm, price->devices, p->largest_bucket)
            .algorithm;
    if (ech__updates_sharded(&options))
        price->step.busiest_bytes = sharded_bytes(p, price->devices);
    return ECH_OK;
}

/* The micro-steps of a rank before the last. They exchange no gradients, and so nobody waits for
 * others in them. */
static ech_status add_micro_steps(ech__pricing *p, int count, ech__price *price)
{
    for (int i = 0; i < count - 1; i++) {
        ech__priced_step step;
        ECH_TRY(price_role(p, price, ech__role_of(p->config.train.ddp.reproducible, i, count),
                           false, &step));
        price->step.compute_s += step.compute_s;
        price->step.exposed_s += step.exposed_s;
        price->step.comm_s += step.comm_s;
        price->step.busiest_bytes += step.busiest_bytes;
        price->step.step_s += step.step_s + price->other_s;
    }
    price->overhead_s += (count - 1) * price->other_s;
    price->other_s *= count;
    return ECH_OK;
}

/* ---- ways of going parallel ---- */

typedef struct strategy {
    ech_status (*prepare)(ech__pricing *p); /* the operators that all prices need */
    ech_status (*price)(ech__pricing *p, ech__price *price);
} strategy;

static const strategy strategies[] = {
    [ECH__STRATEGY_DDP] = {prepare_ddp, ech__price_ranks},
    [ECH__STRATEGY_DP] = {ech__prepare_dp, ech__price_dp},
    [ECH__STRATEGY_MP] = {build_alone, ech__price_layers},
    [ECH__STRATEGY_PIPELINE] = {build_alone, ech__price_layers},
};

_Static_assert(sizeof strategies / sizeof *strategies == ECH__STRATEGY_COUNT,
               "every strategy has a price");

int ech__strategy_micros(ech__strategy s, const ech__run_config *config, int64_t devices,
                         int64_t global)
{
    if (ech__strategy_refusal((ech__spread_by){.strategy = s}, ECH__FEATURE_MICRO_BATCHES) ||
        devices == 1)
        return 1;
    return config->train.pipeline.micro_batches ? config->train.pipeline.micro_batches
                                                : ech__pipe_default_micros(global, (int)devices);
}

/* Of a micro-step: slots of the reproducible mode share the samples of a step. */
int64_t ech__pricing_samples(const ech__pricing *p, const ech__price *price)
{
    const int64_t all = price->batch * p->config.train.accum;
    const int64_t each = all / micro_steps(p, price->devices);
    return each > 0 ? each : 1;
}

int64_t ech__strategy_batch(ech__strategy s, const ech__run_config *config, int64_t devices,
                            int64_t global)
{
    return ech__strategy_row_of(s)->cuts_model
               ? global / ech__strategy_micros(s, config, devices, global)
               : (global + devices - 1) / devices;
}

/* Links as given, or those of this machine, as the bucket that costs most sees them. */
static ech_status find_links(ech__pricing *p)
{
    const ech__pricing_options *o = &p->options;
    if (o->cluster) {
        p->cluster = *o->cluster;
        p->algorithm = o->algorithm;
        return ECH_OK;
    }
    p->cluster = ech__cluster_defaults();
    p->algorithm = ECH__ALGORITHM_DIRECT;
    if (ech__costs_link(o->costs, p->largest_bucket, true, &p->cluster.inside))
        p->cluster.source = ECH__LINK_MEASURED;
    p->cluster.between = p->cluster.inside;
    return ECH_OK;
}

/* What devices do for each other in DataParallel: device 0 adds up gradients, two reads and a write. */
static void describe_machine(ech__pricing *p)
{
    enum { FEW = 1, MANY = 1 << 30 };
    const ech__device_spec *d = p->options.device;
    const ech__work few = {ECH__WORK_ELEMENTWISE, ECH_F32, 0, 3.0 * FEW, true},
                    many = {ECH__WORK_ELEMENTWISE, ECH_F32, 0, 3.0 * MANY, true};
    p->options.beside = 1;
    p->described.add =
        (ech__size_costs){.count = 2,
                          .bytes = {FEW, MANY},
                          .seconds = {ech__roofline_seconds(d, &few, ECH__ROOFLINE_MIDDLE),
                                      ech__roofline_seconds(d, &many, ECH__ROOFLINE_MIDDLE)}};
}

static ech_status prepare(ech__pricing *p)
{
    ech__model model;
    ECH_TRY(ech_graph_create(p->ctx, &p->model));
    ECH_TRY(ech__model_build(p->model, &p->config.model, &model));
    p->loss = model.loss;
    for (size_t v = 0; v < p->model->nvalues; v++) {
        if (p->model->values[v].kind == ECH__VALUE_PARAM)
            p->params += ech__value_bytes(p->model, (ech_value)v) / (int64_t)sizeof(float);
    }
    if (p->options.device)
        describe_machine(p);
    else
        ECH_TRY(find_points(p));
    ECH_TRY(strategies[p->options.strategy].prepare(p));
    return find_links(p);
}

ech_status ech__pricing_create(ech_ctx *ctx, const ech__pricing_options *options,
                               ech__pricing **out)
{
    *out = NULL;
    ech__pricing *p = ech__new(ctx, sizeof *p);
    if (!p)
        return ech__no_memory(ctx, "a price");
    p->ctx = ctx;
    p->options = *options;
    p->config = *options->config;
    p->memory = (ech__planned_memory){.config = &p->config, .strategy = options->strategy};
    ech__operators_init(&p->alone, ctx);
    ech__operators_init(&p->several, ctx);
    const ech_status status = prepare(p);
    if (status < 0) {
        ech__pricing_destroy(p);
        return status;
    }
    *out = p;
    return ECH_OK;
}

void ech__pricing_destroy(ech__pricing *p)
{
    if (!p)
        return;
    ech__operators_fini(&p->several);
    ech__operators_fini(&p->alone);
    ech_graph_destroy(p->model);
    ech__delete(p->ctx, p, sizeof *p);
}

/* The estimate of a step of one device. */
static double alone_seconds(ech__pricing *p, int64_t batch, ech__roofline_end end)
{
    ech__operator_times times = ech__pricing_times(p, 1, batch, 0);
    ech__operator_list *list = &p->alone.at[0];
    times.end = end;
    ech__operators_time(list, &times);
    double seconds = ech__cost_at(&p->points, batch, false, overhead_seconds, NULL);
    for (size_t n = 0; n < list->graph->nnodes; n++)
        seconds += list->ops[n].seconds;
    return seconds;
}

/* Where a step of one device may lie. */
static ech__cost_range range_of(ech__pricing *p, int64_t batch, double seconds)
{
    const ech__device_spec *device = p->options.device;
    if (!device)
        return ech__cost_range_at(&p->points, batch, seconds);
    return (ech__cost_range){
        .low = alone_seconds(p, batch, ECH__ROOFLINE_FAST) * (1 - device->error),
        .high = alone_seconds(p, batch, ECH__ROOFLINE_SLOW) * (1 + device->error),
        .extrapolated = 1};
}

/* A step that was measured takes what it took. Each instant of a step counts once: what is no
 * operator, no exchange and no waiting is the rest. Medians of operators may add up to more than
 * that of the step; then there is no rest. */
static void add_up(const ech__pricing *p, ech__price *price)
{
    ech__priced_step *step = &price->step;
    for (int i = 0; price->measured && i < p->points.count; i++) {
        if (p->points.at[i].batch == price->batch)
            step->step_s = p->points.at[i].alone->step_s;
    }
    price->other_s = step->step_s - step->compute_s - step->exposed_s - price->wait_s;
    if (price->other_s < 0) {
        step->compute_s += price->other_s;
        price->other_s = 0;
    }
}

ech_status ech__pricing_at(ech__pricing *p, int64_t devices, int64_t global, ech__price *out)
{
    const ech__strategy_row *s = ech__strategy_row_of(p->options.strategy);
    if (devices < 1 || devices > s->most)
        return ech__fail(p->ctx, ECH_E_INVALID, "%lld devices: %s supports 1 to %lld",
                         (long long)devices, ech__strategy_name(p->options.strategy),
                         (long long)s->most);
    if (global < devices && !s->cuts_model)
        return ech__fail(p->ctx, ECH_E_INVALID,
                         "%lld samples per step for %lld devices: each needs at least one",
                         (long long)global, (long long)devices);
    const int micros = ech__strategy_micros(p->options.strategy, &p->config, devices, global);
    if (global % micros)
        return ech__fail(p->ctx, ECH_E_INVALID,
                         "%lld samples in %d micro-batches: they must divide them",
                         (long long)global, micros);
    *out =
        (ech__price){.devices = devices,
                     .batch = ech__strategy_batch(p->options.strategy, &p->config, devices, global),
                     .global = global,
                     .micros = micros,
                     .between = !p->options.device,
                     .algorithm = p->algorithm};
    for (int i = 0; i < p->points.count; i++)
        out->between = out->between && p->points.at[i].batch != out->batch;
    out->measured = devices == 1 && !out->between && !p->options.device && !p->options.sped_up &&
                    p->config.train.accum == 1 && p->config.train.delay_ms == 0 &&
                    !p->config.train.ddp.reproducible;
    const double alone = alone_seconds(p, out->batch, ECH__ROOFLINE_MIDDLE);
    const ech__cost_range range = range_of(p, out->batch, alone);
    const double crowding = s->one_by_one ? 0 : ech__pricing_crowding(p, devices);
    out->overhead_s = ech__cost_at(&p->points, out->batch, false, overhead_seconds, NULL);
    if (crowding > 0) {
        out->overhead_s +=
            crowding * ech__cost_at(&p->crowded, out->batch, false, overhead_more, NULL);
        out->wait_s = crowding * ech__cost_at(&p->crowded, out->batch, false, wait_seconds, NULL);
    }
    out->loading_s = ech__cost_at(&p->points, out->batch, true, loading_seconds, NULL);
    ECH_TRY(strategies[p->options.strategy].price(p, out));
    add_up(p, out);
    const int steps = micro_steps(p, devices);
    if (!s->cuts_model || devices == 1) /* else they are on the timeline of all layers */
        ECH_TRY(add_micro_steps(p, steps, out));
    out->loading_s *= steps;
    out->global *= p->config.train.accum;
    const double own = out->step.step_s - out->step.exposed_s;
    out->low_s = out->step.exposed_s + own * range.low / alone;
    out->high_s = out->step.exposed_s + own * range.high / alone;
    out->extrapolated = range.extrapolated;
    out->from = range.from;
    out->samples_per_s = (double)out->global / out->step.step_s;
    return ECH_OK;
}

ech_status ech__pricing_memory(ech__pricing *p, int64_t devices, int64_t global, int64_t *out)
{
    return ech__planned_memory_at(p->ctx, &p->memory, devices, global, out);
}

const ech__cluster *ech__pricing_cluster(const ech__pricing *p)
{
    return &p->cluster;
}

ech__algorithm ech__pricing_algorithm(const ech__pricing *p)
{
    return p->algorithm;
}

int ech__pricing_beside(const ech__pricing *p)
{
    return p->options.beside;
}

int64_t ech__pricing_most(const ech__pricing *p)
{
    return ech__strategy_row_of(p->options.strategy)->most;
}

int ech__pricing_batches(const ech__pricing *p, int64_t *out, int max)
{
    int count = 0;
    for (; count < p->points.count && count < max; count++)
        out[count] = p->points.at[count].batch;
    return count;
}

int64_t ech__pricing_params(const ech__pricing *p)
{
    return p->params;
}

int64_t ech__pricing_exchanged(const ech__pricing *p)
{
    return p->exchanged;
}
