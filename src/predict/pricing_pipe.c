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

static ech_status place(ech__pricing *p, const ech_train_options *train, const ech_graph *fused,
                        double crowding, ech__layers *layers)
{
    const ech__placement placement = ech__graphs_placement(train);
    const ech__operator_times times = ech__pricing_times(p, 1, placement.batch, crowding);
    ech__operator_list *alone = &p->alone.at[0];
    ech__operators_time(alone, &times);
    for (size_t n = 0; n < alone->graph->nnodes; n++) {
        const int layer = ech__layer_of(fused, layers, &alone->graph->nodes[n]);
        if (layer >= 0)
            layers->at[layer].seconds += alone->ops[n].seconds;
    }
    return ech__placement_apply(p->ctx, &placement, layers);
}

/* Whether the operators of the last price are those of this one. */
static bool is_placed(const ech__operators *o, const ech_train_options *train,
                      const ech__layers *layers)
{
    bool same = o->devices == train->pipeline.devices &&
                o->roles == (ech__micro_batches(train) > 1 ? 2 : 1);
    for (int i = 0; same && i < layers->count; i++)
        same = o->layers.at[i].device == layers->at[i].device;
    return same;
}

static ech_status build(ech__pricing *p, const ech_train_options *train, double crowding)
{
    const ech__graphs_options options = {.train = train};
    ech_graph *fused = NULL;
    ech__layers layers;
    ech_status status = ech__graphs_of_layers(p->model, &options, &fused, &layers);
    if (status == ECH_OK)
        status = place(p, train, fused, crowding, &layers);
    if (status == ECH_OK && !is_placed(&p->several, train, &layers)) {
        status = ech__operators_of_layers(p->model, p->loss, &options, &layers, &p->several);
        if (status == ECH_OK)
            status = ech__pricing_match(p, &p->several);
        if (status < 0)
            ech__operators_fini(&p->several);
    }
    ech_graph_destroy(fused);
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
    for (size_t n = 0; n < list->graph->nnodes; n++) {
        const ech__node *node = &list->graph->nodes[n];
        if (node->op != ECH__OP_SEND)
            continue;
        const int64_t bytes = list->bytes[n] * price->batch;
        const double seconds = message_seconds(p, node, bytes);
        *(node->phase == ECH__PHASE_FORWARD ? &stage->send_s : &stage->send_back_s) += seconds;
        price->step.comm_s += seconds * price->micros;
        price->step.busiest_bytes =
            fmax(price->step.busiest_bytes, (double)(bytes * price->micros));
    }
}

/* The first micro-batch writes gradients and the others add to them; the timeline has the mean
 * of all. */
static void time_stages(ech__pricing *p, double crowding, ech__price *price,
                        ech__stage_time *stages)
{
    const ech__operator_times times = ech__pricing_times(p, price->devices, price->batch, crowding);
    for (int i = 0; i < p->several.count; i++) {
        ech__operator_list *list = &p->several.at[i];
        ech__stage_time *stage = &stages[list->device];
        ech__operators_time(list, &times);
        const double backward = ech__operators_sum(list, ECH__PRICED_BACKWARD);
        if (list->role == ECH__PIPE_ADDS) {
            stage->backward_s += backward * (price->micros - 1) / price->micros;
            continue;
        }
        stage->backward_s += backward / price->micros;
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

/* The device that is busiest waits for the others, as it would if messages took no time, and for
 * messages. */
ech_status ech__price_layers(ech__pricing *p, ech__price *price)
{
    ech__stage_time stages[ECH__MAX_STAGES] = {{0}};
    ech__pipe_times times, unsent;
    if (price->devices == 1)
        return ech__price_ranks(p, price);
    const ech_train_options train = train_options(&p->config, price);
    const bool in_turns = ech__strategy_row_of(p->options.strategy)->one_by_one;
    const double crowding = in_turns ? 0 : ech__pricing_crowding(p, price->devices);
    ECH_TRY(build(p, &train, crowding));
    time_stages(p, crowding, price, stages);
    ECH_TRY(simulate(p, price, stages, &times));
    for (int d = 0; d < price->devices; d++) {
        price->step.compute_s = fmax(price->step.compute_s, times.busy_s[d]);
        stages[d].send_s = stages[d].send_back_s = 0;
    }
    ECH_TRY(simulate(p, price, stages, &unsent));
    price->bubble = times.bubble;
    price->wait_s += unsent.step_s - price->step.compute_s;
    price->step.step_s = times.step_s + price->overhead_s;
    price->step.exposed_s = times.step_s - unsent.step_s;
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
