#include "train/pricing.h"
#include "data/loader.h"
#include "device/device.h"
#include "parallel/ddp.h"
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

enum { MAX_POINTS = 64 };

/* Costs of one batch, with an entry for each node of the graph (0 for those of the exchange). */
typedef struct cost_point {
    int64_t batch;
    const ech__step_cost *alone, *beside; /* beside: NULL where it does not matter */
    double *alone_s, *beside_s;           /* [nnodes] */
} cost_point;

struct ech__pricing {
    ech_ctx *ctx;
    ech__pricing_options options;
    ech__arena arena;
    ech_graph *model, *graph; /* as it is written, and with all passes */
    ech__halves halves;       /* DataParallel; else empty */
    ech__device *device;      /* DataParallel: to plan the head for */
    ech__cluster cluster;
    ech__algorithm algorithm;
    cost_point points[MAX_POINTS];
    int npoints;
    ech__priced_op
        *ops; /* [nnodes + 1], in the order of the nodes, and what comes behind the step */
    size_t nops;
    int64_t *bucket_bytes; /* [nnodes], 0 where there is none */
    int64_t params, exchanged, largest_bucket;
};

const char *ech__strategy_name(ech__strategy strategy)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        ECH__STRATEGY_LIST(NAME)
#undef NAME
    };
    return names[strategy];
}

ech__run_config ech__pricing_single(const ech__run_config *config, ech__strategy strategy,
                                    int64_t batch)
{
    ech__run_config c = *config;
    c.train.batch = batch;
    c.global_batch = 0;
    c.train.group = NULL;
    c.train.accum = 1;
    if (ech__loss_scale(&c.train) == 0) /* as it is, without a word about why */
        c.train.loss_scale = -1;
    c.train.dp_devices = strategy == ECH__STRATEGY_DP ? 1 : 0;
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

/* On the line through two points; from one point alone, in proportion to the batch or constant. Never below 0. */
static double on_line(const ech__pricing *p, int64_t batch, bool grows,
                      double (*of)(const cost_point *, const void *), const void *arg)
{
    const cost_point *points = p->points;
    int i = 1;
    while (i < p->npoints - 1 && points[i].batch < batch)
        i++;
    if (p->npoints == 1) {
        const double only = of(&points[0], arg);
        return grows ? only * (double)batch / (double)points[0].batch : only;
    }
    const cost_point *a = &points[i - 1], *b = &points[i];
    const double low = of(a, arg), high = of(b, arg);
    if (batch == a->batch)
        return low;
    if (batch == b->batch)
        return high;
    const double slope = (high - low) / (double)(b->batch - a->batch);
    if (batch > b->batch) /* noise must not make a large batch cost less than a smaller one */
        return high + fmax(slope, 0) * (double)(batch - b->batch);
    if (batch < a->batch)
        return fmax(low - fmax(slope, 0) * (double)(a->batch - batch), 0);
    return low + slope * (double)(batch - a->batch);
}

typedef struct asked {
    size_t node;
    double crowding;
    int phase;
} asked;

static double node_seconds(const cost_point *point, const void *arg)
{
    const asked *a = arg;
    const double alone = point->alone_s[a->node];
    return point->beside ? alone + a->crowding * (point->beside_s[a->node] - alone) : alone;
}

static double overhead_seconds(const cost_point *point, const void *arg)
{
    const asked *a = arg;
    const double alone = point->alone->overhead_s;
    return point->beside ? alone + a->crowding * (point->beside->overhead_s - alone) : alone;
}

static double wait_seconds(const cost_point *point, const void *arg)
{
    return point->beside ? ((const asked *)arg)->crowding * point->beside->wait_s : 0;
}

static double loading_seconds(const cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->loading_s;
}

static double phase_seconds(const cost_point *point, const void *arg)
{
    return point->alone->phase_s[((const asked *)arg)->phase];
}

static double hand_over_seconds(const cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->hand_over_s;
}

static double loader_seconds(const cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->loader_s;
}

static double memory_bytes(const cost_point *point, const void *arg)
{
    int64_t sum = 0;
    (void)arg;
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        sum += point->alone->memory[k];
    return (double)sum;
}

/* A conversion between f32 and 16 bits moves three quarters of what a copy does. */
static double convert_seconds(const ech__pricing *p, const ech__node *node, int64_t devices)
{
    const ech__machine_costs *machine = ech__costs_machine((ech__costs *)p->options.costs);
    const ech_value param = p->graph->values[node->in[0]].of;
    return devices > 1 ? ech__size_seconds(&machine->copy, bytes_of(p->graph, param) * 3 / 4) : 0;
}

/* Fills in the times of the operators. */
static void fill_times(ech__pricing *p, int64_t devices, int64_t batch, double crowded)
{
    for (size_t n = 0; n < p->graph->nnodes; n++) {
        const asked a = {.node = n, .crowding = crowded};
        const ech__phase phase = p->graph->nodes[n].phase;
        if (p->graph->nodes[n].op == ECH__OP_CONVERT)
            p->ops[n].seconds = convert_seconds(p, &p->graph->nodes[n], devices);
        else if (!is_exchange(&p->graph->nodes[n]))
            p->ops[n].seconds =
                on_line(p, batch, phase == ECH__PHASE_FORWARD || phase == ECH__PHASE_BACKWARD,
                        node_seconds, &a);
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
        return ech__fail(p->ctx, ECH_E_NOMEM, "no memory for the times of operators");
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
    int64_t batches[MAX_POINTS];
    if (o->cluster || ech__costs_batches(o->costs, key.s, o->beside, batches, MAX_POINTS) == 0)
        o->beside = 1; /* copies side by side may have been too large for the memory */
    const bool crowded = o->beside > 1;
    const int count = ech__costs_batches(o->costs, key.s, 1, batches, MAX_POINTS);
    for (int i = 0; i < count; i++) {
        cost_point *point = &p->points[p->npoints];
        point->batch = batches[i];
        point->alone = ech__costs_find(o->costs, key.s, batches[i], 1);
        point->beside = crowded ? ech__costs_find(o->costs, key.s, batches[i], o->beside) : NULL;
        if (crowded && !point->beside)
            continue;
        ECH_TRY(match(p, point->alone, &point->alone_s));
        if (point->beside)
            ECH_TRY(match(p, point->beside, &point->beside_s));
        p->npoints++;
    }
    return p->npoints ? ECH_OK
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
        return ech__fail(p->ctx, ECH_E_NOMEM, "no memory for %zu operators", graph->nnodes);
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
    ECH_TRY(ech__fuse(p->graph));
    ECH_TRY(ech__autodiff(p->graph, loss));
    if (o->recompute)
        ECH_TRY(ech__recompute(p->graph));
    ECH_TRY(ech__trainer_autocast(p->graph, o->amp));
    ECH_TRY(ech__ddp(p->graph, &(ech__ddp_options){.bucket_bytes = o->bucket_bytes,
                                                   .wire = o->grad_dtype,
                                                   .broadcast_buffers = o->broadcast_buffers}));
    if (ech__checks_gradients(o))
        ECH_TRY(ech__check_gradients(p->graph));
    ECH_TRY(ech__optimize(p->graph, o));
    return ech__copy_weights(p->graph);
}

/* Arrays that an update changes: the parameters and the optimizer's states. */
static int changed_arrays(const ech_train_options *o)
{
    return o->optimizer != ECH_SGD ? 3 : o->momentum != 0 ? 2 : 1;
}

/* Devices that share memory and have one thread add up a shard of the gradients, update the parameters by it and hand these
 * out instead of the sum (parallel/exchange.c). That is an exchange, and an N-th of the optimizer; each state that changes
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
    const bool together = !p->options.cluster && o->threads == 1 && o->shared_update &&
                          o->grad_dtype == ECH_F32 && !ech__checks_gradients(o);
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
    price->step.compute_s += others * each;
    price->step.step_s += others * (each + price->overhead_s);
    price->overhead_s *= 1 + others;
    price->loading_s *= 1 + others;
    price->global *= 1 + (int64_t)others;
    price->measured = price->measured && others == 0;
}

/* Beside what one micro-step needs: the parts of a gradient that are on their way into a sum, and what travels. */
static ech_status memory_ddp(ech__pricing *p, ech__price *price)
{
    const ech_train_options *o = &p->options.config->train;
    price->memory = (int64_t)on_line(p, price->batch, true, memory_bytes, NULL);
    if (o->accum > 1)
        price->memory += gradient_bytes(p, true);
    if (o->grad_dtype == ECH_BF16 && price->devices > 1)
        price->memory += gradient_bytes(p, false) / 2;
    return ECH_OK;
}

/* ---- DataParallel ---- */

static ech_status prepare_dp(ech__pricing *p, ech_value loss)
{
    const ech_train_options *o = &p->options.config->train;
    const ech__device_options device = {
        .kind = ECH__DEVICE_CPU, .threads = 1, .memory_limit = INT64_MAX / 4};
    ECH_TRY(ech__split_loss(p->model, loss, &p->halves));
    p->graph = p->halves.body;
    ECH_TRY(ech__fuse(p->graph));
    ECH_TRY(ech__autodiff_from(p->graph, p->halves.prediction, p->halves.grad_in));
    if (o->recompute)
        ECH_TRY(ech__recompute(p->graph));
    ECH_TRY(ech__optimize(p->graph, o));
    ECH_TRY(ech__copy_weights(p->graph));
    return ech__device_create(p->ctx, &device, &p->device);
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
        return on_line(p, price->batch, false, hand_over_seconds, NULL);
    return machine->step_job_s + 2 * machine->part_job_s;
}

/* Where devices have all cores, the loader of the whole batch takes its time from them; it is bound to none, so that each loses its
 * share. It loads several small batches at once and then none for a while: the step in the middle sees that only where at least
 * every other one does. */
static double loading_beside(const ech__pricing *p, const ech__price *price)
{
    if (crowding(p, price->devices) < 1 || ech__loader_burst(price->global) > 2)
        return 0;
    return on_line(p, price->global, true, loader_seconds, NULL) / (double)price->devices;
}

static ech_status price_dp(ech__pricing *p, ech__price *price)
{
    const ech__machine_costs *machine = ech__costs_machine((ech__costs *)p->options.costs);
    const int64_t N = price->devices;
    const moved m = moved_by(p, price->batch);
    double phase[ECH__DP_PHASES];
    /* Device 0 does these for all samples, its own included, alone. */
    for (int i = 0; i < ECH__DP_PHASES; i++)
        phase[i] = on_line(p, price->global, true, phase_seconds, &(asked){.phase = i});
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

/* Device 0 needs most: its part, and the whole batch beside it. */
static ech_status memory_dp(ech__pricing *p, ech__price *price)
{
    ech__plan *whole;
    ECH_TRY(ech__plan_create(p->halves.head, p->device,
                             &(ech__plan_options){.batch = price->global}, &whole));
    price->memory =
        (int64_t)on_line(p, price->batch, true, memory_bytes, NULL) + whole->total_bytes;
    ech__plan_destroy(whole);
    return ECH_OK;
}

/* ---- ways of going parallel ---- */

typedef struct strategy {
    int64_t most;
    ech_status (*prepare)(ech__pricing *p, ech_value loss);  /* p->graph */
    ech_status (*price)(ech__pricing *p, ech__price *price); /* p->ops have their times */
    ech_status (*memory)(ech__pricing *p, ech__price *price);
} strategy;

static const strategy strategies[ECH__STRATEGY_COUNT] = {
    [ECH__STRATEGY_DDP] = {1000000, prepare_ddp, price_ddp, memory_ddp},
    [ECH__STRATEGY_DP] = {ECH__DP_MAX_DEVICES, prepare_dp, price_dp, memory_dp},
};

int64_t ech__strategy_most(ech__strategy s)
{
    return strategies[s].most;
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
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for a price");
    p->ctx = ctx;
    p->options = *options;
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
    ech__device_destroy(p->device);
    ech_graph_destroy(p->graph);
    ech_graph_destroy(p->halves.head);
    ech_graph_destroy(p->model);
    ech__arena_fini(&p->arena);
    ech__delete(p->ctx, p, sizeof *p);
}

ech_status ech__pricing_at(ech__pricing *p, int64_t devices, int64_t global, ech__price *out)
{
    const strategy *s = &strategies[p->options.strategy];
    if (devices < 1 || devices > s->most)
        return ech__fail(p->ctx, ECH_E_INVALID, "%lld devices: %s has from 1 to %lld",
                         (long long)devices, ech__strategy_name(p->options.strategy),
                         (long long)s->most);
    if (global < devices)
        return ech__fail(p->ctx, ECH_E_INVALID,
                         "%lld samples a step for %lld devices: each needs one at least",
                         (long long)global, (long long)devices);
    const asked a = {.crowding = crowding(p, devices)};
    *out = (ech__price){.devices = devices,
                        .batch = (global + devices - 1) / devices,
                        .global = global,
                        .between = true,
                        .algorithm = p->algorithm};
    for (int i = 0; i < p->npoints; i++)
        out->between = out->between && p->points[i].batch != out->batch;
    out->measured = devices == 1 && !out->between;
    fill_times(p, devices, out->batch, a.crowding);
    out->overhead_s = on_line(p, out->batch, false, overhead_seconds, &a);
    out->wait_s = on_line(p, out->batch, false, wait_seconds, &a);
    out->loading_s = on_line(p, out->batch, true, loading_seconds, NULL);
    ECH_TRY(s->price(p, out));
    ECH_TRY(s->memory(p, out));
    add_micro_steps(p, out);
    out->samples_per_s = (double)out->global / out->step.step_s;
    return ECH_OK;
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
    return strategies[p->options.strategy].most;
}

int ech__pricing_batches(const ech__pricing *p, int64_t *out, int max)
{
    int count = 0;
    for (; count < p->npoints && count < max; count++)
        out[count] = p->points[count].batch;
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
