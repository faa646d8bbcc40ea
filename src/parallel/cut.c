/* Cuts a labelled graph into the parts of its devices. */
#include "parallel/place.h"

static void drop_unused_values(ech_graph *graph, bool *known)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        for (int i = 0; i < node->nin; i++)
            known[node->in[i]] = true;
        for (int i = 0; i < node->nout; i++)
            known[node->out[i]] = true;
    }
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (known[v])
            continue;
        graph->values[v].kind = ECH__VALUE_ACTIVATION;
        graph->values[v].of = -1;
        graph->values[v].kept = false;
    }
}

/* One end of a transfer, or the operator itself; false where it belongs to others. */
static bool take(ech_graph *graph, const ech__node *node, int device, int64_t link, ech__node *out)
{
    *out = *node;
    if (node->op != ECH__OP_TRANSFER)
        return node->device == device;
    out->attrs.link = link;
    if (node->attrs.from == device) {
        out->op = ECH__OP_SEND;
        out->nout = 0;
        ech__graph_keep(graph, node->in[0]);
        return true;
    }
    out->op = ECH__OP_RECV;
    out->nin = 0;
    return node->attrs.to == device;
}

static bool makes_weights(const ech__node *node)
{
    return node->op == ECH__OP_LINEAR_BWD_WEIGHTS || node->op == ECH__OP_CONV2D_BWD_WEIGHTS;
}

/* Whether a node reads what another one makes. */
static bool reads(const ech__node *node, const ech__node *maker)
{
    for (int i = 0; i < node->nin; i++) {
        for (int k = 0; k < maker->nout; k++) {
            if (node->in[i] == maker->out[k])
                return true;
        }
    }
    return false;
}

/* The previous device waits for the gradient of the data. No device waits for the gradient of the
 * weights, so the data's is computed first. */
static void send_early(ech_graph *part)
{
    for (size_t n = 1; n < part->nnodes; n++) {
        size_t at = n;
        bool needed = false;
        if (part->nodes[n].op != ECH__OP_SEND || part->nodes[n].phase != ECH__PHASE_BACKWARD)
            continue;
        while (at > 0 && !makes_weights(&part->nodes[at]) &&
               part->nodes[at - 1].phase == ECH__PHASE_BACKWARD)
            at--;
        const ech__node weights = part->nodes[at];
        if (!makes_weights(&weights))
            continue;
        for (size_t k = at + 1; k <= n; k++)
            needed |= reads(&part->nodes[k], &weights);
        for (size_t k = at; k < n && !needed; k++)
            part->nodes[k] = part->nodes[k + 1];
        if (!needed)
            part->nodes[n] = weights;
    }
}

ech_status ech__cut(const ech_graph *graph, int device, ech_ctx *ctx, ech_graph **out)
{
    if (ech__graph_clone(graph, out) < 0)
        return ech__no_memory(ctx, "a part of a graph of %zu operators", graph->nnodes);
    ech_graph *part = *out;
    int64_t link = 0;
    bool *known = ech__arena_array(&part->arena, part->nvalues + 1, sizeof *known);
    if (!known) {
        ech_graph_destroy(part);
        *out = NULL;
        return ech__no_memory(ctx, "a part of a graph of %zu operators", graph->nnodes);
    }
    part->ctx = ctx; /* it has the same allocator */
    part->nnodes = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const bool transfer = graph->nodes[n].op == ECH__OP_TRANSFER;
        ech__node node = part->nodes[n], kept;
        if (take(part, &node, device, link, &kept))
            part->nodes[part->nnodes++] = kept;
        link += transfer;
    }
    send_early(part);
    drop_unused_values(part, known);
    return ECH_OK;
}
