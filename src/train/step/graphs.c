#include "train/step/graphs.h"
#include "device/device.h"
#include "train/step/optimizer.h"
#include "train/step/passes.h"
#include "train/step/scaler.h"

/* ---- micro-steps ---- */

static int log2_of(int power)
{
    int log = 0;
    while (1 << log < power)
        log++;
    return log;
}

int ech__micro_steps(const ech_train_options *o, int ranks)
{
    return o->ddp.reproducible ? o->ddp.slots / (ranks > 1 ? ranks : 1) : o->accum;
}

int ech__roles(const ech_train_options *o, int ranks)
{
    const int steps = ech__micro_steps(o, ranks);
    return o->ddp.reproducible ? 1 + log2_of(steps) : steps > 1 ? 2 : 1;
}

int ech__role_of(bool tree, int index, int count)
{
    int ones = 0;
    if (!tree)
        return index > 0;
    while (index >> ones & 1)
        ones++;
    return index == count - 1 ? 0 : 1 + ones;
}

/* How the micro-steps of a role add up. */
static ech__accumulation accumulation_of(const ech__graphs_options *o, int role)
{
    const int levels = log2_of(ech__micro_steps(o->train, o->ranks));
    if (!o->train->ddp.reproducible)
        return (ech__accumulation){.onto = true};
    return role ? (ech__accumulation){.levels = levels, .adds = role - 1, .into = role - 1}
                : (ech__accumulation){.levels = levels, .adds = levels, .into = levels};
}

/* ---- what happens to gradients ---- */

double ech__loss_scale(const ech_train_options *o)
{
    if (o->amp.loss_scale != 0)
        return o->amp.loss_scale > 0 ? o->amp.loss_scale : 0;
    return o->amp.type == ECH_AMP_FP16 ? ECH__SCALER_INITIAL : 0;
}

bool ech__checks_gradients(const ech_train_options *o)
{
    return ech__loss_scale(o) > 0 || o->optimizer.clip_norm > 0;
}

/* With several threads each rank updates all parameters with all threads instead. Ranks without
 * shared memory can only update their own copy. */
bool ech__updates_sharded(const ech__graphs_options *o)
{
    const ech_train_options *train = o->train;
    const int threads = train->threads ? train->threads : ech__device_cores();
    /* Parameters must not change before all gradients have been checked. */
    const bool seen = !ech__checks_gradients(train) && train->ddp.grad_dtype == ECH_F32;
    return o->ranks > 1 && train->ddp.sharded_update && threads == 1 && o->shared_memory && seen;
}

/* ---- one device ---- */

static ech_status rewrite(ech_graph *graph, int role, ech_value loss, const ech__graphs_options *o,
                          const ech_graph *first)
{
    const ech_train_options *train = o->train;
    const ech__accumulation how = accumulation_of(o, role);
    const bool adds = role || (train->ddp.reproducible && ech__micro_steps(train, o->ranks) > 1);
    const bool sharded = ech__updates_sharded(o);
    const ech__ddp_options exchange = {.bucket_bytes = train->ddp.bucket_bytes,
                                       .broadcast_buffers = train->ddp.broadcast_buffers,
                                       .sync_bn = train->ddp.sync_bn,
                                       .wire = train->ddp.grad_dtype,
                                       .group_params = sharded,
                                       .like = first};
    ECH_TRY(ech__passes_forward(graph));
    ECH_TRY(ech__passes_backward(graph, (ech__backward_from){loss, -1}, train));
    return ech__passes_step(
        graph, &(ech__step_passes){.train = train,
                                   .accumulation = adds ? &how : NULL,
                                   .exchange = o->ranks > 1 ? &exchange : NULL,
                                   .checks = ech__checks_gradients(train),
                                   .updates = true,
                                   .sharded_update = sharded,
                                   .delay_s = (train->delay_ms + o->straggle_ms) * 1e-3});
}

ech_status ech__graphs_of_rank(const ech_graph *model, ech_value loss, const ech__graphs_options *o,
                               ech_graph **out)
{
    for (int role = 0; role < ECH__MAX_ROLES; role++)
        out[role] = NULL;
    for (int role = 0; role < ech__roles(o->train, o->ranks); role++) {
        ECH_TRY(ech__graph_clone(model, &out[role]));
        ECH_TRY(rewrite(out[role], role, loss, o, role ? out[0] : NULL));
    }
    return ECH_OK;
}

/* ---- DataParallel ---- */

ech_status ech__graphs_of_split(const ech_graph *model, ech_value loss,
                                const ech__graphs_options *o, ech__split_model *out)
{
    ECH_TRY(ech__split_loss(model, loss, out));
    const ech__step_passes step = {
        .train = o->train, .updates = true, .delay_s = o->train->delay_ms * 1e-3};
    ECH_TRY(ech__passes_forward(out->body));
    ECH_TRY(ech__passes_backward(out->body, (ech__backward_from){out->prediction, out->grad_in},
                                 o->train));
    return ech__passes_step(out->body, &step);
}

/* ---- layers on several devices ---- */

int ech__micro_batches(const ech_train_options *o)
{
    return o->pipeline.micro_batches ? o->pipeline.micro_batches : 1;
}

ech__placement ech__graphs_placement(const ech_train_options *o)
{
    return (ech__placement){
        .text = o->pipeline.placement,
        .devices = o->pipeline.devices,
        .copies = 2 + ech__optimizer_states(o), /* of a parameter: itself and its gradient, too */
        .batch = o->batch / ech__micro_batches(o)};
}

static ech_status check_order(ech_ctx *ctx, const ech_train_options *o, const ech__layers *layers)
{
    const int micros = ech__micro_batches(o);
    return (micros == 1 && !o->pipeline.ranks) || ech__layers_in_order(layers)
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID,
                           "placement '%s' with %d micro-batches%s: a pipeline needs its layers in "
                           "the order of the devices",
                           o->pipeline.placement, micros,
                           o->pipeline.ranks ? " between ranks" : "");
}

ech_status ech__graphs_of_layers(const ech_graph *model, const ech__graphs_options *o,
                                 ech_graph **out, ech__layers *layers)
{
    const ech__placement placement = ech__graphs_placement(o->train);
    ECH_TRY(ech__graph_clone(model, out));
    ECH_TRY(ech__passes_forward(*out));
    ECH_TRY(ech__layers_find(*out, layers));
    /* A wrong placement is refused before anything takes time; balancing may place layers
     * differently later. */
    ECH_TRY(ech__placement_apply(model->ctx, &placement, layers));
    return check_order(model->ctx, o->train, layers);
}

ech_status ech__graphs_place(ech_graph *whole, ech__layers *layers, ech_value loss,
                             const ech__graphs_options *o)
{
    ECH_TRY(ech__place_layers(whole, layers));
    return ech__passes_backward(whole, (ech__backward_from){loss, -1}, o->train);
}

/* The graph of all micro-batches of a step but the first. */
static ech_status make_adding(const ech_graph *writes, bool inside, double delay_s, ech_graph **out)
{
    const ech__accumulation how = {.onto = true, .inside = inside};
    ECH_TRY(ech__graph_clone(writes, out));
    return ech__passes_step(*out, &(ech__step_passes){.accumulation = &how, .delay_s = delay_s});
}

ech_status ech__graphs_of_stage(const ech_graph *whole, int device, ech_ctx *ctx,
                                const ech__graphs_options *o, int *buckets, ech_graph **out)
{
    const ech_train_options *train = o->train;
    const double delay_s = device == train->pipeline.devices - 1 ? train->delay_ms * 1e-3 : 0;
    ECH_TRY(ech__cut(whole, device, ctx, &out[ECH__PIPE_WRITES]));
    ech_graph *writes = out[ECH__PIPE_WRITES];
    if (train->ddp.sync_bn && o->ranks > 1) /* of each micro-batch, over the groups */
        ECH_TRY(ech__ddp_sync_bn(writes));
    if (ech__micro_batches(train) > 1 || train->accum > 1) {
        ECH_TRY(make_adding(writes, true, delay_s, &out[ECH__PIPE_ADDS]));
        ECH_TRY(make_adding(writes, false, delay_s, &out[ECH__PIPE_ADDS_APART]));
    }
    const ech__ddp_options exchange = {.bucket_bytes = train->ddp.bucket_bytes,
                                       .broadcast_buffers = train->ddp.broadcast_buffers,
                                       .wire = train->ddp.grad_dtype,
                                       .first_bucket = *buckets};
    ECH_TRY(
        ech__passes_step(writes, &(ech__step_passes){.train = train,
                                                     .exchange = o->ranks > 1 ? &exchange : NULL,
                                                     .checks = ech__checks_gradients(train),
                                                     .updates = true,
                                                     .delay_s = delay_s}));
    for (size_t n = 0; n < writes->nnodes; n++)
        *buckets += writes->nodes[n].op == ECH__OP_ALLREDUCE;
    return ECH_OK;
}
