/* Linear layers and convolutions of integers on oneDNN: its sums of u8 times s8 in s32, and our own
 * way from there to the results, while the sums are in the cache. So the results have the bits of
 * the reference whatever kernel oneDNN takes, and come out blocked by channels, where oneDNN has
 * channels innermost.
 *
 * Images are brought into that order with their border around. Numbers of s8 become u8 on the
 * way by adding 128, the border too; what that adds to a sum follows from the weights alone and
 * is taken away again. The weight is kept in oneDNN's own order. */
#include "base/size.h"
#include "device/cpu/int8/int8.h"
#include "device/cpu/int8/layer.h"
#include "device/cpu/onednn/onednn.h"
#include "device/cpu/share.h"

#include <omp.h>
#include <string.h>

enum {
    EIGHT = ECH__INT8_OUTPUTS,
    GROUP_BYTES = 1 << 20, /* of images and sums at a time */
    ALIGN = 64,
    SIGN = 0x80,
};

typedef struct product {
    ech__kernel base;
    ech__int8_layer layer;
    const ech__int8_products *loops;
    ech__onednn_tensors tensors;
    int64_t group;      /* images at a time; divides N */
    int64_t rows, cols; /* of an image with the border that is read */
    int64_t primitive_bytes;
    ech__kernel *sums_of; /* staged, or x, -> sums */
    ech__kernel *order;   /* w -> weight */
    int32_t *shift;       /* [outputs] added to sums */
    uint8_t *staged;      /* [group][rows][cols][I] */
    int32_t *sums;        /* [group][P][Q][O] */
} product;

/* ---- x as oneDNN reads it ---- */

/* A matrix of u8 is taken as it is. */
static bool is_staged(const ech__int8_layer *l)
{
    return l->image || l->is_signed;
}

/* `count` pixels of a line from blocks of channels to channels innermost. */
static void stage_pixels(const ech__int8_layer *l, const uint8_t *x, int64_t count, uint8_t *to)
{
    const uint8_t flip = l->is_signed ? SIGN : 0;
    const uint64_t flips = 0x0101010101010101u * flip;
    const int64_t plane = l->H * l->W * l->B;
    for (int64_t c = 0; c < l->I; c += EIGHT) {
        const uint8_t *from = x + c / l->B * plane + c % l->B;
        for (int64_t i = 0; i < count; i++) {
            uint64_t eight;
            if (c + EIGHT <= l->I) {
                memcpy(&eight, from + i * l->B, sizeof eight);
                eight ^= flips;
                memcpy(to + i * l->I + c, &eight, sizeof eight);
                continue;
            }
            for (int64_t j = 0; j < l->I - c; j++)
                to[i * l->I + c + j] = from[i * l->B + j] ^ flip;
        }
    }
}

static void stage_image(const product *k, int64_t n, uint8_t *to)
{
    const ech__int8_layer *l = &k->layer;
    const int border = l->is_signed ? SIGN : 0;
    const int64_t line = k->cols * l->I, blocks = ceil_div(l->I, l->B);
    const int64_t inside = least(l->W, k->cols - l->pad); /* pixels of a line that are read */
    const uint8_t *x = (const uint8_t *)l->x + n * blocks * l->H * l->W * l->B;
    for (int64_t r = 0; r < k->rows; r++, to += line) {
        const int64_t h = r - l->pad;
        memset(to, border, (size_t)line);
        if (h >= 0 && h < l->H)
            stage_pixels(l, x + h * l->W * l->B, inside, to + l->pad * l->I);
    }
}

static void stage(const product *k, int64_t n)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t bytes = k->rows * k->cols * l->I;
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t i = 0; i < k->group; i++) {
        if (l->image)
            stage_image(k, n + i, k->staged + i * bytes);
        for (int64_t j = 0; !l->image && j < l->I; j++)
            k->staged[i * l->I + j] = ((const uint8_t *)l->x)[(n + i) * l->I + j] ^ SIGN;
    }
}

/* ---- from sums to y ---- */

/* Outputs o to o + 7 of image n, the i-th of the group; or of all samples of a linear layer. */
static void finish(const product *k, int64_t n, int64_t i, int64_t o)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t pixels = l->P * l->Q, bytes = ech__dtype_bytes(l->type);
    k->loops->finish(&(ech__int8_sums){.acc = k->sums + i * pixels * l->O + o,
                                       .acc_step = l->O,
                                       .shift = k->shift + o,
                                       .bias = l->biases + o,
                                       .scale = l->scales + o,
                                       .type = l->type,
                                       .relu = l->relu,
                                       .valid = (int)most(0, least(EIGHT, l->O - o)),
                                       .fills = l->image,
                                       .rows = l->image ? pixels : k->group,
                                       .y = ech__int8_layer_result(l, n + i, o),
                                       .y_step = (l->image ? l->B : l->O) * bytes});
}

static void finish_group(const product *k, int64_t n)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t each = ceil_div(l->image ? l->outputs : l->O, EIGHT);
    const int64_t units = each * (l->image ? k->group : 1);
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t unit = 0; unit < units; unit++)
        finish(k, n, unit / each, unit % each * EIGHT);
}

/* ---- kernel ---- */

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    const product *k = (const product *)base;
    for (int64_t n = 0; n < k->layer.N; n += k->group) {
        if (is_staged(&k->layer))
            stage(k, n);
        ECH_TRY(k->sums_of->run(k->sums_of, scalars));
        finish_group(k, n);
    }
    return ECH_OK;
}

static ech_status prepare(ech__kernel *base)
{
    const product *k = (const product *)base;
    const ech__int8_layer *l = &k->layer;
    const int64_t each = l->K * l->K * l->I;
    ech__int8_layer_factors(l);
    for (int64_t o = 0; o < l->outputs; o++) {
        int32_t sum = 0;
        for (int64_t i = 0; l->is_signed && o < l->O && i < each; i++)
            sum += l->w[o * each + i];
        k->shift[o] = -SIGN * sum;
    }
    return k->order->run(k->order, NULL);
}

static void destroy(ech__kernel *base)
{
    product *k = (product *)base;
    if (k->sums_of)
        k->sums_of->destroy(k->sums_of);
    if (k->order)
        k->order->destroy(k->order);
    ech__kernel_free(base);
}

/* ---- describing ---- */

/* [count][rows][cols][channels], with its axes in oneDNN's order. */
static void image_md(int64_t count, int64_t channels, int64_t rows, int64_t cols, ech_dtype dtype,
                     dnnl_memory_desc_t *md)
{
    const ech__layout layout = {.shape = {4, {count, channels, rows, cols}},
                                .padded = {count, channels, rows, cols},
                                .strides = {rows * cols * channels, 1, cols * channels, channels}};
    ech__onednn_md(&layout, dtype, md);
}

static void matrix_md(int64_t rows, int64_t cols, ech_dtype dtype, dnnl_memory_desc_t *md)
{
    const ech__layout layout = ech__layout_plain(&(ech__shape){2, {rows, cols}});
    ech__onednn_md(&layout, dtype, md);
}

/* The parameter: [O][K][K * I]. */
static void parameter_md(const ech__int8_layer *l, dnnl_memory_desc_t *md)
{
    if (l->image)
        image_md(l->O, l->I, l->K, l->K, ECH_S8, md);
    else
        matrix_md(l->O, l->I, ECH_S8, md);
}

/* weight NULL: oneDNN picks the order. */
static ech__onednn_tensors describe(const product *k, int64_t images,
                                    const dnnl_memory_desc_t *weight)
{
    const ech__int8_layer *l = &k->layer;
    ech__onednn_tensors t = {.has_bias = false};
    if (l->image) {
        image_md(images, l->I, k->rows, k->cols, ECH_U8, &t.src);
        image_md(images, l->O, l->P, l->Q, ECH_S32, &t.dst);
    } else {
        matrix_md(images, l->I, ECH_U8, &t.src);
        matrix_md(images, l->O, ECH_S32, &t.dst);
    }
    parameter_md(l, &t.wei);
    if (weight)
        t.wei = *weight;
    else
        t.wei.format_kind = dnnl_format_kind_any;
    return t;
}

/* NULL where oneDNN has none that is worth it. */
static dnnl_primitive_desc_t primitive_desc(const ech__onednn *onednn, const ech__int8_layer *l,
                                            const ech__onednn_tensors *t)
{
    const dnnl_dims_t strides = {l->stride, l->stride}, none = {0, 0};
    dnnl_primitive_attr_t attr = ech__onednn_can_ask(t) ? ech__onednn_attributes() : NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_convolution_desc_t conv;
    dnnl_inner_product_desc_t linear;
    const void *d = l->image ? (const void *)&conv : (const void *)&linear;
    const dnnl_status_t status =
        l->image ? dnnl_convolution_forward_desc_init(&conv, dnnl_forward_inference,
                                                      dnnl_convolution_direct, &t->src, &t->wei,
                                                      NULL, &t->dst, strides, none, none)
                 : dnnl_inner_product_forward_desc_init(&linear, dnnl_forward_inference, &t->src,
                                                        &t->wei, NULL, &t->dst);
    if (attr && status == dnnl_success &&
        dnnl_primitive_desc_create(&pd, d, attr, onednn->engine, NULL) != dnnl_success)
        pd = NULL;
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    const char *info = pd ? ech__onednn_kernel_name(pd) : "";
    if (strstr(info, "ref") || ech__onednn_allocates(info)) {
        dnnl_primitive_desc_destroy(pd);
        pd = NULL;
    }
    return pd;
}

/* The largest number of images that divides the batch and stays in the cache. */
static int64_t group_of(const product *k)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t each = k->rows * k->cols * l->I + l->P * l->Q * l->O * (int64_t)sizeof(int32_t);
    int64_t group = l->image ? most(1, least(l->N, GROUP_BYTES / each)) : l->N;
    while (l->N % group)
        group--;
    return group;
}

/* The sizes and the primitive for a group; NULL where there is none. The order of the weight is
 * that which oneDNN picks for one image: what is kept does not depend on the batch. */
static dnnl_primitive_desc_t measure(const ech__cpu *cpu, const ech__kernel_desc *desc, product *k)
{
    *k = (product){.loops = cpu->loops->int8_products, .layer = ech__int8_layer_of(cpu, desc)};
    const ech__int8_layer *l = &k->layer;
    k->rows = (l->P - 1) * l->stride + l->K;
    k->cols = (l->Q - 1) * l->stride + l->K;
    k->group = group_of(k);
    k->tensors = describe(k, 1, NULL);
    dnnl_primitive_desc_t pd = primitive_desc(cpu->onednn, l, &k->tensors);
    if (!pd)
        return NULL;
    const dnnl_memory_desc_t weight = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_primitive_desc_destroy(pd);
    k->tensors = describe(k, k->group, &weight);
    pd = primitive_desc(cpu->onednn, l, &k->tensors);
    if (pd)
        k->primitive_bytes =
            ech__round_up((int64_t)dnnl_memory_desc_get_size(
                              dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)),
                          ALIGN);
    return pd;
}

static int64_t shift_bytes(const product *k)
{
    return ech__round_up(k->layer.outputs * (int64_t)sizeof *k->shift, ALIGN);
}

static int64_t staged_bytes(const product *k)
{
    const int64_t bytes = k->group * k->rows * k->cols * k->layer.I;
    return is_staged(&k->layer) ? ech__round_up(bytes, ALIGN) : 0;
}

/* Runs once, so that oneDNN may take scratch of its own. */
static ech_status create_order(product *k, dnnl_engine_t engine, void *weight)
{
    dnnl_memory_desc_t from;
    parameter_md(&k->layer, &from);
    dnnl_primitive_desc_t pd = NULL;
    ech__onednn_args args = {0};
    ech__onednn_arg(&args, DNNL_ARG_FROM, &from, (void *)k->layer.w);
    ech__onednn_arg(&args, DNNL_ARG_TO, &k->tensors.wei, weight);
    dnnl_reorder_primitive_desc_create(&pd, &from, engine, &k->tensors.wei, engine, NULL);
    return ech__onednn_create(k->base.device, pd, &args, NULL, &k->order);
}

static ech_status create_sums(product *k, dnnl_primitive_desc_t pd, void *weight, void *scratch)
{
    ech__onednn_args args = {0};
    void *src = is_staged(&k->layer) ? (void *)k->staged : (void *)k->layer.x;
    ech__onednn_arg(&args, DNNL_ARG_SRC, &k->tensors.src, src);
    ech__onednn_arg(&args, DNNL_ARG_WEIGHTS, &k->tensors.wei, weight);
    ech__onednn_arg(&args, DNNL_ARG_DST, &k->tensors.dst, k->sums);
    return ech__onednn_create(k->base.device, pd, &args, scratch, &k->sums_of);
}

static ech_status create_parts(product *k, dnnl_primitive_desc_t pd, const ech__binding *binding)
{
    k->shift = ech__int8_layer_bind(&k->layer, binding);
    void *weight = (char *)k->shift + shift_bytes(k);
    k->staged = (uint8_t *)binding->scratch + k->primitive_bytes;
    void *sums = k->staged + staged_bytes(k);
    k->sums = sums;
    ECH_TRY(create_sums(k, pd, weight, binding->scratch));
    return create_order(k, ech__cpu_of(k->base.device)->onednn->engine, weight);
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    product measured;
    dnnl_primitive_desc_t pd = measure(ech__cpu_of(args->device), args->desc, &measured);
    measured.base = (ech__kernel){.run = run, .destroy = destroy, .prepare = prepare};
    const ech_status status = ech__kernel_make(args->device, &measured, sizeof measured, out);
    if (status == ECH_OK)
        return ech__kernel_made(create_parts((product *)*out, pd, args->binding), out);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

/* ---- offering and creating ---- */

void ech__onednn_offer_int8(const ech__kernel_desc *desc, ech__offer *offer)
{
    const ech__operand *weight = &desc->operands[1];
    product k = {.layer = ech__int8_layer_of(offer->cpu, desc)};
    const ech__int8_layer *l = &k.layer;
    if (!ech__int8_layer_fits(l, desc) || (!weight->free && !ech__layout_is_plain(&weight->layout)))
        return;
    dnnl_primitive_desc_t pd = measure(offer->cpu, desc, &k);
    if (!pd)
        return;
    dnnl_primitive_desc_destroy(pd);
    ech__candidate *candidate = ech__offer_add(offer, desc, "int8 onednn", create_kernel);
    if (!candidate)
        return;
    const int64_t sums = k.group * l->P * l->Q * l->O * (int64_t)sizeof *k.sums;
    candidate->scratch_bytes = k.primitive_bytes + staged_bytes(&k) + sums;
    candidate->kept_bytes = ech__int8_layer_bytes(l) + shift_bytes(&k) +
                            (int64_t)dnnl_memory_desc_get_size(&k.tensors.wei);
}
