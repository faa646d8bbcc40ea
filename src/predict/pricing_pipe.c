#include "predict/pricing_pipe.h"
#include "train/step/optimizer.h"
#include "train/step/passes.h"

#include <math.h>

static ech__placement placement_of(const ech__run_config *config, const ech__price *price)
{
    const ech_train_options *o = &config->train;
    return (ech__placement){.text = o->pipeline.placement,
                            .devices = (int)price->devices,
                            .copies = 2 + ech__optimizer_states(o),
                            .batch = price->batch};
}

/* Arrays of a parameter's size that an update reads and writes. */
static int streams_of(const ech_train_options *o)
{
    return 3 + 2 * ech__optimizer_states(o);
}

/* What adding a gradient up reads and writes beside making it: linear layers read what they add to, others have their part read,
 * and the sum read and written. */
static int adding_streams(const ech_graph *graph, const ech__node *update)
{
    return graph->values[update->in[0]].type.shape.ndims == 4 ? 3 : 1;
}

/* Time of each layer, and then of each device. */
static ech_status find_times(ech_ctx *ctx, const ech__spread *s, const ech__price *price,
                             ech__stage_time *stages)
{
    const ech__placement placement = placement_of(s->config, price);
    ech__layers *layers = s->layers;
    for (int i = 0; i < layers->count; i++)
        layers->at[i].seconds = 0;
    for (size_t n = 0; n < s->graph->nnodes; n++) {
        const int layer = ech__layer_of(s->graph, layers, &s->graph->nodes[n]);
        if (layer >= 0)
            layers->at[layer].seconds += s->ops[n].seconds;
    }
    ECH_TRY(ech__placement_apply(ctx, &placement, layers));
    const double again =
        (double)(price->micros - 1) / price->micros / streams_of(&s->config->train);
    for (size_t n = 0; n < s->graph->nnodes; n++) {
        const ech__node *node = &s->graph->nodes[n];
        const int layer = ech__layer_of(s->graph, layers, node);
        ech__stage_time *stage = &stages[layers->at[layer >= 0 ? layer : layers->count - 1].device];
        *(s->ops[n].kind == ECH__PRICED_FORWARD    ? &stage->forward_s
          : s->ops[n].kind == ECH__PRICED_BACKWARD ? &stage->backward_s
                                                   : &stage->update_s) += s->ops[n].seconds;
        if (node->phase == ECH__PHASE_OPTIMIZER)
            stage->backward_s += s->ops[n].seconds * adding_streams(s->graph, node) * again;
    }
    return ECH_OK;
}

static double move_seconds(const ech__spread *s, const ech__move *move, int64_t bytes)
{
    if (!s->links) {
        const double copied = ech__size_seconds(&s->machine->copy, bytes);
        const ech__cluster plain = ech__cluster_defaults();
        return copied > 0 ? copied : ech__price_message(&plain.inside, bytes);
    }
    const int64_t each = s->links->devices_per_node;
    const bool far = each && move->from / each != move->to / each;
    return ech__price_message(far ? &s->links->between : &s->links->inside, bytes);
}

/* What crosses between devices, from the graph that is placed as the training would be. */
static ech_status find_moves(ech_ctx *ctx, ech_graph *graph, const ech__spread *s,
                             ech__stage_time *stages, ech__price *price)
{
    ech__layers layers;
    ECH_TRY(ech__passes_forward(graph));
    ECH_TRY(ech__layers_find(graph, &layers));
    for (int i = 0; i < layers.count; i++)
        layers.at[i].device = s->layers->at[i].device;
    ECH_TRY(ech__place_layers(graph, &layers));
    ECH_TRY(ech__passes_infer_cast(graph, s->config->train.amp.type));
    const int count = ech__moves_count(graph);
    ech__move *moves = ech__new(ctx, (size_t)(count + 1) * sizeof *moves);
    if (!moves)
        return ech__no_memory(ctx, "%d transfers", count);
    ech__moves_of(graph, moves);
    for (int i = 0; i < count; i++) {
        const int64_t bytes = moves[i].bytes * price->batch;
        const double seconds = move_seconds(s, &moves[i], bytes);
        stages[moves[i].from].send_s += seconds;
        stages[moves[i].to].send_back_s += seconds;
        price->step.comm_s += 2 * seconds * price->micros;
        if ((double)(bytes * price->micros) > price->step.busiest_bytes)
            price->step.busiest_bytes = (double)(bytes * price->micros);
    }
    ech__delete(ctx, moves, (size_t)(count + 1) * sizeof *moves);
    return ECH_OK;
}

static ech_status simulate(ech_ctx *ctx, const ech__spread *s, const ech__price *price,
                           const ech__stage_time *stages, ech__pipe_times *out)
{
    return ech__pipe_simulate(ctx, s->config->train.pipeline.schedule, (int)price->devices,
                              price->micros, stages, out);
}

/* The device that is busiest waits for the others, as it would if messages took no time, and for messages. */
ech_status ech__price_spread(ech_ctx *ctx, const ech__spread *s, ech__price *price)
{
    ech__stage_time stages[ECH__MAX_STAGES] = {{0}};
    ech__pipe_times times, unsent;
    ech_graph *graph;
    ECH_TRY(find_times(ctx, s, price, stages));
    ECH_TRY(ech__graph_clone(s->model, &graph));
    const ech_status status = find_moves(ctx, graph, s, stages, price);
    ech_graph_destroy(graph);
    ECH_TRY(status);
    ECH_TRY(simulate(ctx, s, price, stages, &times));
    for (int d = 0; d < price->devices; d++) {
        if (times.busy_s[d] > price->step.compute_s)
            price->step.compute_s = times.busy_s[d];
        stages[d].send_s = stages[d].send_back_s = 0;
    }
    ECH_TRY(simulate(ctx, s, price, stages, &unsent));
    price->bubble = times.bubble;
    price->wait_s += unsent.step_s - price->step.compute_s;
    price->step.step_s = times.step_s + price->overhead_s;
    price->step.exposed_s = times.step_s - unsent.step_s;
    price->step.hidden_s = fmax(price->step.comm_s - price->step.exposed_s, 0);
    return ECH_OK;
}

static ech_status check_layers(ech_graph *graph, const ech__run_config *config, int64_t devices)
{
    ech__model model;
    ech__layers layers;
    ECH_TRY(ech__model_build(graph, &config->model, &model));
    ECH_TRY(ech__passes_forward(graph));
    ECH_TRY(ech__layers_find(graph, &layers));
    const ech__price price = {.devices = devices, .batch = 1};
    const ech__placement placement = placement_of(config, &price);
    ECH_TRY(ech__placement_apply(graph->ctx, &placement, &layers));
    if (config->train.pipeline.micro_batches > 1 && !ech__layers_in_order(&layers))
        return ech__fail(graph->ctx, ECH_E_INVALID,
                         "placement '%s': a pipeline needs its layers in the order of the devices",
                         config->train.pipeline.placement);
    return ECH_OK;
}

ech_status ech__pricing_check_layers(ech_ctx *ctx, const ech__run_config *config, int64_t devices)
{
    ech_graph *graph;
    ECH_TRY(ech_graph_create(ctx, &graph));
    const ech_status status = check_layers(graph, config, devices);
    ech_graph_destroy(graph);
    return status;
}
