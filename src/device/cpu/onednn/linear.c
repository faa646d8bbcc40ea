/* Linear layers on oneDNN's inner product.
 *
 *   forward            dst = src wei^T + bia, ReLU as a post-operation
 *   backward data      diff_src = diff_dst wei
 *   backward weights   diff_wei = diff_dst^T src, diff_bia = column sums of diff_dst
 */
#include "device/cpu/onednn/onednn.h"

static ech__create_kernel create_kernel;

static void plain_md(dnnl_memory_desc_t *md, ech_dtype dtype, int ndims, int64_t rows, int64_t cols)
{
    const ech__shape shape = {ndims, {rows, cols}};
    const ech__layout layout = ech__layout_plain(&shape);
    ech__onednn_md(&layout, dtype, md);
}

/* weight NULL: oneDNN picks the layout. Data have the type of the first operand, biases are f32. */
static ech__onednn_tensors describe(const ech__kernel_desc *desc, const ech__layout *weight)
{
    const ech__shape *first = &desc->operands[0].layout.shape;
    const ech__operand *wei = &desc->operands[ech__weight_operand(desc->op)];
    const ech__shape *w = &wei->layout.shape;
    const ech_dtype dtype = desc->operands[0].dtype;
    const int64_t n = first->dims[0], o = w->dims[0], i = w->dims[1];
    ech__onednn_tensors ip; /* src[N,I] wei[O,I] bia[O] dst[N,O] */
    plain_md(&ip.src, dtype, 2, n, i);
    plain_md(&ip.dst, dtype, 2, n, o);
    plain_md(&ip.bia, ECH_F32, 1, o, 0);
    plain_md(&ip.wei, wei->dtype, 2, o, i);
    if (weight)
        ech__onednn_md(weight, wei->dtype, &ip.wei);
    else
        ip.wei.format_kind = dnnl_format_kind_any;
    ip.has_bias = desc->op == ECH__OP_LINEAR ? desc->nin == 3 : desc->attrs.bias;
    return ip;
}

/* The primitive description of op on these tensors, or NULL where oneDNN has none. */
static dnnl_primitive_desc_t primitive_desc(const ech__onednn *onednn, ech__op op,
                                            const ech__onednn_tensors *ip)
{
    const dnnl_memory_desc_t *bia = ip->has_bias ? &ip->bia : NULL;
    dnnl_inner_product_desc_t d;
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    dnnl_primitive_attr_t attr = ech__onednn_can_ask(ip) ? ech__onednn_attributes() : NULL;
    if (!attr)
        return NULL;
    const ech__onednn_tensors f = ech__onednn_hint(op, ip);
    if (dnnl_inner_product_forward_desc_init(&d, dnnl_forward_training, &f.src, &f.wei,
                                             op == ECH__OP_LINEAR ? bia : NULL,
                                             &f.dst) == dnnl_success)
        dnnl_primitive_desc_create(&hint, &d, attr, onednn->engine, NULL);
    if (op == ECH__OP_LINEAR || !hint) {
        dnnl_primitive_attr_destroy(attr);
        return hint;
    }
    dnnl_status_t status =
        op == ECH__OP_LINEAR_BWD_DATA
            ? dnnl_inner_product_backward_data_desc_init(&d, &ip->src, &ip->wei, &ip->dst)
            : dnnl_inner_product_backward_weights_desc_init(&d, &ip->src, &ip->wei, bia, &ip->dst);
    if (status == dnnl_success)
        dnnl_primitive_desc_create(&pd, &d, attr, onednn->engine, hint);
    dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static const dnnl_memory_desc_t *weight_md(ech__op op, const_dnnl_primitive_desc_t pd)
{
    return dnnl_primitive_desc_query_md(
        pd, op == ECH__OP_LINEAR_BWD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
        0);
}

int ech__onednn_weight_layouts(ech__onednn *onednn, const ech__kernel_desc *desc, ech__layout *out,
                               int cap)
{
    const ech__onednn_directions directions = ech__onednn_directions_of(desc);
    int count = 0;
    for (int k = 0; k < directions.count && count < cap; k++) {
        const ech__onednn_tensors ip = describe(desc, NULL);
        dnnl_primitive_desc_t pd = primitive_desc(onednn, directions.op[k], &ip);
        if (pd && ech__onednn_layout(weight_md(directions.op[k], pd), &out[count]))
            count++;
        if (pd)
            dnnl_primitive_desc_destroy(pd);
    }
    return count;
}

void ech__onednn_offer_linear(ech__onednn *onednn, const ech__kernel_desc *desc,
                              const ech__layout *weight, ech__offer *offer)
{
    if (desc->op == ECH__OP_LINEAR_ADD_WEIGHTS) /* oneDNN overwrites */
        return;
    const ech__onednn_tensors ip = describe(desc, weight);
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc->op, &ip);
    if (!pd)
        return;
    ech__onednn_offer(pd, create_kernel, desc, ech__weight_operand(desc->op), weight, offer);
    dnnl_primitive_desc_destroy(pd);
}

static ech_status create_kernel(ech__device *device, const ech__kernel_desc *desc,
                                const ech__candidate *candidate, const ech__binding *binding,
                                ech__kernel **out)
{
    ech__onednn *onednn = ((const ech__cpu *)ech__device_state(device))->onednn;
    const ech__onednn_tensors ip =
        describe(desc, &candidate->layouts[ech__weight_operand(desc->op)]);
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc->op, &ip);
    return ech__onednn_create_weighted(device, desc, &ip, pd, binding, out);
}
