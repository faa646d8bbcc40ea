#include "quant/network.h"
#include "base/system/clock.h"

#include <string.h>

static bool is_used(const ech_graph *graph, ech_value v)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] == v)
                return true;
        }
    }
    return false;
}

static ech_status find_input(ech__network *net)
{
    net->input = -1;
    for (size_t v = 0; v < net->graph->nvalues; v++) {
        if (net->graph->values[v].kind == ECH__VALUE_INPUT && is_used(net->graph, (ech_value)v))
            net->input = (ech_value)v;
    }
    return net->input >= 0 ? ECH_OK
                           : ech__fail(net->ctx, ECH_E_INVALID, "the network takes no input");
}

int64_t ech__network_elems(const ech__network *net, ech_value value)
{
    int64_t elems = 0;
    ech__shape_elems(&net->plan->places[value].layout.shape, &elems);
    return elems / net->batch;
}

static ech_status load_weights(ech__network *net, const ech__tensors *weights)
{
    for (size_t v = 0; v < net->graph->nvalues; v++) {
        const ech__value *value = &net->graph->values[v];
        const ech__place *place = &net->plan->places[v];
        if ((value->kind != ECH__VALUE_PARAM && value->kind != ECH__VALUE_BUFFER) || !place->used)
            continue;
        const ech__tensor *t = ech__tensors_find(weights, value->name);
        if (!t || t->dtype != value->type.dtype || !ech__shape_equal(&t->shape, &value->type.shape))
            return ech__fail(net->ctx, ECH_E_INVALID,
                             "the network needs '%s' as %s %s, and it is %s", value->name,
                             ech__dtype_name(value->type.dtype),
                             ech__shape_format(&value->type.shape).s,
                             t ? ech__dtype_name(t->dtype) : "not there");
        ECH_TRY(ech__exec_write(net->exec, (ech_value)v, 0, t->elems, t->data));
    }
    return ECH_OK;
}

static ech_status prepare(ech__network *net, const ech__tensors *weights,
                          const ech__network_options *o)
{
    ECH_TRY(find_input(net));
    const ech__plan_options plan = {.batch = o->batch, .tuning = o->tuning};
    ECH_TRY(ech__plan_create(net->graph, o->device, &plan, &net->plan));
    ECH_TRY(ech__exec_create(net->plan, NULL, &net->exec));
    net->in_elems = ech__network_elems(net, net->input);
    net->out_elems = ech__network_elems(net, net->output);
    ECH_TRY(load_weights(net, weights));
    return ech__exec_prepare(net->exec);
}

ech_status ech__network_create(const ech_graph *graph, ech_value output,
                               const ech__tensors *weights, const ech__network_options *options,
                               ech__network **out)
{
    *out = NULL;
    ech__network *net = ech__new(graph->ctx, sizeof *net);
    if (!net)
        return ech__no_memory(graph->ctx, "a network");
    net->ctx = graph->ctx;
    net->graph = graph;
    net->output = output;
    net->batch = options->batch;
    const ech_status status = prepare(net, weights, options);
    if (status < 0) {
        ech__network_destroy(net);
        return status;
    }
    *out = net;
    return ECH_OK;
}

void ech__network_destroy(ech__network *net)
{
    if (!net)
        return;
    ech__exec_destroy(net->exec);
    ech__plan_destroy(net->plan);
    if (net->padded)
        ech__delete(net->ctx, net->padded,
                    (size_t)(net->batch * net->in_elems) * sizeof *net->padded);
    ech__delete(net->ctx, net, sizeof *net);
}

static ech_status write_input(ech__network *net, const float *x, int64_t count)
{
    const int64_t full = net->batch * net->in_elems;
    if (count < net->batch) { /* pad with zero samples */
        if (!net->padded)
            net->padded = ech__new(net->ctx, (size_t)full * sizeof *net->padded);
        if (!net->padded)
            return ech__no_memory(net->ctx, "a batch");
        memset(net->padded, 0, (size_t)full * sizeof *net->padded);
        memcpy(net->padded, x, (size_t)(count * net->in_elems) * sizeof *x);
        x = net->padded;
    }
    return ech__exec_write(net->exec, net->input, 0, full, x);
}

static ech_status forward(ech__network *net)
{
    const ech__scalars scalars = {.loss_scale = 1, .step = 1, .share = 1};
    const int64_t start = ech__clock_wall();
    const ech_status status = ech__exec_run(net->exec, ECH__PHASE_BIT(FORWARD), &scalars, NULL);
    net->run_ns = ech__clock_wall() - start;
    return status;
}

ech_status ech__network_run(ech__network *net, const float *x, int64_t count, float *y)
{
    if (count < 1 || count > net->batch)
        return ech__fail(net->ctx, ECH_E_INVALID, "%lld samples at a time: must be from 1 to %lld",
                         (long long)count, (long long)net->batch);
    ECH_TRY(write_input(net, x, count));
    ECH_TRY(forward(net));
    return y ? ech__network_read(net, net->output, count, y) : ECH_OK;
}

ech_status ech__network_read(const ech__network *net, ech_value value, int64_t count, void *data)
{
    return ech__exec_read(net->exec, value, 0, count * ech__network_elems(net, value), data);
}

ech_status ech__network_again(ech__network *net, double *seconds)
{
    ECH_TRY(forward(net));
    *seconds = ech__seconds(net->run_ns);
    return ECH_OK;
}

ech_status ech__network_time(ech__network *net, int runs, double *samples)
{
    ECH_TRY(forward(net));
    for (int i = 0; i < runs; i++)
        ECH_TRY(ech__network_again(net, &samples[i]));
    return ECH_OK;
}
