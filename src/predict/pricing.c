#include "predict/pricing.h"
#include "data/loader.h"
#include "device/device.h"
#include "predict/memory.h"
#include "predict/points.h"
#include "predict/pricing_pipe.h"
#include "train/step/optimizer.h"
#include "train/step/passes.h"

#include <math.h>
#include <string.h>

struct ech__pricing {
    ech_ctx *ctx;
    ech__pricing_options options;
    ech__arena arena;
    ech_graph *model, *graph; /* as it is written, and with all passes */
    ech__halves halves;       /* DataParallel; else empty */
    ech__layers layers;       /* mp and pipeline; else empty */
    ech__cluster cluster;
    ech__algorithm algorithm;
    ech__cost_points points;  /* all that were measured alone */
    ech__cost_points crowded; /* those of them that were measured beside others, too */
    ech__planned_memory memory;
    ech__priced_op
        *ops; /* [nnodes + 1], in the order of the nodes, and what comes behind the step */
    size_t nops;
    int64_t *bucket_bytes; /* [nnodes], 0 where there is none */
    int64_t params, exchanged, largest_bucket;
};

ech__run_config ech__pricing_single(const ech__run_config *config, ech__strategy strategy,
                                    int64_t batch)
{
    ech__run_config c = *config;
    c.train.batch = batch;
    c.global_batch = 0;
    c.train.ddp.group = NULL;
    c.train.accum = 1;
    if (ech__loss_scale(&c.train) == 0) /* as it is, without a word about why */
        c.train.amp.loss_scale = -1;
    ech__strategy_set(&c.train, strategy, ech__strategy_row_of(strategy)->cuts_model ? 0 : 1);
    return c;
}

/* ---- times of operators at any batch ---- */

static int64_t bytes_of(const ech_graph *graph, ech_value v)
{
    int64_t elements = 0;
    ech__shape_elems(&graph->values[v].type.shape, &elements);
    return elements * ech__dtype_bytes(graph->values[v].type.dtype);
}

static bool is_exchange(const ech__node *node)
{
    return ech__op_info(node->op)->exchange;
}

/* Operators that a device alone, whose costs are known, does not have. */
static bool is_of_several(const ech__node *node)
{
    return is_exchange(node) || node->op == ECH__OP_CONVERT;
}

/* How many devices share this machine's memory, as a share of those that were measured side by side. */
static double crowding(const ech__pricing *p, int64_t devices)
{
    const int K = p->options.beside;
    if (p->options.cluster || K < 2 || devices < 2)
        return 0;
    return devices >= K ? 1 : (double)(devices - 1) / (double)(K - 1);
}

typedef struct asked {
    size_t node;
    int phase;
} asked;

static double node_seconds(const ech__cost_point *point, const void *arg)
{
    return point->alone_s[((const asked *)arg)->node];
}

/* How much longer it takes beside others. */
static double node_more(const ech__cost_point *point, const void *arg)
{
    const asked *a = arg;
    return point->beside_s[a->node] - point->alone_s[a->node];
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

static double phase_seconds(const ech__cost_point *point, const void *arg)
{
    return point->alone->phase_s[((const asked *)arg)->phase];
}

static double hand_over_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->hand_over_s;
}

static double loader_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->loader_s;
}

/* A conversion between f32 and 16 bits moves three quarters of what a copy does. */
static double convert_seconds(const ech__pricing *p, const ech__node *node, int64_t devices)
{
    const ech__machine_costs *machine = ech__costs_machine((ech__costs *)p->options.costs);
    const ech_value param = p->graph->values[node->in[0]].of;
    return devices > 1 ? ech__size_seconds(&machine->copy, bytes_of(p->graph, param) * 3 / 4) : 0;
}

/* A time alone, and how much longer it is beside others. */
typedef struct both {
    ech__cost_of alone, more;
} both;

static double at_batch(const ech__pricing *p, int64_t batch, bool grows, both of, double crowded,
                       const asked *a)
{
    double seconds = ech__cost_at(&p->points, batch, grows, of.alone, a);
    if (crowded > 0)
        seconds += crowded * ech__cost_at(&p->crowded, batch, grows, of.more, a);
    return seconds;
}

/* Fills in the times of the operators. */
static void fill_times(ech__pricing *p, int64_t devices, int64_t batch, double crowded)
{
    for (size_t n = 0; n < p->graph->nnodes; n++) {
        const asked a = {.node = n};
        const ech__phase phase = p->graph->nodes[n].phase;
        if (p->graph->nodes[n].op == ECH__OP_CONVERT)
            p->ops[n].seconds = convert_seconds(p, &p->graph->nodes[n], devices);
        else if (!is_exchange(&p->graph->nodes[n]))
            p->ops[n].seconds =
                at_batch(p, batch, phase == ECH__PHASE_FORWARD || phase == ECH__PHASE_BACKWARD,
                         (both){node_seconds, node_more}, crowded, &a);
    }
}

static double sum_of(const ech__pricing *p, ech__priced_kind kind)
{
    double sum = 0;
    for (size_t n = 0; n < p->graph->nnodes; n++) {
        if (p->ops[n].kind == kind)
            sum += p->ops[n].seconds;
    }
    return sum;
}

/* ---- operators of the graph and of the costs ---- */

static bool same_op(const ech__node *node, const ech__op_cost *op)
{
    return !strcmp(ech__op_name(node->op), op->op) &&
           !strcmp(ech__phase_name(node->phase), op->phase) &&
           !strcmp(node->name ? node->name : "", op->name);
}

/* Both have the same operators in the same order, but for those of the exchange. */
static ech_status match(ech__pricing *p, const ech__step_cost *cost, double **out)
{
    const ech_graph *graph = p->graph;
    size_t at = 0;
    *out = ech__arena_array(&p->arena, graph->nnodes, sizeof **out);
    if (!*out)
        return ech__no_memory(p->ctx, "the times of operators");
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (is_of_several(node))
            continue;
        if (at == cost->nops || !same_op(node, &cost->ops[at]))
            return ech__fail(p->ctx, ECH_E_FORMAT,
                             "the costs that are kept are of another graph: they have no %s '%s' "
                             "at place %zu; measure anew",
                             ech__op_name(node->op), node->name ? node->name : "", at);
        (*out)[n] = cost->ops[at++].median_s;
    }
    return ECH_OK;
}

static ech_status find_points(ech__pricing *p)
{
    ech__pricing_options *o = &p->options;
    const ech__run_config single = ech__pricing_single(o->config, o->strategy, 1);
    const ech__costs_key key = ech__costs_key_of(&single);
    int64_t batches[ECH__MOST_POINTS];
    if (o->cluster ||
        ech__costs_batches(o->costs, key.s, o->beside, batches, ECH__MOST_POINTS) == 0)
        o->beside = 1; /* copies side by side may have been too large for the memory */
    const bool crowded = o->beside > 1;
    const int count = ech__costs_batches(o->costs, key.s, 1, batches, ECH__MOST_POINTS);
    for (int i = 0; i < count; i++) {
        ech__cost_point point = {.batch = batches[i],
                                 .alone = ech__costs_find(o->costs, key.s, batches[i], 1)};
        if (crowded)
            point.beside = ech__costs_find(o->costs, key.s, batches[i], o->beside);
        ECH_TRY(match(p, point.alone, &point.alone_s));
        if (point.beside)
            ECH_TRY(match(p, point.beside, &point.beside_s));
        p->points.at[p->points.count++] = point;
        if (point.beside)
            p->crowded.at[p->crowded.count++] = point;
    }
    return p->points.count ? ECH_OK
                           : ech__fail(p->ctx, ECH_E_INVALID,
                                       "the costs of '%s' are not known on this machine", key.s);
}

/* ---- what is exchanged ---- */

static int64_t group_bytes(const ech_graph *graph, ech_value group)
{
    int64_t bytes = 0;
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].grouped && graph->values[v].group == group)
            bytes += bytes_of(graph, (ech_value)v);
    }
    return bytes;
}

static ech__priced_op describe(const ech_graph *graph, const ech__node *node)
{
    switch (node->op) {
    case ECH__OP_ALLREDUCE:
        return (ech__priced_op){ECH__PRICED_BUCKET, 0, group_bytes(graph, node->in[0])};
    case ECH__OP_ALLREDUCE_WAIT:
        return (ech__priced_op){ECH__PRICED_WAIT, 0, 0};
    case ECH__OP_BROADCAST:
        return (ech__priced_op){ECH__PRICED_SYNC, 0, group_bytes(graph, node->in[0])};
    case ECH__OP_SYNC_STATS:
    case ECH__OP_SYNC_SUMS:
        return (ech__priced_op){ECH__PRICED_SYNC, 0, 2 * bytes_of(graph, node->in[0])};
    default:
        break;
    }
    switch (node->phase) {
    case ECH__PHASE_FORWARD:
        return (ech__priced_op){.kind = ECH__PRICED_FORWARD};
    case ECH__PHASE_BACKWARD:
    case ECH__PHASE_EXCHANGE: /* what a device does itself before a bucket starts */
        return (ech__priced_op){.kind = ECH__PRICED_BACKWARD};
    default:
        return (ech__priced_op){.kind = ECH__PRICED_OPTIMIZER};
    }
}

/* What ranks tell each other after a step: figures, and when each bucket was where. */
static int64_t report_bytes(int64_t buckets)
{
    return (int64_t)sizeof(ech__report) + buckets * (int64_t)sizeof(ech__coll_times);
}

static ech_status describe_all(ech__pricing *p)
{
    const ech_graph *graph = p->graph;
    int64_t buckets = 0;
    p->ops = ech__arena_array(&p->arena, graph->nnodes + 1, sizeof *p->ops);
    p->bucket_bytes = ech__arena_array(&p->arena, graph->nnodes, sizeof *p->bucket_bytes);
    if (!p->ops || !p->bucket_bytes)
        return ech__no_memory(p->ctx, "%zu operators", graph->nnodes);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__priced_op *op = &p->ops[n];
        p->ops[n] = describe(graph, &graph->nodes[n]);
        if (op->kind != ECH__PRICED_BUCKET)
            continue;
        buckets++;
        p->bucket_bytes[n] = op->bytes;
        p->exchanged += op->bytes;
        p->largest_bucket = op->bytes > p->largest_bucket ? op->bytes : p->largest_bucket;
    }
    p->nops = graph->nnodes;
    if (buckets && !p->options.cluster)
        p->ops[p->nops++] = (ech__priced_op){ECH__PRICED_SYNC, 0, report_bytes(buckets)};
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].kind == ECH__VALUE_PARAM)
            p->params += bytes_of(graph, (ech_value)v) / (int64_t)sizeof(float);
    }
    return ECH_OK;
}

/* ---- ddp ---- */

static ech_status prepare_ddp(ech__pricing *p, ech_value loss)
{
    const ech_train_options *o = &p->options.config->train;
    ECH_TRY(ech__graph_clone(p->model, &p->graph));
    const ech__ddp_options exchange = {.bucket_bytes = o->ddp.bucket_bytes,
                                       .wire = o->ddp.grad_dtype,
                                       .broadcast_buffers = o->ddp.broadcast_buffers};
    ECH_TRY(ech__passes_forward(p->graph));
    ECH_TRY(ech__passes_backward(p->graph, (ech__backward_from){loss, -1}, o));
    return ech__passes_step(p->graph, &(ech__step_passes){.train = o,
                                                          .exchange = &exchange,
                                                          .checks = ech__checks_gradients(o),
                                                          .updates = true});
}

/* Arrays that an update changes: the parameters and the optimizer's states. */
static int changed_arrays(const ech_train_options *o)
{
    return 1 + ech__optimizer_states(o);
}

/* Devices that share memory and have one thread add up a shard of the gradients, update the parameters by it and hand these
 * out instead of the sum (parallel/ddp/exchange.c). That is an exchange, and an N-th of the optimizer; each state that changes
 * beside the parameters is written for the others too, which is the half of an exchange. */
static void update_together(ech__pricing *p, const ech__price *price)
{
    const double more = 0.5 * (changed_arrays(&p->options.config->train) - 1);
    for (size_t n = 0; n < p->graph->nnodes; n++) {
        if (p->graph->nodes[n].phase == ECH__PHASE_OPTIMIZER)
            p->ops[n].seconds /= (double)price->devices;
        if (p->ops[n].kind == ECH__PRICED_BUCKET)
            p->ops[n].bytes = (int64_t)((double)p->bucket_bytes[n] * (1 + more));
    }
}

static ech_status price_ddp(ech__pricing *p, ech__price *price)
{
    const ech__priced_op *ops = p->ops;
    const ech_train_options *o = &p->options.config->train;
    const bool together = !p->options.cluster && o->threads == 1 && o->ddp.sharded_update &&
                          o->ddp.grad_dtype == ECH_F32 && !ech__checks_gradients(o);
    /* A device alone exchanges nothing, and reports to nobody. */
    if (price->devices == 1) {
        const double forward = sum_of(p, ECH__PRICED_FORWARD);
        const double backward = sum_of(p, ECH__PRICED_BACKWARD);
        price->step.compute_s = forward + backward + sum_of(p, ECH__PRICED_OPTIMIZER);
        price->step.step_s = price->step.compute_s + price->overhead_s;
        return ECH_OK;
    }
    if (together)
        update_together(p, price);
    price->step =
        ech__price_step(ops, p->nops, &p->cluster, p->algorithm, price->devices, price->overhead_s);
    price->algorithm =
        ech__price_allreduce(&p->cluster, p->algorithm, price->devices, p->largest_bucket)
            .algorithm;
    if (together) /* gradients of the others' shards in, what was changed out */
        price->step.busiest_bytes = (double)p->exchanged * changed_arrays(o) *
                                    (double)(price->devices - 1) / (double)price->devices;
    return ECH_OK;
}

static int64_t gradient_bytes(const ech__pricing *p, bool largest)
{
    int64_t sum = 0, most = 0;
    for (size_t v = 0; v < p->graph->nvalues; v++) {
        const int64_t bytes =
            p->graph->values[v].kind == ECH__VALUE_GRADIENT ? bytes_of(p->graph, (ech_value)v) : 0;
        sum += bytes;
        most = bytes > most ? bytes : most;
    }
    return largest ? most : sum;
}

/* The micro-steps before the last. */
static void add_micro_steps(const ech__pricing *p, ech__price *price)
{
    const ech__machine_costs *machine = ech__costs_machine((ech__costs *)p->options.costs);
    const double others = p->options.config->train.accum - 1;
    double each = ech__size_seconds(&machine->add, gradient_bytes(p, false));
    for (size_t n = 0; n < p->graph->nnodes; n++) {
        const ech__phase phase = p->graph->nodes[n].phase;
        if (phase == ECH__PHASE_FORWARD || phase == ECH__PHASE_BACKWARD)
            each += p->ops[n].seconds;
    }
    /* They exchange nothing, and so nobody waits for others in them. */
    price->step.compute_s += others * each;
    price->step.step_s += others * (each + price->other_s);
    price->overhead_s += others * price->other_s;
    price->other_s *= 1 + others;
    price->loading_s *= 1 + others;
    price->global *= 1 + (int64_t)others;
    price->measured = price->measured && others == 0;
}

/* ---- DataParallel ---- */

static ech_status prepare_dp(ech__pricing *p, ech_value loss)
{
    const ech_train_options *o = &p->options.config->train;
    ECH_TRY(ech__split_loss(p->model, loss, &p->halves));
    p->graph = p->halves.body;
    ECH_TRY(ech__passes_forward(p->graph));
    ECH_TRY(ech__passes_backward(p->graph,
                                 (ech__backward_from){p->halves.prediction, p->halves.grad_in}, o));
    return ech__passes_step(p->graph, &(ech__step_passes){.train = o, .updates = true});
}

/* Bytes of one sample of a value, or all of it where it has no samples. */
static int64_t row_bytes(const ech_graph *graph, ech_value v)
{
    ech__shape shape = graph->values[v].type.shape;
    int64_t elements = 0;
    if (shape.ndims && shape.dims[0] == ECH_BATCH)
        shape.dims[0] = 1;
    ech__shape_elems(&shape, &elements);
    return elements * ech__dtype_bytes(graph->values[v].type.dtype);
}

/* What device 0 moves for each of the others. */
typedef struct moved {
    int64_t inputs, weights, outputs, gradients;
} moved;

static moved moved_by(const ech__pricing *p, int64_t rows)
{
    const ech_graph *body = p->halves.body;
    moved m = {0};
    for (size_t v = 0; v < body->nvalues; v++) {
        const ech__value *value = &body->values[v];
        if (value->kind == ECH__VALUE_INPUT && (ech_value)v != p->halves.grad_in)
            m.inputs += row_bytes(body, (ech_value)v) * rows;
        else if (value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_BUFFER)
            m.weights += bytes_of(body, (ech_value)v);
        else if (value->kind == ECH__VALUE_GRADIENT)
            m.gradients += bytes_of(body, (ech_value)v);
    }
    m.outputs = row_bytes(body, p->halves.prediction) * rows;
    return m;
}

/* A message from device 0 to each of the others; they leave its port one behind the other. */
static double send_all(const ech__pricing *p, int64_t devices, int64_t bytes)
{
    const int64_t each = p->cluster.devices_per_node;
    const int64_t near = each && each < devices ? each - 1 : devices - 1;
    const int64_t far = devices - 1 - near;
    return (double)near * ech__price_message(&p->cluster.inside, bytes) +
           (double)far * ech__price_message(&p->cluster.between, bytes);
}

/* A step is handed over to device 0's thread, and two parts of it to the others'. */
static double hand_over(const ech__pricing *p, const ech__price *price)
{
    const ech__machine_costs *machine = ech__costs_machine((ech__costs *)p->options.costs);
    if (price->devices == 1)
        return ech__cost_at(&p->points, price->batch, false, hand_over_seconds, NULL);
    return machine->step_job_s + 2 * machine->part_job_s;
}

/* Where devices have all cores, the loader of the whole batch takes its time from them; it is bound to none, so that each loses its
 * share. It loads several small batches at once and then none for a while: the step in the middle sees that only where at least
 * every other one does. */
static double loading_beside(const ech__pricing *p, const ech__price *price)
{
    if (crowding(p, price->devices) < 1 || ech__loader_burst(price->global) > 2)
        return 0;
    return ech__cost_at(&p->points, price->global, true, loader_seconds, NULL) /
           (double)price->devices;
}

static ech_status price_dp(ech__pricing *p, ech__price *price)
{
    const ech__machine_costs *machine = ech__costs_machine((ech__costs *)p->options.costs);
    const int64_t N = price->devices;
    const moved m = moved_by(p, price->batch);
    double phase[ECH__DP_PHASES];
    /* Device 0 does these for all samples, its own included, alone. */
    for (int i = 0; i < ECH__DP_PHASES; i++)
        phase[i] =
            ech__cost_at(&p->points, price->global, true, phase_seconds, &(asked){.phase = i});
    const double replicate = ech__size_seconds(&machine->copy, m.weights) * (double)(N - 1);
    const double add = ech__size_seconds(&machine->add, m.gradients) * (double)(N - 1);
    double exposed =
        phase[ECH__DP_SCATTER] + phase[ECH__DP_GATHER] + phase[ECH__DP_SCATTER_GRADIENT];
    if (N > 1 && p->options.cluster)
        exposed += send_all(p, N, m.inputs) + send_all(p, N, m.weights) +
                   2 * send_all(p, N, m.outputs) + send_all(p, N, m.gradients);
    else if (N > 1) /* and the others fetch what was copied, and write again what was read */
        exposed += replicate + ech__size_seconds(&machine->fetch, m.weights) +
                   ech__size_seconds(&machine->rewrite, m.gradients);
    const double parts = sum_of(p, ECH__PRICED_FORWARD) + sum_of(p, ECH__PRICED_BACKWARD);
    fill_times(p, N, price->batch, 0); /* it updates alone, too */
    price->step.compute_s =
        parts + phase[ECH__DP_LOSS] + (N > 1 ? add : 0) + sum_of(p, ECH__PRICED_OPTIMIZER);
    price->step.comm_s = price->step.exposed_s = exposed;
    price->overhead_s += hand_over(p, price) + loading_beside(p, price);
    price->step.step_s = price->step.compute_s + exposed + price->overhead_s;
    const double out = (double)(N - 1) * (double)(m.inputs + m.weights + m.outputs);
    const double in = (double)(N - 1) * (double)(m.outputs + m.gradients);
    price->step.busiest_bytes = fmax(out, in);
    return ECH_OK;
}

/* ---- layers on several devices ---- */

static ech_status prepare_pipe(ech__pricing *p, ech_value loss)
{
    const ech_train_options *o = &p->options.config->train;
    ECH_TRY(ech__graph_clone(p->model, &p->graph));
    ECH_TRY(ech__passes_forward(p->graph));
    ECH_TRY(ech__layers_find(p->graph, &p->layers));
    ECH_TRY(ech__passes_backward(p->graph, (ech__backward_from){loss, -1}, o));
    return ech__passes_step(p->graph, &(ech__step_passes){.train = o, .updates = true});
}

static ech_status price_pipe(ech__pricing *p, ech__price *price)
{
    if (price->devices == 1)
        return price_ddp(p, price);
    const ech__spread spread = {.config = p->options.config,
                                .model = p->model,
                                .graph = p->graph,
                                .layers = &p->layers,
                                .ops = p->ops,
                                .links = p->options.cluster,
                                .machine = ech__costs_machine((ech__costs *)p->options.costs)};
    return ech__price_spread(p->ctx, &spread, price);
}

/* ---- ways of going parallel ---- */

typedef struct strategy {
    unsigned unpriced; /* features that can be trained with, and whose price is not known */
    ech_status (*prepare)(ech__pricing *p, ech_value loss);  /* p->graph */
    ech_status (*price)(ech__pricing *p, ech__price *price); /* p->ops have their times */
} strategy;

static const strategy strategies[] = {
    [ECH__STRATEGY_DDP] = {0, prepare_ddp, price_ddp},
    [ECH__STRATEGY_DP] = {0, prepare_dp, price_dp},
    [ECH__STRATEGY_MP] = {ECH__FEATURE_BIT(ACCUM), prepare_pipe, price_pipe},
    [ECH__STRATEGY_PIPELINE] = {ECH__FEATURE_BIT(ACCUM), prepare_pipe, price_pipe},
};

_Static_assert(sizeof strategies / sizeof *strategies == ECH__STRATEGY_COUNT,
               "every strategy has a price");

ech_status ech__pricing_check(ech_ctx *ctx, ech__strategy s, unsigned features)
{
    ECH_TRY(ech__strategy_check_flags(ctx, (ech__spread_by){.strategy = s}, features));
    for (ech__feature f = (ech__feature)0; f < ECH__FEATURE_COUNT; f++) {
        if (features & strategies[s].unpriced & (1U << f))
            return ech__fail(ctx, ECH_E_INVALID, "%s: its price is not known with %s",
                             ech__feature_flag(f), ech__strategy_row_of(s)->title);
    }
    return ECH_OK;
}

int ech__strategy_micros(ech__strategy s, const ech__run_config *config, int64_t devices,
                         int64_t global)
{
    if (ech__strategy_refusal((ech__spread_by){.strategy = s}, ECH__FEATURE_MICRO_BATCHES) ||
        devices == 1)
        return 1;
    return config->train.pipeline.micro_batches ? config->train.pipeline.micro_batches
                                                : ech__pipe_default_micros(global, (int)devices);
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
    p->cluster = (ech__cluster){.nodes = 1};
    p->algorithm = ECH__ALGORITHM_DIRECT;
    if (!ech__costs_link(o->costs, p->largest_bucket, true, &p->cluster.inside))
        p->cluster = ech__cluster_defaults();
    p->cluster.between = p->cluster.inside;
    return ECH_OK;
}

static ech_status prepare(ech__pricing *p)
{
    ech__model model;
    ECH_TRY(ech_graph_create(p->ctx, &p->model));
    ECH_TRY(ech__model_build(p->model, &p->options.config->model, &model));
    ECH_TRY(strategies[p->options.strategy].prepare(p, model.loss));
    ECH_TRY(describe_all(p));
    ECH_TRY(find_links(p));
    return find_points(p);
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
    p->memory = (ech__planned_memory){.config = options->config, .strategy = options->strategy};
    ech__arena_init(&p->arena, ctx->alloc);
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
    ech_graph_destroy(p->graph);
    ech_graph_destroy(p->halves.head);
    ech_graph_destroy(p->model);
    ech__arena_fini(&p->arena);
    ech__delete(p->ctx, p, sizeof *p);
}

/* The estimate of a step of one device. */
static double alone_seconds(ech__pricing *p, int64_t batch)
{
    fill_times(p, 1, batch, 0);
    return sum_of(p, ECH__PRICED_FORWARD) + sum_of(p, ECH__PRICED_BACKWARD) +
           sum_of(p, ECH__PRICED_OPTIMIZER) +
           ech__cost_at(&p->points, batch, false, overhead_seconds, NULL);
}

/* A step that was measured takes what it took. Each instant of a step counts once: what is no operator, no exchange and no
 * waiting is the rest. Medians of operators may add up to more than that of the step; then there is no rest. */
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
    const int micros =
        ech__strategy_micros(p->options.strategy, p->options.config, devices, global);
    if (global % micros)
        return ech__fail(p->ctx, ECH_E_INVALID,
                         "%lld samples in %d micro-batches: they must divide them",
                         (long long)global, micros);
    *out = (ech__price){
        .devices = devices,
        .batch = ech__strategy_batch(p->options.strategy, p->options.config, devices, global),
        .global = global,
        .micros = micros,
        .between = true,
        .algorithm = p->algorithm};
    for (int i = 0; i < p->points.count; i++)
        out->between = out->between && p->points.at[i].batch != out->batch;
    out->measured = devices == 1 && !out->between;
    const double alone = alone_seconds(p, out->batch);
    const ech__cost_range range = ech__cost_range_at(&p->points, out->batch, alone);
    const double crowded = s->one_by_one ? 0 : crowding(p, devices);
    fill_times(p, devices, out->batch, crowded);
    out->overhead_s =
        at_batch(p, out->batch, false, (both){overhead_seconds, overhead_more}, crowded, NULL);
    out->wait_s = crowded * ech__cost_at(&p->crowded, out->batch, false, wait_seconds, NULL);
    out->loading_s = ech__cost_at(&p->points, out->batch, true, loading_seconds, NULL);
    ECH_TRY(strategies[p->options.strategy].price(p, out));
    add_up(p, out);
    add_micro_steps(p, out);
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
