/* Cuts a model at the prediction that its loss takes: what comes before can be computed in parts of a batch, the loss
 * is of all of it. */
#include "graph/graph.h"

#include <assert.h>

typedef struct cutter {
    const ech_graph *model;
    ech__arena arena;
    ech_value prediction;
    bool *behind; /* [nvalues] leads to the prediction, or is it */
    bool *body;   /* [nnodes] */
} cutter;

static ech_status find_prediction(cutter *c, ech_value loss)
{
    const ech_graph *model = c->model;
    const ech__node *node = ech__graph_maker(model, loss);
    if (!node || !ech__op_info(node->op)->is_loss)
        return ech__fail(model->ctx, ECH_E_UNSUPPORTED,
                         "the loss is made by %s '%s'; where the batch is cut into parts it must "
                         "be made by one mse or cross_entropy",
                         node ? ech__op_name(node->op) : "nothing", node ? node->name : "");
    c->prediction = node->in[0];
    const ech__value *value = &model->values[c->prediction];
    if (value->kind != ECH__VALUE_ACTIVATION || value->type.shape.dims[0] != ECH_BATCH)
        return ech__fail(model->ctx, ECH_E_UNSUPPORTED,
                         "the prediction '%s' of shape %s is not made from a batch", value->name,
                         ech__shape_format(&value->type.shape).s);
    return ECH_OK;
}

/* The body is what the prediction is made of, and what keeps statistics of that. */
static void mark_body(cutter *c)
{
    const ech_graph *model = c->model;
    c->behind[c->prediction] = true;
    for (size_t n = model->nnodes; n-- > 0;) {
        const ech__node *node = &model->nodes[n];
        for (int i = 0; i < node->nout; i++)
            c->body[n] |= c->behind[node->out[i]];
        for (int i = 0; c->body[n] && i < node->nin; i++)
            c->behind[node->in[i]] = true;
    }
    for (size_t n = 0; n < model->nnodes; n++) {
        const ech__node *node = &model->nodes[n];
        bool all = node->nout == 0;
        for (int i = 0; i < node->nin; i++)
            all &= c->behind[node->in[i]] || model->values[node->in[i]].kind == ECH__VALUE_BUFFER;
        c->body[n] |= all;
    }
}

/* What is left takes inputs and the prediction, and nothing from further back. */
static ech_status check_head(const cutter *c)
{
    const ech_graph *model = c->model;
    for (size_t n = 0; n < model->nnodes; n++) {
        const ech__node *node = &model->nodes[n];
        for (int i = 0; !c->body[n] && i < node->nin; i++) {
            const ech__value *value = &model->values[node->in[i]];
            const bool there = value->kind == ECH__VALUE_INPUT || node->in[i] == c->prediction ||
                               (value->kind == ECH__VALUE_ACTIVATION && !c->behind[node->in[i]]);
            if (!there)
                return ech__fail(model->ctx, ECH_E_UNSUPPORTED,
                                 "%s '%s' comes after the prediction and takes %s '%s', which is "
                                 "before it; where the batch is cut into parts it cannot",
                                 ech__op_name(node->op), node->name,
                                 value->kind == ECH__VALUE_ACTIVATION ? "the value" : "parameter",
                                 value->name);
        }
    }
    return ECH_OK;
}

/* A copy of the model with one of its two halves. */
static ech_status copy_part(const cutter *c, bool body, ech_graph **out)
{
    ECH_TRY(ech__graph_clone(c->model, out));
    ech_graph *graph = *out;
    graph->nnodes = 0;
    for (size_t n = 0; n < c->model->nnodes; n++) {
        if (c->body[n] == body)
            graph->nodes[graph->nnodes++] = graph->nodes[n];
    }
    return ECH_OK;
}

static ech_status finish_body(const cutter *c, ech__split_model *out)
{
    ECH_TRY(copy_part(c, true, &out->body));
    ech__graph_keep(out->body, c->prediction);
    out->grad_in =
        ech__graph_value(out->body, &(ech__value){.name = "gradient of the prediction",
                                                  .kind = ECH__VALUE_INPUT,
                                                  .type = out->body->values[c->prediction].type,
                                                  .of = -1});
    return out->body->status;
}

static ech_status finish_head(const cutter *c, ech_value loss, ech__split_model *out)
{
    ECH_TRY(copy_part(c, false, &out->head));
    ech_graph *head = out->head;
    for (size_t n = 0; n < c->model->nnodes; n++) {
        const ech__node *node = &c->model->nodes[n];
        for (int i = 0; i < node->nin; i++) {
            if (head->values[node->in[i]].kind == ECH__VALUE_INPUT)
                ech__graph_keep(head, node->in[i]);
        }
    }
    ech__value *prediction = &head->values[c->prediction];
    prediction->name = "prediction of all parts";
    prediction->kind = ECH__VALUE_PARAM; /* so that it gets a gradient */
    ECH_TRY(ech__autodiff(head, loss));
    out->grad_out = ech__graph_gradient(head, c->prediction);
    assert(out->grad_out >= 0);
    ech__value *grad = &head->values[out->grad_out]; /* the array may have moved */
    head->values[c->prediction].kind = ECH__VALUE_INPUT;
    grad->kind = ECH__VALUE_ACTIVATION;
    grad->of = -1;
    grad->kept = true;
    return ECH_OK;
}

static ech_status cut(cutter *c, ech_value loss, ech__split_model *out)
{
    const ech_graph *model = c->model;
    c->behind = ech__arena_array(&c->arena, model->nvalues, sizeof *c->behind);
    c->body = ech__arena_array(&c->arena, model->nnodes + 1, sizeof *c->body);
    if (!c->behind || !c->body)
        return ech__no_memory(model->ctx, "the parts of a graph of %zu operators", model->nnodes);
    ECH_TRY(find_prediction(c, loss));
    out->prediction = c->prediction;
    mark_body(c);
    ECH_TRY(check_head(c));
    ECH_TRY(finish_body(c, out));
    return finish_head(c, loss, out);
}

ech_status ech__split_loss(const ech_graph *model, ech_value loss, ech__split_model *out)
{
    *out = (ech__split_model){.grad_in = -1, .grad_out = -1};
    ECH_TRY(model->status);
    if (loss < 0 || (size_t)loss >= model->nvalues)
        return ech__fail(model->ctx, ECH_E_INVALID, "the loss is not a value of this graph");
    cutter c = {.model = model};
    ech__arena_init(&c.arena, model->ctx->alloc);
    const ech_status status = cut(&c, loss, out);
    ech__arena_fini(&c.arena);
    if (status < 0) {
        ech_graph_destroy(out->body);
        ech_graph_destroy(out->head);
        out->body = out->head = NULL;
    }
    return status;
}
