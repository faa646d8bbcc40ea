/* Linear layers on oneDNN's inner product (its v2 C interface, which no other folder may see).
 *
 *   forward            dst = src wei^T + bia, ReLU as a post-operation
 *   backward data      diff_src = diff_dst wei
 *   backward weights   diff_wei = diff_dst^T src, diff_bia = column sums of diff_dst
 */
#include "device/cpu/cpu.h"

#include <dnnl.h>
#include <stdio.h>
#include <string.h>

struct ech__onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

static ech_status failed(ech_ctx *ctx, const char *what, dnnl_status_t status)
{
    return ech__fail(ctx, ECH_E_INTERNAL, "oneDNN: %s failed with status %d", what, (int)status);
}

ech_status ech__onednn_open(ech_ctx *ctx, ech__onednn **out)
{
    *out = NULL;
    ech__onednn *onednn = ech__new(ctx, sizeof *onednn);
    if (!onednn)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for the cpu device");
    dnnl_status_t status = dnnl_engine_create(&onednn->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        ech__onednn_close(ctx, onednn);
        return failed(ctx, "opening the cpu engine", status);
    }
    *out = onednn;
    return ECH_OK;
}

void ech__onednn_close(ech_ctx *ctx, ech__onednn *onednn)
{
    if (!onednn)
        return;
    if (onednn->stream)
        dnnl_stream_destroy(onednn->stream);
    if (onednn->engine)
        dnnl_engine_destroy(onednn->engine);
    ech__delete(ctx, onednn, sizeof *onednn);
}

static const char *isa_name(dnnl_cpu_isa_t isa)
{
    switch (isa) {
    case dnnl_cpu_isa_sse41:
        return "sse4.1";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx512_core:
        return "avx512";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512+vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512+bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "amx";
    default:
        return "other";
    }
}

void ech__onednn_version(char *out, size_t bytes)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, bytes, "oneDNN %d.%d.%d %s", v->major, v->minor, v->patch,
             isa_name(dnnl_get_effective_cpu_isa()));
}

/* ---- layouts and memory descriptions ---- */

static void to_md(const ech__layout *layout, dnnl_memory_desc_t *md)
{
    memset(md, 0, sizeof *md);
    md->ndims = layout->shape.ndims;
    md->data_type = dnnl_f32;
    md->format_kind = dnnl_blocked;
    for (int k = 0; k < md->ndims; k++) {
        md->dims[k] = layout->shape.dims[k];
        md->padded_dims[k] = layout->padded[k];
        md->format_desc.blocking.strides[k] = layout->strides[k];
    }
    md->format_desc.blocking.inner_nblks = layout->nblocks;
    for (int b = 0; b < layout->nblocks; b++) {
        md->format_desc.blocking.inner_blks[b] = layout->block_size[b];
        md->format_desc.blocking.inner_idxs[b] = layout->block_axis[b];
    }
}

/* False where our layouts cannot say what oneDNN means. */
static bool from_md(const dnnl_memory_desc_t *md, ech__layout *layout)
{
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    *layout = (ech__layout){.shape = {.ndims = md->ndims}};
    if (md->format_kind != dnnl_blocked || md->ndims > ECH_MAX_DIMS || md->offset0 != 0 ||
        md->extra.flags != 0 || blocking->inner_nblks > ECH__MAX_BLOCKS)
        return false;
    for (int k = 0; k < md->ndims; k++) {
        if (md->padded_offsets[k] != 0)
            return false;
        layout->shape.dims[k] = md->dims[k];
        layout->padded[k] = md->padded_dims[k];
        layout->strides[k] = blocking->strides[k];
    }
    layout->nblocks = blocking->inner_nblks;
    for (int b = 0; b < layout->nblocks; b++) {
        layout->block_size[b] = blocking->inner_blks[b];
        layout->block_axis[b] = (int)blocking->inner_idxs[b];
    }
    return true;
}

/* ---- describing a linear operator ---- */

/* The four tensors of an inner product, whatever the direction: src[N,I] wei[O,I] bia[O] dst[N,O]. */
typedef struct inner_product {
    dnnl_memory_desc_t src, wei, bia, dst;
    bool has_bias;
} inner_product;

static void plain_md(dnnl_memory_desc_t *md, int ndims, int64_t rows, int64_t cols)
{
    const ech__shape shape = {ndims, {rows, cols}};
    const ech__layout layout = ech__layout_plain(&shape);
    to_md(&layout, md);
}

/* weight NULL: oneDNN picks the layout. */
static inner_product describe(const ech__kernel_desc *desc, const ech__layout *weight)
{
    const ech__shape *first = &desc->operands[0].layout.shape;
    const ech__shape *w = &desc->operands[ech__linear_weight(desc->op)].layout.shape;
    const int64_t n = first->dims[0], o = w->dims[0], i = w->dims[1];
    inner_product ip;
    plain_md(&ip.src, 2, n, i);
    plain_md(&ip.dst, 2, n, o);
    plain_md(&ip.bia, 1, o, 0);
    plain_md(&ip.wei, 2, o, i);
    if (weight)
        to_md(weight, &ip.wei);
    else
        ip.wei.format_kind = dnnl_format_kind_any;
    ip.has_bias = desc->op == ECH__OP_LINEAR ? desc->nin == 3 : desc->attrs.bias;
    return ip;
}

static dnnl_primitive_attr_t attributes(bool relu)
{
    dnnl_primitive_attr_t attr = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    bool ok = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) ==
              dnnl_success;
    if (relu) {
        dnnl_post_ops_t post = NULL;
        ok = ok && dnnl_post_ops_create(&post) == dnnl_success &&
             dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_relu, 0, 0) == dnnl_success &&
             dnnl_primitive_attr_set_post_ops(attr, post) == dnnl_success;
        if (post)
            dnnl_post_ops_destroy(post);
    }
    if (!ok) {
        dnnl_primitive_attr_destroy(attr);
        return NULL;
    }
    return attr;
}

/* The primitive description of op on these tensors, or NULL where oneDNN has none. */
static dnnl_primitive_desc_t primitive_desc(const ech__onednn *onednn, ech__op op, bool relu,
                                            const inner_product *ip)
{
    const dnnl_memory_desc_t *bia = ip->has_bias ? &ip->bia : NULL;
    dnnl_inner_product_desc_t d;
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    dnnl_primitive_attr_t attr = attributes(relu);
    if (!attr)
        return NULL;
    if (dnnl_inner_product_forward_desc_init(&d, dnnl_forward_training, &ip->src, &ip->wei,
                                             op == ECH__OP_LINEAR ? bia : NULL,
                                             &ip->dst) == dnnl_success)
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
        pd, op == ECH__OP_LINEAR_BWD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

int ech__onednn_weight_layouts(ech__onednn *onednn, const ech__kernel_desc *desc, ech__layout *out,
                               int cap)
{
    static const ech__op directions[] = {ECH__OP_LINEAR, ECH__OP_LINEAR_BWD_DATA,
                                         ECH__OP_LINEAR_BWD_WEIGHTS};
    int count = 0;
    for (size_t k = 0; k < sizeof directions / sizeof *directions && count < cap; k++) {
        const inner_product ip = describe(desc, NULL);
        dnnl_primitive_desc_t pd = primitive_desc(onednn, directions[k], false, &ip);
        if (pd && from_md(weight_md(directions[k], pd), &out[count]))
            count++;
        if (pd)
            dnnl_primitive_desc_destroy(pd);
    }
    return count;
}

void ech__onednn_offer_linear(ech__onednn *onednn, const ech__kernel_desc *desc,
                              const ech__layout *weight, ech__offer *offer)
{
    const inner_product ip = describe(desc, weight);
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc->op, desc->attrs.relu, &ip);
    if (!pd)
        return;
    const char *info = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&info);
    char name[40];
    snprintf(name, sizeof name, "onednn:%s", info);
    ech__candidate *candidate = ech__offer_add(offer, desc, name);
    if (candidate) {
        const dnnl_memory_desc_t *scratch =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        candidate->layouts[ech__linear_weight(desc->op)] = *weight;
        candidate->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
        candidate->is_fallback = strstr(info, "ref") != NULL;
    }
    dnnl_primitive_desc_destroy(pd);
}

/* ---- kernels ---- */

enum { MAX_ARGS = 5 };

typedef struct primitive_kernel {
    ech__kernel base;
    ech_ctx *ctx;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    int nargs;
    dnnl_exec_arg_t args[MAX_ARGS];
} primitive_kernel;

static ech_status run_primitive(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const primitive_kernel *kernel = (const primitive_kernel *)base;
    const dnnl_status_t status =
        dnnl_primitive_execute(kernel->primitive, kernel->stream, kernel->nargs, kernel->args);
    return status == dnnl_success ? ECH_OK : failed(kernel->ctx, "an inner product", status);
}

static void destroy_primitive(ech__kernel *base)
{
    primitive_kernel *kernel = (primitive_kernel *)base;
    for (int i = 0; i < kernel->nargs; i++)
        dnnl_memory_destroy(kernel->args[i].memory);
    if (kernel->primitive)
        dnnl_primitive_destroy(kernel->primitive);
    ech__delete(kernel->ctx, kernel, sizeof *kernel);
}

static dnnl_status_t add_arg(primitive_kernel *kernel, dnnl_engine_t engine, int arg,
                             const dnnl_memory_desc_t *md, void *memory)
{
    dnnl_exec_arg_t *place = &kernel->args[kernel->nargs];
    place->arg = arg;
    const dnnl_status_t status = dnnl_memory_create(&place->memory, md, engine, memory);
    if (status == dnnl_success)
        kernel->nargs++;
    return status;
}

static dnnl_status_t add_args(primitive_kernel *kernel, dnnl_engine_t engine, ech__op op,
                              const inner_product *ip, const ech__binding *binding)
{
    void *const *at = binding->operands;
    dnnl_status_t status = dnnl_success;
#define ARG(arg, md, memory)                                                                       \
    if (status == dnnl_success)                                                                    \
    status = add_arg(kernel, engine, arg, md, memory)
    switch (op) {
    case ECH__OP_LINEAR: /* x w (b) -> y */
        ARG(DNNL_ARG_SRC, &ip->src, at[0]);
        ARG(DNNL_ARG_WEIGHTS, &ip->wei, at[1]);
        if (ip->has_bias)
            ARG(DNNL_ARG_BIAS, &ip->bia, at[2]);
        ARG(DNNL_ARG_DST, &ip->dst, at[ip->has_bias ? 3 : 2]);
        break;
    case ECH__OP_LINEAR_BWD_DATA: /* dy w -> dx */
        ARG(DNNL_ARG_DIFF_DST, &ip->dst, at[0]);
        ARG(DNNL_ARG_WEIGHTS, &ip->wei, at[1]);
        ARG(DNNL_ARG_DIFF_SRC, &ip->src, at[2]);
        break;
    default: /* x dy -> dw (db) */
        ARG(DNNL_ARG_SRC, &ip->src, at[0]);
        ARG(DNNL_ARG_DIFF_DST, &ip->dst, at[1]);
        ARG(DNNL_ARG_DIFF_WEIGHTS, &ip->wei, at[2]);
        if (ip->has_bias)
            ARG(DNNL_ARG_DIFF_BIAS, &ip->bia, at[3]);
    }
#undef ARG
    return status;
}

ech_status ech__onednn_create_linear(ech__device *device, ech__onednn *onednn,
                                     const ech__kernel_desc *desc, const ech__candidate *candidate,
                                     const ech__binding *binding, ech__kernel **out)
{
    primitive_kernel *kernel = ech__new(device->ctx, sizeof *kernel);
    if (!kernel)
        return ech__fail(device->ctx, ECH_E_NOMEM, "no memory for a kernel");
    kernel->base = (ech__kernel){run_primitive, destroy_primitive};
    kernel->ctx = device->ctx;
    kernel->stream = onednn->stream;
    const inner_product ip = describe(desc, &candidate->layouts[ech__linear_weight(desc->op)]);
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc->op, desc->attrs.relu, &ip);
    dnnl_status_t status = pd ? dnnl_primitive_create(&kernel->primitive, pd) : dnnl_unimplemented;
    if (status == dnnl_success)
        status = add_args(kernel, onednn->engine, desc->op, &ip, binding);
    if (status == dnnl_success && candidate->scratch_bytes)
        status = add_arg(kernel, onednn->engine, DNNL_ARG_SCRATCHPAD,
                         dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
                         binding->scratch);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (status != dnnl_success) {
        destroy_primitive(&kernel->base);
        return failed(device->ctx, "preparing an inner product", status);
    }
    *out = &kernel->base;
    return ECH_OK;
}
