#include "parallel/ddp/ddp.h"

#include <stdio.h>

/* ---- batch norm over all ranks ---- */

static void replace_input(ech__node *node, ech_value from, ech_value to)
{
    for (int i = 0; i < node->nin; i++) {
        if (node->in[i] == from)
            node->in[i] = to;
    }
}

/* The statistics become those of all ranks before anyone reads them. */
static ech_status sync_stats(ech_graph *graph, size_t at)
{
    const ech__node stats = graph->nodes[at];
    graph->phase = stats.phase;
    const ech_value running =
        ech__graph_add(graph, &(ech__node){.op = ECH__OP_SYNC_STATS,
                                           .name = stats.name,
                                           .nin = 3,
                                           .in = {stats.out[0], stats.out[1], stats.in[0]}});
    if (running < 0)
        return (ech_status)running;
    ech__graph_move_last(graph, at + 1);
    for (size_t n = at + 2; n < graph->nnodes; n++) {
        if (graph->nodes[n].op == ECH__OP_BN_RUNNING)
            replace_input(&graph->nodes[n], stats.out[1], running);
    }
    return ECH_OK;
}

/* The gradients of gamma and beta stay this rank's, to be added up with the others'; the gradient
 * of the data needs the sums over all ranks. */
static ech_status sync_sums(ech_graph *graph, size_t at)
{
    const ech__node reduce = graph->nodes[at];
    graph->phase = reduce.phase;
    const ech_value sums =
        ech__graph_add(graph, &(ech__node){.op = ECH__OP_SYNC_SUMS,
                                           .name = reduce.name,
                                           .nin = 2,
                                           .in = {reduce.out[0], reduce.out[1]}});
    if (sums < 0)
        return (ech_status)sums;
    ech__graph_move_last(graph, at + 1);
    for (size_t n = at + 2; n < graph->nnodes; n++) {
        if (graph->nodes[n].op != ECH__OP_BN_BWD_DATA)
            continue;
        replace_input(&graph->nodes[n], reduce.out[0], sums);
        replace_input(&graph->nodes[n], reduce.out[1], sums + 1);
    }
    return ECH_OK;
}

ech_status ech__ddp_sync_bn(ech_graph *graph)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].op == ECH__OP_BN_STATS)
            ECH_TRY(sync_stats(graph, n));
        else if (graph->nodes[n].op == ECH__OP_BN_REDUCE)
            ECH_TRY(sync_sums(graph, n));
    }
    return ECH_OK;
}

/* ---- buckets ---- */

static int64_t bytes_of(const ech_graph *graph, ech_value v)
{
    int64_t elements = 0;
    ech__shape_elems(&graph->values[v].type.shape, &elements);
    return elements * ech__dtype_bytes(graph->values[v].type.dtype);
}

/* The place after the last operator that makes, changes or reads a value. From there on the value
 * may be exchanged. */
static size_t free_from(const ech_graph *graph, ech_value v)
{
    size_t behind = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        for (int i = 0; i < node->nin + node->nout; i++) {
            if ((i < node->nin ? node->in[i] : node->out[i - node->nin]) == v)
                behind = n + 1;
        }
    }
    return behind;
}

typedef struct ready {
    ech_value gradient;
    size_t at;
} ready;

/* All gradients, in the order in which they can be exchanged; ties are in the order of their
 * numbers. */
static size_t find_ready(const ech_graph *graph, ready *out)
{
    size_t count = 0;
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].kind != ECH__VALUE_GRADIENT)
            continue;
        const ready next = {(ech_value)v, free_from(graph, (ech_value)v)};
        size_t i = count++;
        for (; i > 0 && out[i - 1].at > next.at; i--)
            out[i] = out[i - 1];
        out[i] = next;
    }
    return count;
}

/* The place behind the last exchange of a bucket: buckets start in the order of their numbers. */
static size_t behind_buckets(const ech_graph *graph)
{
    size_t behind = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].op == ECH__OP_ALLREDUCE)
            behind = n + 1;
    }
    return behind;
}

/* ---- gradients in a smaller type ---- */

/* What travels for a gradient. */
static ech_value add_sent(ech_graph *graph, ech_value gradient, ech_dtype wire)
{
    const ech__value *value = &graph->values[gradient], *param = &graph->values[value->of];
    const char *name = ech__arena_printf(&graph->arena, "%s.sent", param->name);
    if (!name)
        return (ech_value)ech__no_memory(graph->ctx, "the buckets of gradients");
    const ech__value sent = {
        .name = name, .kind = ECH__VALUE_SENT, .type = {wire, value->type.shape}, .of = value->of};
    return ech__graph_value(graph, &sent);
}

static ech_status add_conversion(ech_graph *graph, ech_value to, ech_value from)
{
    const ech_value param = graph->values[to].of;
    const ech__node node = {
        .op = ECH__OP_CONVERT, .name = graph->values[param].name, .nin = 2, .in = {to, from}};
    return ech__graph_add(graph, &node) < 0 ? graph->status : ECH_OK;
}

/* Takes the place of the gradients by what travels for them; the operators that make it stand from
 * *at on, which moves behind them. */
static ech_status send_converted(ech_graph *graph, ech_dtype wire, ech_value *members, size_t count,
                                 size_t *at)
{
    for (size_t i = 0; i < count; i++) {
        const ech_value sent = add_sent(graph, members[i], wire);
        if (sent < 0)
            return (ech_status)sent;
        ECH_TRY(add_conversion(graph, sent, members[i]));
        ech__graph_move_last(graph, (*at)++);
        members[i] = sent;
    }
    return ECH_OK;
}

/* Behind the wait: what follows has the sums as the gradients that they are of. */
static ech_status convert_back(ech_graph *graph)
{
    const size_t nvalues = graph->nvalues;
    graph->phase = ECH__PHASE_CHECK;
    for (size_t v = 0; v < nvalues; v++) {
        if (graph->values[v].kind == ECH__VALUE_SENT)
            ECH_TRY(add_conversion(graph, ech__graph_gradient(graph, graph->values[v].of),
                                   (ech_value)v));
    }
    return ECH_OK;
}

/* ---- buckets in the graph ---- */

/* The parameters of the gradients, in the same order. */
static ech_status group_params(ech_graph *graph, int number, const ech_value *gradients,
                               size_t count)
{
    char name[32];
    ech_value *params = ech__arena_array(&graph->arena, count, sizeof *params);
    if (!params)
        return ech__no_memory(graph->ctx, "the buckets of gradients");
    for (size_t i = 0; i < count; i++)
        params[i] = graph->values[gradients[i]].of;
    snprintf(name, sizeof name, "parameters %d", number);
    return ech__graph_group(graph, name, params, count) < 0 ? graph->status : ECH_OK;
}

/* A bucket may travel when nobody touches its gradients any more, nor their parameters where these
 * are changed as soon as it has arrived. */
static ech_status add_bucket(ech_graph *graph, const ech__ddp_options *options, int number,
                             ech_value *members, size_t count)
{
    char name[32];
    size_t at = behind_buckets(graph);
    for (size_t i = 0; i < count; i++) {
        const size_t from = free_from(graph, members[i]);
        const size_t other =
            options->group_params ? free_from(graph, graph->values[members[i]].of) : 0;
        at = from > at ? from : at;
        at = other > at ? other : at;
    }
    if (options->group_params)
        ECH_TRY(group_params(graph, number, members, count));
    if (options->wire == ECH_BF16)
        ECH_TRY(send_converted(graph, options->wire, members, count, &at));
    snprintf(name, sizeof name, "bucket %d", number);
    const ech_value group = ech__graph_group(graph, name, members, count);
    if (group < 0)
        return (ech_status)group;
    const ech__node node = {.op = ECH__OP_ALLREDUCE,
                            .name = name,
                            .attrs = {.bucket = number},
                            .nin = 1,
                            .in = {group}};
    if (ech__graph_add(graph, &node) < 0)
        return graph->status;
    ech__graph_move_last(graph, at);
    return ECH_OK;
}

static ech_status fill_buckets(ech_graph *graph, const ech__ddp_options *options)
{
    ready *order = ech__arena_array(&graph->arena, graph->nvalues, sizeof *order);
    ech_value *members = ech__arena_array(&graph->arena, graph->nvalues, sizeof *members);
    if (!order || !members)
        return ech__no_memory(graph->ctx, "the buckets of gradients");
    const size_t total = find_ready(graph, order);
    size_t first = 0;
    for (int number = options->first_bucket; first < total; number++) {
        size_t count = 0;
        int64_t bytes = 0, enough = options->bucket_bytes;
        if (first == 0 && enough > ECH__FIRST_BUCKET_BYTES)
            enough = ECH__FIRST_BUCKET_BYTES;
        do {
            members[count] = order[first + count].gradient;
            bytes += bytes_of(graph, members[count++]);
        } while (first + count < total && bytes < enough);
        first += count;
        ECH_TRY(add_bucket(graph, options, number, members, count));
    }
    return ECH_OK;
}

static ech_status copy_buckets(ech_graph *graph, const ech__ddp_options *options)
{
    const ech_graph *like = options->like;
    ech_value *members = ech__arena_array(&graph->arena, graph->nvalues, sizeof *members);
    if (!members)
        return ech__no_memory(graph->ctx, "the buckets of gradients");
    for (size_t n = 0; n < like->nnodes; n++) {
        size_t count = 0;
        if (like->nodes[n].op != ECH__OP_ALLREDUCE)
            continue;
        for (size_t v = 0; v < like->nvalues; v++) {
            if (!like->values[v].grouped || like->values[v].group != like->nodes[n].in[0])
                continue;
            members[like->values[v].place] = ech__graph_gradient(graph, like->values[v].of);
            count++;
        }
        ECH_TRY(add_bucket(graph, options, (int)like->nodes[n].attrs.bucket, members, count));
    }
    return ECH_OK;
}

static ech_status broadcast_buffers(ech_graph *graph)
{
    ech_value *members = ech__arena_array(&graph->arena, graph->nvalues, sizeof *members);
    size_t count = 0;
    if (!members)
        return ech__no_memory(graph->ctx, "the group of buffers");
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].kind == ECH__VALUE_BUFFER)
            members[count++] = (ech_value)v;
    }
    if (!count)
        return ECH_OK;
    const ech_value group = ech__graph_group(graph, "buffers", members, count);
    if (group >= 0)
        ech__graph_add(
            graph,
            &(ech__node){.op = ECH__OP_BROADCAST, .name = "buffers", .nin = 1, .in = {group}});
    return graph->status;
}

ech_status ech__ddp(ech_graph *graph, const ech__ddp_options *options)
{
    ECH_TRY(graph->status);
    if (options->sync_bn)
        ECH_TRY(ech__ddp_sync_bn(graph));
    graph->phase = ECH__PHASE_EXCHANGE;
    ECH_TRY(options->like ? copy_buckets(graph, options) : fill_buckets(graph, options));
    if (options->broadcast_buffers)
        ECH_TRY(broadcast_buffers(graph));
    ech__graph_add(graph, &(ech__node){.op = ECH__OP_ALLREDUCE_WAIT, .name = "all buckets"});
    ECH_TRY(graph->status);
    return convert_back(graph);
}

ech__ddp_bytes ech__ddp_count(const ech_graph *graph)
{
    ech__ddp_bytes bytes = {0};
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *value = &graph->values[v];
        if (value->grouped &&
            (value->kind == ECH__VALUE_GRADIENT || value->kind == ECH__VALUE_SENT))
            bytes.gradients += bytes_of(graph, (ech_value)v);
        else if (value->grouped && value->kind == ECH__VALUE_BUFFER)
            bytes.buffers += bytes_of(graph, (ech_value)v);
    }
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__op op = graph->nodes[n].op;
        if (op == ECH__OP_SYNC_STATS || op == ECH__OP_SYNC_SUMS)
            bytes.statistics += 2 * bytes_of(graph, graph->nodes[n].in[0]);
    }
    return bytes;
}

/* ---- updates by the rank that has the sum ---- */

static ech_status update_in_place(ech_graph *graph, const ech__node *update)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        ech__node *node = &graph->nodes[n];
        if (node->op != ECH__OP_ALLREDUCE || node->in[0] != update->in[1])
            continue;
        const int64_t bucket = node->attrs.bucket;
        node->attrs = update->attrs;
        node->attrs.bucket = bucket;
        node->attrs.update = (int)update->op;
        node->nin = update->nin;
        node->in[1] = update->in[0];
        for (int i = 2; i < update->nin; i++)
            node->in[i] = update->in[i];
        return ECH_OK;
    }
    return ech__fail(graph->ctx, ECH_E_INTERNAL, "no bucket has the gradients of '%s'",
                     update->name);
}

ech_status ech__ddp_update(ech_graph *graph)
{
    size_t kept = 0;
    ECH_TRY(graph->status);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node node = graph->nodes[n];
        const bool moved = node.phase == ECH__PHASE_OPTIMIZER &&
                           graph->values[node.in[0]].kind == ECH__VALUE_GROUP;
        if (moved)
            ECH_TRY(update_in_place(graph, &node));
        else
            graph->nodes[kept++] = node;
    }
    graph->nnodes = kept;
    return ECH_OK;
}
