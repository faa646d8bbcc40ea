#include "predict/roofline.h"
#include "graph/flops.h"

#include <math.h>

/* ---- what an operator does ---- */

static double value_bytes(const ech_graph *graph, ech_value v, int64_t batch)
{
    return ech__value_elements(graph, v, batch) *
           (double)ech__dtype_bytes(graph->values[v].type.dtype);
}

/* Memory that is read and written; what is changed in place counts twice. */
static double bytes_of(const ech_graph *graph, const ech__node *node, int64_t batch)
{
    const unsigned changes = ech__op_info(node->op)->changes;
    const int read = node->op == ECH__OP_BN_RUNNING ? 4 : node->nin; /* x tells its size only */
    double sum = 0;
    for (int i = 0; i < read; i++)
        sum += value_bytes(graph, node->in[i], batch) * (changes & 1U << i ? 2 : 1);
    for (int i = 0; i < node->nout; i++)
        sum += value_bytes(graph, node->out[i], batch);
    return sum;
}

/* With fewer input channels a window has too few products to fill a tile. */
enum { FEW_CHANNELS = 16 };

static ech__work_kind product_kind(const ech__shape *weight)
{
    if (weight->ndims < 3)
        return ECH__WORK_MATRIX;
    if (weight->ndims == 4 && weight->dims[1] < FEW_CHANNELS)
        return ECH__WORK_CONV_FIRST;
    return weight->dims[weight->ndims - 1] == 1 ? ECH__WORK_CONV_1X1 : ECH__WORK_CONV;
}

static ech__work_kind other_kind(const ech__node *node)
{
    switch (node->op) {
    case ECH__OP_BN_STATS:
    case ECH__OP_BN_RUNNING:
    case ECH__OP_BN_APPLY:
    case ECH__OP_BN_REDUCE:
    case ECH__OP_BN_BWD_DATA:
        return ECH__WORK_BATCH_NORM;
    case ECH__OP_MAXPOOL2D:
    case ECH__OP_MAXPOOL2D_BWD:
    case ECH__OP_AVGPOOL2D:
    case ECH__OP_AVGPOOL2D_BWD:
    case ECH__OP_QMAXPOOL2D:
    case ECH__OP_QAVGPOOL2D:
        return ECH__WORK_POOL;
    case ECH__OP_SGD:
    case ECH__OP_ADAM:
        return ECH__WORK_OPTIMIZER;
    default:
        return ECH__WORK_ELEMENTWISE;
    }
}

ech__work ech__node_work(const ech_graph *graph, const ech__node *node, int64_t batch)
{
    switch (node->op) {
    case ECH__OP_FLATTEN: /* views */
    case ECH__OP_UNFLATTEN:
    case ECH__OP_QFLATTEN:
    case ECH__OP_REORDER: /* a layout that kernels of this machine's processor want */
        return (ech__work){.kind = ECH__WORK_ELEMENTWISE};
    default:
        break;
    }
    ech__work work = {.bytes = bytes_of(graph, node, batch), .launched = true};
    const ech_value weight = ech__node_weight(node);
    if (weight < 0) {
        work.kind = other_kind(node);
        return work;
    }
    work.kind = product_kind(&graph->values[weight].type.shape);
    work.dtype = graph->values[node->in[0]].type.dtype;
    work.flops = ech__node_flops(graph, node, batch);
    return work;
}

/* ---- what it takes ---- */

static double pick(ech__bounds span, ech__roofline_end end, bool more_is_faster)
{
    if (end == ECH__ROOFLINE_MIDDLE)
        return sqrt(span.low * span.high);
    return (end == ECH__ROOFLINE_FAST) == more_is_faster ? span.high : span.low;
}

/* The type itself, or the next that the device has. */
static ech__math math_of(const ech__device_spec *spec, const ech__work *work)
{
    const ech__math f32 = spec->f32[work->kind];
    ech__math math;
    switch (work->dtype) {
    case ECH_BF16:
        math = ECH__MATH_BF16;
        break;
    case ECH_F16:
        math = ECH__MATH_FP16;
        break;
    case ECH_S8:
    case ECH_U8:
        math = ECH__MATH_INT8;
        break;
    default:
        math = f32;
    }
    return spec->peak[math] > 0 ? math : f32;
}

/* Tiles are dealt out to multiprocessors in turns; the last turn may leave some idle. */
static double compute_seconds(const ech__device_spec *spec, const ech__work *work,
                              ech__roofline_end end)
{
    const ech__math math = math_of(spec, work);
    const double share = pick(spec->compute[work->kind][math], end, true);
    const double each = spec->peak[math] * share / spec->multiprocessors;
    const double tile = fmin(spec->tile_flops, work->flops);
    return tile > 0 ? ceil(work->flops / tile / spec->multiprocessors) * tile / each : 0;
}

static double memory_seconds(const ech__device_spec *spec, ech__work_kind kind, double bytes,
                             ech__roofline_end end)
{
    return bytes / (spec->bytes_per_s * pick(spec->streaming[kind], end, true));
}

double ech__roofline_seconds(const ech__device_spec *spec, const ech__work *work,
                             ech__roofline_end end)
{
    if (!work->launched)
        return 0;
    const double computing =
        (int)work->kind < ECH__WORK_PRODUCTS ? compute_seconds(spec, work, end) : 0;
    return fmax(computing, memory_seconds(spec, work->kind, work->bytes, end)) +
           pick(spec->launch, end, false);
}

double ech__roofline_sum(const ech__device_spec *spec, int64_t bytes, int64_t devices,
                         ech__roofline_end end)
{
    /* All but its own part of the bytes is received: added to its own, three accesses, and, when
     * the sums are there, sent on and written, two. */
    const double moved = 5.0 * (double)bytes * (double)(devices - 1) / (double)devices;
    return memory_seconds(spec, ECH__WORK_ELEMENTWISE, moved, end);
}

double ech__roofline_host(const ech__device_spec *spec, ech__roofline_end end)
{
    return pick(spec->host, end, false);
}
