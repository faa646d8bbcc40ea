/* Between f32 and 16 bits, and between layouts.
 *
 *   flat   both sides have the same layout: one pass over memory
 *   walk   any two layouts: chunks in row-major order, gathered from the one and scattered into
 *          the other, padding zeroed
 *
 * A change of layout is faster through f32 where there is a kernel for that (staged.c); walking
 * always works.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"

#include <string.h>

enum { PIECE = 2048 };

typedef struct cast_kernel {
    ech__kernel base;
    const ech__vec *vec;
    ech__operand from, to;
    const void *src;
    void *dst;
    int64_t n;      /* elements: with padding where the layouts are the same, else without */
    int64_t extent; /* elements of dst, padding included */
} cast_kernel;

/* At most PIECE of them; the types may be the same. */
static void convert(const cast_kernel *k, int64_t n, const void *src, void *dst)
{
    if (k->from.dtype == k->to.dtype)
        memcpy(dst, src, (size_t)(n * ech__dtype_bytes(k->to.dtype)));
    else if (ech__dtype_is_low(k->to.dtype))
        k->vec->narrow(k->to.dtype, n, src, dst);
    else
        k->vec->widen(k->from.dtype, n, src, dst);
}

static ech_status run_flat(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const cast_kernel *k = (const cast_kernel *)base;
    const int64_t pieces = ceil_div(k->n, PIECE);
    const int64_t from = ech__dtype_bytes(k->from.dtype), to = ech__dtype_bytes(k->to.dtype);
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t p = 0; p < pieces; p++)
        convert(k, least(PIECE, k->n - p * PIECE), (const char *)k->src + p * PIECE * from,
                (char *)k->dst + p * PIECE * to);
    return ECH_OK;
}

static ech_status run_walk(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const cast_kernel *k = (const cast_kernel *)base;
    const int64_t pieces = ceil_div(k->n, PIECE);
    const int64_t from = ech__dtype_bytes(k->from.dtype), to = ech__dtype_bytes(k->to.dtype);
    if (k->extent > k->n)
        memset(k->dst, 0, (size_t)(k->extent * to));
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t p = 0; p < pieces; p++) {
        float gathered[PIECE], converted[PIECE];
        const int64_t first = p * PIECE, count = least(PIECE, k->n - first);
        ech__layout_gather(&k->from.layout, from, first, count, k->src, gathered);
        convert(k, count, gathered, converted);
        ech__layout_scatter(&k->to.layout, to, first, count, converted, k->dst);
    }
    return ECH_OK;
}

/* ---- offering and creating ---- */

static bool lie_alike(const ech__kernel_desc *desc)
{
    return ech__layout_equal(&desc->operands[0].layout, &desc->operands[1].layout);
}

static bool is_f32_or_low(ech_dtype dtype)
{
    return dtype == ECH_F32 || ech__dtype_is_low(dtype);
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const ech__loops *loops = ech__cpu_of(args->device)->loops;
    const bool alike = lie_alike(args->desc);
    cast_kernel k = {.base = {.run = alike ? run_flat : run_walk},
                     .vec = loops->vec,
                     .from = args->desc->operands[0],
                     .to = args->desc->operands[1],
                     .src = args->binding->operands[0],
                     .dst = args->binding->operands[1]};
    ech__layout_extent(&k.to.layout, &k.extent);
    k.n = k.extent;
    if (!alike)
        ech__shape_elems(&k.to.layout.shape, &k.n);
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__cast_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    const ech_dtype from = desc->operands[0].dtype, to = desc->operands[1].dtype;
    if (!is_f32_or_low(from) || !is_f32_or_low(to))
        return;
    ech__offer_add(offer, desc, lie_alike(desc) ? "flat" : "walk", create_kernel);
}
