/* The price of a step whose layers are on several devices, one micro-batch after the other or as
 * a pipeline. */
#include "predict/pricing_internal.h"

#include <math.h>

static ech_train_options train_options(const ech__run_config *config, const ech__price *price)
{
    ech_train_options o = config->train;
    o.batch = price->batch * price->micros;
    o.pipeline.devices = (int)price->devices;
    o.pipeline.micro_batches = price->micros;
    return o;
}

/* ---- operators ---- */

static double tuned_seconds(const ech__cost_point *point, const void *op)
{
    return point->alone->ops[*(const int *)op].tuned_s;
}

/* As a run weighs layers that it balances: by the times of kernels from tuning. */
static void weigh(ech__pricing *p, const ech_graph *fused, int64_t batch, ech__layers *layers)
{
    const ech__operator_times times = ech__pricing_times(p, 1, batch, 0);
    ech__operator_list *alone = &p->alone.at[0];
    ech__operators_time(alone, &times);
    for (size_t n = 0; n < alone->graph->nnodes; n++) {
        const int layer = ech__layer_of(fused, layers, &alone->graph->nodes[n]);
        if (layer >= 0 && p->options.device)
            layers->at[layer].seconds += alone->ops[n].seconds;
        else if (layer >= 0 && alone->measured[n] >= 0)
            layers->at[layer].seconds +=
                ech__cost_at(&p->points, batch, true, tuned_seconds, &alone->measured[n]);
    }
}

/* A device for each layer, as text in the arena of the graph. */
static ech_status balance(ech__pricing *p, const ech_train_options *train, ech_graph *fused,
                          ech__layers *layers, const char **out)
{
    const ech__placement placement = ech__graphs_placement(train);
    weigh(p, fused, placement.batch, layers);
    ECH_TRY(ech__placement_apply(p->ctx, &placement, layers));
    *out = "";
    for (int i = 0; i < layers->count; i++) {
        *out = ech__arena_printf(&fused->arena, "%s%s%d", *out, i ? "," : "", layers->at[i].device);
        if (!*out)
            return ech__no_memory(p->ctx, "the placement of %d layers", layers->count);
    }
    return ECH_OK;
}

/* The trainer that would run, without its memory. */
static ech_status plan(ech__pricing *p, ech_train_options train, ech_trainer **out)
{
    ech_graph *fused = NULL;
    ech__layers layers;
    ech_status status = ECH_OK;
    *out = NULL;
    if (ech__placement_wants_seconds(train.pipeline.placement)) {
        status = ech__graphs_of_layers(p->model, &(ech__graphs_options){.train = &train}, &fused,
                                       &layers);
        if (status == ECH_OK)
            status = balance(p, &train, fused, &layers, &train.pipeline.placement);
    }
    train.ddp.group = NULL;
    train.device_memory = INT64_MAX / 4; /* whether it fits is another question */
    if (status == ECH_OK)
        status = ech__trainer_plan(p->ctx, p->model, p->loss, &train, out);
    ech_graph_destroy(fused);
    return status;
}

/* The operators of the last price are kept for the next one. */
static ech_status build(ech__pricing *p, const ech_train_options *train, const ech__price *price)
{
    ech_trainer *planned;
    if (p->several.devices == price->devices && p->planned.batch == price->batch &&
        p->planned.micros == price->micros)
        return ECH_OK;
    ECH_TRY(plan(p, *train, &planned));
    ech_status status = ech__operators_of_layers(planned, &p->several);
    if (status == ECH_OK)
        status = ech__pricing_match(p, &p->several);
    if (status < 0)
        ech__operators_fini(&p->several);
    p->planned.batch = price->batch;
    p->planned.micros = price->micros;
    return status;
}

/* ---- times of devices ---- */

static double message_seconds(const ech__pricing *p, const ech__node *send, int64_t bytes)
{
    const ech__cluster *links = p->options.cluster;
    if (!links) { /* devices of this machine fetch from each other's memory */
        const double copied = ech__size_seconds(&ech__pricing_machine(p)->copy, bytes);
        const ech__cluster plain = ech__cluster_defaults();
        return copied > 0 ? copied : ech__price_message(&plain.inside, bytes);
    }
    const int64_t each = links->devices_per_node;
    const bool far = each && send->attrs.from / each != send->attrs.to / each;
    return ech__price_message(far ? &links->between : &links->inside, bytes);
}

/* What the device sends of a micro-batch. */
static void add_messages(const ech__pricing *p, const ech__operator_list *list, ech__price *price,
                         ech__stage_time *stage)
{
    const int times = price->micros * p->config.train.accum;
    for (size_t n = 0; n < list->graph->nnodes; n++) {
        const ech__node *node = &list->graph->nodes[n];
        if (node->op != ECH__OP_SEND)
            continue;
        const int64_t bytes = list->bytes[n] * price->batch;
        const double seconds = message_seconds(p, node, bytes);
        *(node->phase == ECH__PHASE_FORWARD ? &stage->send_s : &stage->send_back_s) += seconds;
        price->step.comm_s += seconds * times;
        price->step.busiest_bytes = fmax(price->step.busiest_bytes, (double)(bytes * times));
    }
}

/* Of a micro-batch on each device. */
typedef struct layer_times {
    ech__stage_time stages[ECH__MAX_STAGES];                   /* backward_s is set below */
    double writes_s[ECH__MAX_STAGES], adds_s[ECH__MAX_STAGES]; /* backward passes */
    double step_s, unsent_s, flush_s, idle_s,
        busy_s[ECH__MAX_STAGES]; /* of the micro-steps so far */
} layer_times;

static void time_stages(ech__pricing *p, double crowding, ech__price *price, layer_times *t)
{
    const ech__operator_times times = ech__pricing_times(p, price->devices, price->batch, crowding);
    for (int i = 0; i < p->several.count; i++) {
        ech__operator_list *list = &p->several.at[i];
        ech__stage_time *stage = &t->stages[list->device];
        ech__operators_time(list, &times);
        const double backward = ech__operators_sum(list, ECH__PRICED_BACKWARD);
        if (list->role == ECH__PIPE_ADDS) {
            t->adds_s[list->device] = backward;
            continue;
        }
        t->writes_s[list->device] = backward;
        stage->forward_s = ech__operators_sum(list, ECH__PRICED_FORWARD);
        stage->update_s = ech__operators_sum(list, ECH__PRICED_OPTIMIZER);
        add_messages(p, list, price, stage);
    }
}

static ech_status simulate(const ech__pricing *p, const ech__price *price,
                           const ech__stage_time *stages, ech__pipe_times *out)
{
    return ech__pipe_simulate(p->ctx, p->config.train.pipeline.schedule, (int)price->devices,
                              price->micros, stages, out);
}

/* The first micro-batch of a step writes gradients and all others add to them; the timeline has the
 * mean of a micro-step's. The last micro-step updates. */
static ech_status add_micro_step(const ech__pricing *p, const ech__price *price, bool first,
                                 bool last, layer_times *t)
{
    ech__stage_time stages[ECH__MAX_STAGES];
    ech__pipe_times times, unsent;
    const double writing = first ? 1.0 / price->micros : 0;
    for (int d = 0; d < price->devices; d++) {
        stages[d] = t->stages[d];
        stages[d].backward_s = writing * t->writes_s[d] + (1 - writing) * t->adds_s[d];
        stages[d].update_s = last ? stages[d].update_s : 0;
    }
    ECH_TRY(simulate(p, price, stages, &times));
    for (int d = 0; d < price->devices; d++) {
        t->busy_s[d] += times.busy_s[d];
        stages[d].send_s = stages[d].send_back_s = 0;
    }
    ECH_TRY(simulate(p, price, stages, &unsent));
    t->step_s += times.step_s;
    t->unsent_s += unsent.step_s;
    t->flush_s += times.flush_s;
    t->idle_s += times.bubble * times.flush_s;
    return ECH_OK;
}

/* The device that is busiest waits for the others, as it would if messages took no time, and for
 * messages. */
ech_status ech__price_layers(ech__pricing *p, ech__price *price)
{
    layer_times t = {.step_s = 0};
    if (price->devices == 1)
        return ech__price_ranks(p, price);
    const ech_train_options train = train_options(&p->config, price);
    const bool in_turns = ech__strategy_row_of(p->options.strategy)->one_by_one;
    ECH_TRY(build(p, &train, price));
    time_stages(p, in_turns ? 0 : ech__pricing_crowding(p, price->devices), price, &t);
    for (int i = 0; i < train.accum; i++)
        ECH_TRY(add_micro_step(p, price, i == 0, i == train.accum - 1, &t));
    for (int d = 0; d < price->devices; d++)
        price->step.compute_s = fmax(price->step.compute_s, t.busy_s[d]);
    price->bubble = t.flush_s > 0 ? t.idle_s / t.flush_s : 0;
    price->overhead_s *= train.accum;
    price->wait_s += t.unsent_s - price->step.compute_s;
    price->step.step_s = t.step_s + price->overhead_s;
    price->step.exposed_s = t.step_s - t.unsent_s;
    price->step.hidden_s = fmax(price->step.comm_s - price->step.exposed_s, 0);
    return ECH_OK;
}

/* ---- before anything is measured ---- */

static ech_status check_layers(ech_graph *graph, const ech__run_config *config, int64_t devices)
{
    ech__model model;
    ech__layers layers;
    ech_graph *fused = NULL;
    const ech__price price = {
        .devices = devices, .batch = 1, .micros = ech__micro_batches(&config->train)};
    const ech_train_options train = train_options(config, &price);
    ECH_TRY(ech__model_build(graph, &config->model, &model));
    const ech_status status =
        ech__graphs_of_layers(graph, &(ech__graphs_options){.train = &train}, &fused, &layers);
    ech_graph_destroy(fused);
    return status;
}

ech_status ech__pricing_check_layers(ech_ctx *ctx, const ech__run_config *config, int64_t devices)
{
    ech_graph *graph;
    ECH_TRY(ech_graph_create(ctx, &graph));
    const ech_status status = check_layers(graph, config, devices);
    ech_graph_destroy(graph);
    return status;
}
