#include "predict/operators.h"
#include "plan/plan.h"
#include "train/step/optimizer.h"
#include "train/strategy/pipe.h"

#include <assert.h>
#include <string.h>

void ech__operators_init(ech__operators *o, ech_ctx *ctx)
{
    *o = (ech__operators){.ctx = ctx};
    ech__arena_init(&o->arena, ctx->alloc);
}

void ech__operators_fini(ech__operators *o)
{
    for (int i = 0; i < o->count; i++) {
        if (!o->planned && o->at[i].graph != o->split.body)
            ech_graph_destroy(o->at[i].graph);
    }
    ech_graph_destroy(o->split.body);
    ech_graph_destroy(o->split.head);
    ech_trainer_destroy(o->planned);
    ech__arena_fini(&o->arena);
    *o = (ech__operators){.ctx = o->ctx, .arena = {.alloc = o->arena.alloc}};
}

/* ---- which there are ---- */

/* One sample where there are many. */
int64_t ech__value_bytes(const ech_graph *graph, ech_value v)
{
    ech__shape shape = graph->values[v].type.shape;
    int64_t elements = 0;
    if (shape.ndims && shape.dims[0] == ECH_BATCH)
        shape.dims[0] = 1;
    ech__shape_elems(&shape, &elements);
    return elements * ech__dtype_bytes(graph->values[v].type.dtype);
}

static int64_t group_bytes(const ech_graph *graph, ech_value group)
{
    int64_t bytes = 0;
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].grouped && graph->values[v].group == group)
            bytes += ech__value_bytes(graph, (ech_value)v);
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
        return (ech__priced_op){ECH__PRICED_SYNC, 0, 2 * ech__value_bytes(graph, node->in[0])};
    case ECH__OP_SEND:
        return (ech__priced_op){ECH__PRICED_MESSAGE, 0, ech__value_bytes(graph, node->in[0])};
    case ECH__OP_RECV: /* it has its price where it is sent */
        return (ech__priced_op){ECH__PRICED_MESSAGE, 0, ech__value_bytes(graph, node->out[0])};
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

static const unsigned COMPUTE = ECH__PHASE_BIT(FORWARD) | ECH__PHASE_BIT(BACKWARD), ALL = ~0U;

/* Takes the graph over, also where it fails. */
static ech_status add_list(ech__operators *o, ech__operator_list described)
{
    ech__operator_list *list = &o->at[o->count++];
    *list = described;
    ech_graph *graph = list->graph;
    list->ops = ech__arena_array(&o->arena, graph->nnodes + 1, sizeof *list->ops);
    list->bytes = ech__arena_array(&o->arena, graph->nnodes + 1, sizeof *list->bytes);
    list->measured = ech__arena_array(&o->arena, graph->nnodes + 1, sizeof *list->measured);
    list->updates = ech__arena_array(&o->arena, graph->nvalues + 1, sizeof *list->updates);
    if (!list->ops || !list->bytes || !list->measured || !list->updates)
        return ech__no_memory(o->ctx, "%zu operators", graph->nnodes);
    for (size_t n = 0; n < graph->nnodes; n++) {
        list->ops[n] = describe(graph, &graph->nodes[n]);
        list->bytes[n] = list->ops[n].bytes;
    }
    return ECH_OK;
}

static ech_status reserve(ech__operators *o, int64_t devices, int lists)
{
    ech__operators_fini(o);
    o->at = ech__arena_array(&o->arena, (size_t)lists, sizeof *o->at);
    if (!o->at)
        return ech__no_memory(o->ctx, "%d graphs", lists);
    o->devices = devices;
    return ECH_OK;
}

ech_status ech__operators_of_ranks(const ech_graph *model, ech_value loss,
                                   const ech__graphs_options *options, ech__operators *out)
{
    ech_graph *graphs[ECH__MAX_ROLES];
    const int steps = ech__micro_steps(options->train, options->ranks);
    const int last = ech__role_of(options->train->ddp.reproducible, steps - 1, steps);
    ECH_TRY(reserve(out, options->ranks, ECH__MAX_ROLES));
    ech_status status = ech__graphs_of_rank(model, loss, options, graphs);
    for (int role = 0; role < ECH__MAX_ROLES && graphs[role]; role++) {
        const ech_status added = add_list(
            out, (ech__operator_list){
                     .graph = graphs[role], .role = role, .phases = role == last ? ALL : COMPUTE});
        status = status < 0 ? status : added;
    }
    out->roles = out->count;
    return status;
}

ech_status ech__operators_of_split(const ech_graph *model, ech_value loss,
                                   const ech__graphs_options *options, ech__operators *out)
{
    ECH_TRY(reserve(out, 1, 2));
    ECH_TRY(ech__graphs_of_split(model, loss, options, &out->split));
    out->roles = 1;
    ECH_TRY(add_list(out, (ech__operator_list){.graph = out->split.body, .phases = ALL}));
    return add_list(out, (ech__operator_list){.graph = out->split.body,
                                              .device = 1,
                                              .phases = COMPUTE | ECH__PHASE_BIT(REFRESH)});
}

ech_status ech__operators_of_layers(ech_trainer *planned, ech__operators *out)
{
    const ech__pipe *pipe = ech__trainer_pipe(planned);
    const int devices = ech__pipe_devices(pipe);
    const ech_status status = reserve(out, devices, 2 * devices);
    out->planned = planned;
    ECH_TRY(status);
    for (int d = 0; d < devices; d++) {
        ech_graph **graphs = ech__pipe_stage(pipe, d)->graphs;
        ECH_TRY(add_list(out, (ech__operator_list){.graph = graphs[ECH__PIPE_WRITES],
                                                   .device = d,
                                                   .role = ECH__PIPE_WRITES,
                                                   .phases = ALL}));
        if (graphs[ECH__PIPE_ADDS])
            ECH_TRY(add_list(out, (ech__operator_list){.graph = graphs[ECH__PIPE_ADDS],
                                                       .device = d,
                                                       .role = ECH__PIPE_ADDS,
                                                       .phases = COMPUTE}));
    }
    out->roles = out->count / devices;
    return ECH_OK;
}

/* ---- which of them was measured ---- */

/* The operators of a device alone that this one is, or makes more of. */
static bool is_measured(ech__op op)
{
    return !ech__op_info(op)->exchange && op != ECH__OP_CONVERT && op != ECH__OP_ACCUMULATE &&
           op != ECH__OP_DELAY && op != ECH__OP_SEND && op != ECH__OP_RECV;
}

static bool same(const ech__op_cost *cost, ech__op op, const char *phase, const char *name)
{
    assert(cost->op && cost->phase && cost->name);
    return !strcmp(ech__op_name(op), cost->op) && !strcmp(phase, cost->phase) &&
           !strcmp(name ? name : "", cost->name);
}

/* Operators of one name come in one order. name NULL: any. used: which are found already. */
static int find(const ech__step_cost *cost, const ech__node *node, const char *name, bool *used)
{
    const ech__op op =
        node->op == ECH__OP_LINEAR_ADD_WEIGHTS ? ECH__OP_LINEAR_BWD_WEIGHTS : node->op;
    for (size_t i = 0; i < cost->nops; i++) {
        if (used[i] ||
            !same(&cost->ops[i], op, ech__phase_name(node->phase), name ? name : cost->ops[i].name))
            continue;
        used[i] = true;
        return (int)i;
    }
    return -1;
}

static int find_update(const ech__step_cost *cost, const char *param)
{
    for (size_t i = 0; i < cost->nops; i++) {
        if (!strcmp(cost->ops[i].phase, ech__phase_name(ECH__PHASE_OPTIMIZER)) &&
            !strcmp(cost->ops[i].name, param))
            return (int)i;
    }
    return -1;
}

static void match_names(ech__operator_list *list, const ech__step_cost *cost, bool *used)
{
    const ech_graph *graph = list->graph;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        list->measured[n] =
            is_measured(node->op) ? find(cost, node, node->name ? node->name : "", used) : -1;
    }
    for (size_t v = 0; v < graph->nvalues; v++)
        list->updates[v] = graph->values[v].kind == ECH__VALUE_PARAM
                               ? find_update(cost, graph->values[v].name)
                               : -1;
}

/* A sum of gradients has another name where one of them comes from another device. */
static ech_status match_others(ech_ctx *ctx, ech__operator_list *list, const ech__step_cost *cost,
                               bool *used)
{
    const ech_graph *graph = list->graph;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!is_measured(node->op) || list->measured[n] >= 0)
            continue;
        list->measured[n] = node->op == ECH__OP_ADD ? find(cost, node, NULL, used) : -1;
        if (list->measured[n] < 0)
            return ech__fail(ctx, ECH_E_FORMAT,
                             "the costs that are kept are of another graph: they have no %s '%s' "
                             "in the %s phase; measure anew",
                             ech__op_name(node->op), node->name ? node->name : "",
                             ech__phase_name(node->phase));
    }
    return ECH_OK;
}

/* Devices that have the layers of one model share its operators; else each has them all. */
ech_status ech__operators_match(ech__operators *o, const ech__step_cost *cost)
{
    const bool shared = o->planned != NULL;
    for (int role = 0; role < (shared ? o->roles : o->count); role++) {
        bool *used = ech__arena_array(&o->arena, cost->nops + 1, sizeof *used);
        if (!used)
            return ech__no_memory(o->ctx, "the comparison of operators");
        const int step = shared ? o->roles : o->count;
        for (int i = role; i < o->count; i += step)
            match_names(&o->at[i], cost, used);
        for (int i = role; i < o->count; i += step)
            ECH_TRY(match_others(o->ctx, &o->at[i], cost, used));
    }
    return ECH_OK;
}

/* ---- what they take ---- */

static double alone_seconds(const ech__cost_point *point, const void *op)
{
    return point->alone->ops[*(const int *)op].median_s;
}

/* How much longer it takes beside others. */
static double beside_more(const ech__cost_point *point, const void *op)
{
    const int i = *(const int *)op;
    return point->beside->ops[i].median_s - point->alone->ops[i].median_s;
}

static double measured_seconds(const ech__operator_times *t, int op, bool grows)
{
    if (op < 0)
        return 0;
    double seconds = ech__cost_at(t->alone, t->batch, grows, alone_seconds, &op);
    if (t->crowding > 0)
        seconds += t->crowding * ech__cost_at(t->crowded, t->batch, grows, beside_more, &op);
    return seconds;
}

/* An update of the parameters of a bucket by shards. */
static double shard_seconds(const ech__operator_list *list, const ech__node *node,
                            const ech__operator_times *t)
{
    double seconds = 0;
    for (size_t v = 0; node->nin > 1 && v < list->graph->nvalues; v++) {
        if (list->graph->values[v].grouped && list->graph->values[v].group == node->in[1])
            seconds += measured_seconds(t, list->updates[v], false);
    }
    return seconds / (double)t->devices;
}

/* The sum is handed out as parameters instead; each state that changes beside them is written
 * for the others too, which is the half of an exchange (parallel/ddp/exchange.c). */
static int64_t shard_bytes(const ech__node *node, int64_t bytes)
{
    const int states = node->nin > 2 ? node->nin - 2 : 0;
    return (int64_t)((double)bytes * (1 + 0.5 * states));
}

/* A conversion between f32 and 16 bits moves three quarters of what a copy does. */
static double convert_seconds(const ech_graph *graph, const ech__node *node,
                              const ech__operator_times *t)
{
    const ech_value param = graph->values[node->in[0]].of;
    return ech__size_seconds(&t->machine->copy, ech__value_bytes(graph, param) * 3 / 4);
}

/* Arrays of a gradient's size that an operator reads and writes to add it up. One that adds by
 * itself reads what it adds to. */
static int arrays_added(const ech__node *node)
{
    if (node->op == ECH__OP_LINEAR_ADD_WEIGHTS)
        return 1;
    return node->nin + (node->attrs.fresh ? 0 : 1);
}

/* Sums of gradients have the price per array that the update of their parameters has. */
static double sum_seconds(const ech__operator_list *list, const ech__node *node,
                          const ech__operator_times *t)
{
    const ech__value *values = list->graph->values;
    const int updated = 3 + 2 * ech__optimizer_states(t->train);
    double seconds = 0;
    for (int i = 0; i < node->nin; i++) {
        const ech__value *value = &values[node->in[i]];
        const bool sum = i == 0 && node->op == ECH__OP_ACCUMULATE;
        if (sum || value->kind == ECH__VALUE_GRADIENT)
            seconds += measured_seconds(t, list->updates[value->of], false);
    }
    return seconds * arrays_added(node) / updated;
}

static double seconds_of(const ech__operator_list *list, size_t n, const ech__operator_times *t)
{
    const ech__node *node = &list->graph->nodes[n];
    const bool grows = node->phase == ECH__PHASE_FORWARD || node->phase == ECH__PHASE_BACKWARD;
    const double measured = measured_seconds(t, list->measured[n], grows);
    switch (node->op) {
    case ECH__OP_DELAY:
        return node->attrs.seconds;
    case ECH__OP_CONVERT:
        return convert_seconds(list->graph, node, t);
    case ECH__OP_ALLREDUCE:
        return shard_seconds(list, node, t);
    case ECH__OP_ACCUMULATE:
    case ECH__OP_LINEAR_ADD_WEIGHTS:
        return measured + sum_seconds(list, node, t);
    default:
        return measured;
    }
}

/* On a device that is known by description. Operators are queued: where the host is slower, all of
 * them wait for it. */
static void time_by_device(ech__operator_list *list, const ech__operator_times *t)
{
    const ech_graph *graph = list->graph;
    double device_s = 0, host_s = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        ech__priced_op *op = &list->ops[n];
        op->seconds = 0;
        if (node->op == ECH__OP_ALLREDUCE)
            op->seconds = ech__roofline_sum(t->device, list->bytes[n], t->devices, t->end);
        else if (node->op == ECH__OP_DELAY)
            op->seconds = node->attrs.seconds;
        else if (!ech__op_info(node->op)->exchange) {
            const ech__work work = ech__node_work(graph, node, t->batch);
            op->seconds = ech__roofline_seconds(t->device, &work, t->end);
            device_s += op->seconds;
            host_s += work.launched ? ech__roofline_host(t->device, t->end) : 0;
        }
    }
    for (size_t n = 0; host_s > device_s && n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op != ECH__OP_DELAY && !ech__op_info(node->op)->exchange)
            list->ops[n].seconds *= host_s / device_s;
    }
}

void ech__operators_time(ech__operator_list *list, const ech__operator_times *t)
{
    if (t->device) {
        time_by_device(list, t);
        return;
    }
    for (size_t n = 0; n < list->graph->nnodes; n++) {
        const ech__node *node = &list->graph->nodes[n];
        list->ops[n].seconds = seconds_of(list, n, t);
        if (node->op == ECH__OP_ALLREDUCE)
            list->ops[n].bytes = shard_bytes(node, list->bytes[n]);
    }
}

double ech__operators_sum(const ech__operator_list *list, ech__priced_kind kind)
{
    double sum = 0;
    for (size_t n = 0; n < list->graph->nnodes; n++) {
        if (list->ops[n].kind == kind && list->phases & 1U << list->graph->nodes[n].phase)
            sum += list->ops[n].seconds;
    }
    return sum;
}
