#include "support/interpreter.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static ech_value operand_value(const ech__node *node, int i)
{
    return i < node->nin ? node->in[i] : node->out[i - node->nin];
}

static ech__kernel *node_kernel(interpreter *it, const ech__node *node)
{
    ech__kernel_desc desc = {
        .op = node->op, .attrs = node->attrs, .nin = node->nin, .nout = node->nout};
    ech__binding binding = {.scratch = NULL};
    for (int i = 0; i < node->nin + node->nout; i++) {
        const ech_value v = operand_value(node, i);
        const ech__type *type = &it->graph->values[v].type;
        const ech__shape shape = ech__shape_bind(&type->shape, it->batch);
        desc.operands[i] = (ech__operand){type->dtype, ech__layout_plain(&shape), false};
        binding.operands[i] = it->memory[v];
    }
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    ech__kernel *kernel = NULL;
    ech__device *device = it->device;
    if (device->ops->candidates(device, &desc, all, &count) < 0 || !count ||
        all[0].scratch_bytes != 0 ||
        device->ops->create(&(ech__kernel_args){device, &desc, &all[0], &binding}, &kernel) < 0)
        fail_msg("no kernel for %s '%s'", ech__op_name(node->op), node->name);
    return kernel;
}

void interpreter_init(interpreter *it, const ech_graph *graph, int64_t batch, ech__device *device)
{
    *it = (interpreter){.graph = graph,
                        .device = device,
                        .batch = batch,
                        .scalars = {.lr = 0.1, .loss_scale = 1, .grad_factor = 1, .step = 1}};
    it->memory = calloc(graph->nvalues, sizeof *it->memory);
    it->elems = calloc(graph->nvalues, sizeof *it->elems);
    it->kernels = calloc(graph->nnodes, sizeof *it->kernels);
    assert_true(it->memory && it->elems && it->kernels);
    for (size_t v = 0; v < graph->nvalues; v++) {
        const ech__shape shape = ech__shape_bind(&graph->values[v].type.shape, batch);
        assert_true(ech__shape_elems(&shape, &it->elems[v]));
        it->memory[v] =
            calloc((size_t)it->elems[v], (size_t)ech__dtype_bytes(graph->values[v].type.dtype));
        assert_non_null(it->memory[v]);
    }
    for (size_t n = 0; n < graph->nnodes; n++)
        it->kernels[n] = node_kernel(it, &graph->nodes[n]);
}

static ech_status destroy_kernels(void *arg)
{
    interpreter *it = arg;
    for (size_t n = 0; n < it->graph->nnodes; n++)
        it->kernels[n]->destroy(it->kernels[n]);
    return ECH_OK;
}

void interpreter_fini(interpreter *it)
{
    it->device->ops->call(it->device, destroy_kernels, it);
    for (size_t v = 0; v < it->graph->nvalues; v++)
        free(it->memory[v]);
    free(it->memory);
    free(it->elems);
    free(it->kernels);
}

double interpreter_get(const interpreter *it, ech_value value, int64_t at)
{
    assert_true(at < it->elems[value]);
    switch (it->graph->values[value].type.dtype) {
    case ECH_F32:
        return (double)((float *)it->memory[value])[at];
    case ECH_S32:
        return ((int32_t *)it->memory[value])[at];
    default:
        return ((double *)it->memory[value])[at];
    }
}

void interpreter_set(interpreter *it, ech_value value, int64_t at, double to)
{
    assert_true(at < it->elems[value]);
    switch (it->graph->values[value].type.dtype) {
    case ECH_F32:
        ((float *)it->memory[value])[at] = (float)to;
        break;
    case ECH_S32:
        ((int32_t *)it->memory[value])[at] = (int32_t)to;
        break;
    default:
        ((double *)it->memory[value])[at] = to;
    }
}

void interpreter_fill(interpreter *it, uint64_t seed, int classes)
{
    for (size_t v = 0; v < it->graph->nvalues; v++) {
        const ech__value *value = &it->graph->values[v];
        if (value->kind != ECH__VALUE_INPUT && value->kind != ECH__VALUE_PARAM)
            continue;
        for (int64_t k = 0; k < it->elems[v]; k++) {
            const double u = (double)ech__rng_uniform(seed, v, (uint64_t)k);
            interpreter_set(it, (ech_value)v, k,
                            value->type.dtype == ECH_S32 ? floor(u * classes) : 2 * u - 1);
        }
    }
}

typedef struct part {
    interpreter *it;
    ech__phase last;
} part;

static ech_status run_nodes(void *arg)
{
    const part *p = arg;
    for (size_t n = 0; n < p->it->graph->nnodes; n++) {
        if (p->it->graph->nodes[n].phase <= p->last)
            ECH_TRY(p->it->kernels[n]->run(p->it->kernels[n], &p->it->scalars));
    }
    return ECH_OK;
}

void interpreter_run(interpreter *it, ech__phase last)
{
    part p = {it, last};
    if (it->device->ops->call(it->device, run_nodes, &p) < 0)
        fail_msg("%s", ech_ctx_error(it->device->ctx));
}

/* ---- gradient check ---- */

static double loss_at(interpreter *it, ech_value param, int64_t at, double value)
{
    interpreter_set(it, param, at, value);
    interpreter_run(it, ECH__PHASE_FORWARD);
    return interpreter_get(it, it->graph->loss, 0);
}

static int check_parameter(interpreter *it, ech_value param)
{
    const double step = 1e-5, tolerance = 1e-7;
    const ech_value grad = ech__graph_gradient(it->graph, param);
    const char *name = it->graph->values[param].name;
    if (grad < 0)
        fail_msg("parameter '%s' has no gradient", name);
    assert_true(ech__shape_equal(&it->graph->values[param].type.shape,
                                 &it->graph->values[grad].type.shape));
    double largest = 0;
    for (int64_t k = 0; k < it->elems[param]; k++)
        largest = fmax(largest, fabs(interpreter_get(it, grad, k)));
    /* A gradient that is zero everywhere would let a missing operator pass. */
    if (largest < 1e-3)
        fail_msg("the gradient of '%s' is at most %g: a check of nothing", name, largest);
    for (int64_t k = 0; k < it->elems[param]; k++) {
        const double x = interpreter_get(it, param, k);
        const double got = interpreter_get(it, grad, k);
        const double above = loss_at(it, param, k, x + step);
        const double below = loss_at(it, param, k, x - step);
        interpreter_set(it, param, k, x);
        const double want = (above - below) / (2 * step);
        if (!(fabs(got - want) <= tolerance * largest))
            fail_msg("gradient of '%s' at %lld is %.12g; the loss changes by %.12g", name,
                     (long long)k, got, want);
    }
    return (int)it->elems[param];
}

int interpreter_check_gradients(interpreter *it)
{
    int compared = 0;
    interpreter_run(it, ECH__PHASE_BACKWARD);
    for (size_t v = 0; v < it->graph->nvalues; v++) {
        if (it->graph->values[v].kind == ECH__VALUE_PARAM)
            compared += check_parameter(it, (ech_value)v);
    }
    return compared;
}
