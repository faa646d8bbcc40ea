#include "quant/model.h"

#include <string.h>

const ech__node *ech__maker_of(const ech_graph *graph, ech_value value)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nout; i++) {
            if (graph->nodes[n].out[i] == value)
                return &graph->nodes[n];
        }
    }
    return NULL;
}

bool ech__is_layer(const ech_graph *graph, const ech__node *node)
{
    return (node->op == ECH__OP_LINEAR || node->op == ECH__OP_CONV2D) &&
           graph->values[node->in[1]].kind == ECH__VALUE_PARAM;
}

ech_value ech__prediction_of(const ech_graph *graph, ech_value loss)
{
    const ech__node *node = loss < 0 ? NULL : ech__maker_of(graph, loss);
    return node && ech__op_info(node->op)->is_loss ? node->in[0] : -1;
}

/* Leaves only what the output is made of. */
static void prune(ech_graph *graph, ech_value output, bool *needed)
{
    size_t kept = graph->nnodes;
    memset(needed, 0, graph->nvalues * sizeof *needed);
    needed[output] = true;
    for (size_t n = graph->nnodes; n-- > 0;) {
        const ech__node node = graph->nodes[n];
        bool used = false;
        for (int i = 0; i < node.nout; i++)
            used |= needed[node.out[i]];
        for (int i = 0; used && i < node.nin; i++)
            needed[node.in[i]] = true;
        if (used)
            graph->nodes[--kept] = node;
    }
    graph->nnodes -= kept;
    memmove(graph->nodes, graph->nodes + kept, graph->nnodes * sizeof *graph->nodes);
}

static ech_status find_input(ech__qmodel *model, const bool *needed)
{
    const ech_graph *graph = model->graph;
    model->input = -1;
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__value *value = &graph->values[v];
        if (value->kind != ECH__VALUE_INPUT || !needed[v])
            continue;
        if (model->input >= 0)
            return ech__fail(model->ctx, ECH_E_UNSUPPORTED,
                             "the prediction takes the inputs '%s' and '%s'; a network to quantize "
                             "has one",
                             graph->values[model->input].name, value->name);
        if (value->type.dtype != ECH_F32 || value->type.shape.ndims < 1 ||
            value->type.shape.dims[0] != ECH_BATCH)
            return ech__fail(model->ctx, ECH_E_UNSUPPORTED,
                             "the input '%s' is %s %s; f32 with a batch first can be quantized",
                             value->name, ech__dtype_name(value->type.dtype),
                             ech__shape_format(&value->type.shape).s);
        model->input = (ech_value)v;
    }
    return model->input >= 0 ? ECH_OK
                             : ech__fail(model->ctx, ECH_E_INVALID,
                                         "the prediction depends on no input of the graph");
}

static ech_status make_graphs(ech__qmodel *model, const ech_graph *graph, ech_value prediction,
                              ech__tensors *weights)
{
    ech_ctx *ctx = model->ctx;
    if (prediction < 0 || (size_t)prediction >= graph->nvalues || !ech__maker_of(graph, prediction))
        return ech__fail(ctx, ECH_E_INVALID, "the prediction is not a value of the graph");
    ECH_TRY(ech__graph_clone(graph, &model->graph));
    bool *needed = ech__arena_array(&model->graph->arena, graph->nvalues, sizeof *needed);
    if (!needed)
        return ech__no_memory(ctx, "%zu values", graph->nvalues);
    model->output = prediction;
    ECH_TRY(ech__infer_only(model->graph));
    prune(model->graph, prediction, needed);
    ECH_TRY(find_input(model, needed));
    ECH_TRY(ech__fold_norms(model->graph, weights));
    ech__graph_keep(model->graph, prediction);
    ECH_TRY(ech__graph_clone(model->graph, &model->fused));
    return ech__fuse(model->fused);
}

static ech_status finish(ech__qmodel *model, ech_status status)
{
    if (status < 0)
        ech__qmodel_fini(model);
    return status;
}

static ech_status from(ech__qmodel *model, const ech_graph *graph, ech_value prediction,
                       const ech__tensors *weights)
{
    ECH_TRY(ech__tensors_copy_all(&model->weights, weights));
    ECH_TRY(ech__tensors_check_finite(&model->weights));
    return make_graphs(model, graph, prediction, &model->weights);
}

static void begin(ech__qmodel *model, ech_ctx *ctx)
{
    *model = (ech__qmodel){.ctx = ctx, .input = -1, .output = -1};
    ech__tensors_init(ctx, &model->weights);
}

ech_status ech__qmodel_from(ech__qmodel *model, const ech_graph *graph, ech_value prediction,
                            const ech__tensors *weights)
{
    begin(model, graph->ctx);
    return finish(model, from(model, graph, prediction, weights));
}

ech_status ech__qmodel_bare(ech__qmodel *model, const ech_graph *graph, ech_value prediction)
{
    begin(model, graph->ctx);
    return finish(model, make_graphs(model, graph, prediction, NULL));
}

void ech__qmodel_fini(ech__qmodel *model)
{
    if (!model->ctx)
        return;
    ech_graph_destroy(model->graph);
    ech_graph_destroy(model->fused);
    ech__tensors_fini(&model->weights);
    *model = (ech__qmodel){.ctx = NULL};
}
