/* Mixed precision as a rewrite. Linear layers and convolutions have 16-bit inputs and outputs, and
 * so do all operators between and after them: the operator table says which operands are 16-bit and
 * which stay f32 (statistics, losses, gradients of parameters). Every operator computes in f32 and
 * rounds its output: a loss takes the prediction in its type and gives its gradient in the same
 * type. So casts are needed only for f32 inputs of the graph and for f32 results.
 *
 * The cast of an input is recomputed in the backward pass instead of being kept, because the input
 * itself is kept anyway. */
#include "graph/graph.h"

typedef struct caster {
    ech_graph *graph;
    ech_dtype dtype;
    size_t nvalues; /* when the pass began */
    ech_value *low
        [ECH__PHASE_COUNT]; /* [nvalues] the cast of a value, by the phase that made it; -1: none */
    int *device; /* [nvalues] that made the cast: an input may be used by layers on several */
} caster;

static bool is_f32(const caster *c, ech_value v)
{
    return c->graph->values[v].type.dtype == ECH_F32;
}

/* Whether input i of the node is part of what flows. A vector that is added to each row is a parameter. */
static bool flows(const caster *c, const ech__node *node, int i)
{
    const ech__value *values = c->graph->values;
    const bool row = node->op == ECH__OP_ADD &&
                     values[node->in[i]].type.shape.ndims != values[node->in[0]].type.shape.ndims;
    return (ech__op_info(node->op)->low_in >> i & 1) && !row;
}

/* Whether the node is to work on the low type: it begins the flow, or is part of it. */
static bool is_reached(const caster *c, const ech__node *node)
{
    if (ech__op_info(node->op)->product && is_f32(c, node->in[0]) && is_f32(c, node->in[1]))
        return true;
    for (int i = 0; i < node->nin; i++) {
        if (flows(c, node, i) && c->graph->values[node->in[i]].type.dtype == c->dtype)
            return true;
    }
    return false;
}

/* Adds a cast at a place before others, of the phase and device of a node; it makes a value of its own. */
static ech_value insert_cast(caster *c, ech_value from, ech_dtype to, size_t of, size_t at)
{
    ech_graph *graph = c->graph;
    graph->phase = graph->nodes[of].phase;
    const ech_value cast = ech__graph_add(graph, &(ech__node){.op = ECH__OP_CAST,
                                                              .name = graph->values[from].name,
                                                              .device = graph->nodes[of].device,
                                                              .attrs = {.dtype = to},
                                                              .nin = 1,
                                                              .in = {from}});
    if (cast >= 0)
        ech__graph_move_last(graph, at);
    return cast;
}

/* Lets the node at *at take its f32 inputs through casts; moves *at on by those that come before it. */
static ech_status cast_inputs(caster *c, size_t *at)
{
    const ech__phase phase = c->graph->nodes[*at].phase;
    const int device = c->graph->nodes[*at].device;
    for (int i = 0; i < c->graph->nodes[*at].nin; i++) {
        const ech__node *node = &c->graph->nodes[*at];
        const ech_value v = node->in[i];
        if (!flows(c, node, i) || !is_f32(c, v))
            continue;
        const bool again = c->graph->values[v].kind == ECH__VALUE_INPUT;
        ech_value *known = &c->low[again ? phase : ECH__PHASE_FORWARD][v];
        if (*known < 0 || c->device[v] != device) {
            *known = insert_cast(c, v, c->dtype, *at, *at);
            if (*known < 0)
                return c->graph->status;
            c->device[v] = device;
            ++*at;
        }
        c->graph->nodes[*at].in[i] = *known;
    }
    return ECH_OK;
}

/* What only operators read becomes low. What others read too (a kept value, the gradient of a parameter) stays f32,
 * and is made by a cast from a low one. */
static ech_status cast_outputs(caster *c, size_t at)
{
    ech_graph *graph = c->graph;
    const unsigned low_out = ech__op_info(graph->nodes[at].op)->low_out;
    for (int i = 0; i < graph->nodes[at].nout; i++) {
        const ech_value v = graph->nodes[at].out[i];
        ech__value *value = &graph->values[v];
        if (!(low_out >> i & 1) || value->type.dtype != ECH_F32)
            continue;
        if (value->kind == ECH__VALUE_ACTIVATION && !value->kept) {
            value->type.dtype = c->dtype;
            continue;
        }
        const ech_value low =
            ech__graph_value(graph, &(ech__value){.name = value->name,
                                                  .kind = ECH__VALUE_ACTIVATION,
                                                  .type = {c->dtype, value->type.shape},
                                                  .of = -1});
        const ech_value cast = low < 0 ? low : insert_cast(c, low, ECH_F32, at, at + 1);
        if (cast < 0)
            return graph->status;
        graph->nodes[at].out[i] = low;
        graph->nodes[at + 1].out[0] = v; /* the value it made itself is unused */
        c->low[ECH__PHASE_FORWARD][v] = low;
        c->device[v] = graph->nodes[at].device;
    }
    return ECH_OK;
}

static ech_status begin(caster *c)
{
    c->device = ech__arena_array(&c->graph->arena, c->nvalues, sizeof *c->device);
    bool ok = c->device != NULL;
    for (int p = 0; ok && p < ECH__PHASE_COUNT; p++) {
        c->low[p] = ech__arena_array(&c->graph->arena, c->nvalues, sizeof *c->low[p]);
        ok = c->low[p] != NULL;
        for (size_t v = 0; ok && v < c->nvalues; v++)
            c->low[p][v] = -1;
    }
    return ok ? ECH_OK
              : ech__no_memory(c->graph->ctx, "the casts of a graph of %zu operators",
                               c->graph->nnodes);
}

ech_status ech__autocast(ech_graph *graph, ech_dtype dtype)
{
    ECH_TRY(graph->status);
    if (!ech__dtype_is_low(dtype))
        return ech__fail(graph->ctx, ECH_E_INVALID,
                         "mixed precision in %s: bf16 and f16 are possible",
                         ech__dtype_name(dtype));
    caster c = {.graph = graph, .dtype = dtype, .nvalues = graph->nvalues};
    ECH_TRY(begin(&c));
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (!is_reached(&c, &graph->nodes[n]))
            continue;
        ECH_TRY(cast_inputs(&c, &n));
        ECH_TRY(cast_outputs(&c, n));
    }
    return ECH_OK;
}
