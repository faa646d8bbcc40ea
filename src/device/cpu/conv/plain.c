/* The last resort for linear layers and convolutions in f32: the reference device's loops on
 * row-major copies in scratch. Slow, and right for every shape and layout; offered where no
 * other kernel is. */
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"

#include <string.h>

enum { ALIGN = 64, PIECE = 4096 };

/* An operand that is not row-major, and its row-major copy. */
typedef struct copied {
    const ech__layout *layout;
    int64_t extent, elems; /* with padding and without */
    float *given, *rows;
} copied;

typedef struct plain_kernel {
    ech__kernel base;
    ech__kernel *inner; /* of the reference */
    ech__layout layouts[ECH__MAX_OPERANDS];
    copied in[ECH__MAX_OPERANDS], out[ECH__MAX_OPERANDS];
    int nin, nout;
} plain_kernel;

/* The operator on row-major operands, as the reference wants it. */
static ech__kernel_desc row_major(const ech__kernel_desc *desc)
{
    ech__kernel_desc plain = *desc;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        plain.operands[i].layout = ech__layout_plain(&desc->operands[i].layout.shape);
        plain.operands[i].free = false;
    }
    return plain;
}

/* 0 for an operand that the reference reads as it is. */
static int64_t copy_bytes(const ech__layout *layout)
{
    int64_t elems;
    if (ech__layout_is_plain(layout) || !ech__shape_elems(&layout->shape, &elems) ||
        elems > INT64_MAX / ALIGN)
        return 0;
    return ech__round_up(elems * (int64_t)sizeof(float), ALIGN);
}

/* ---- running ---- */

static void gather(const plain_kernel *k, const copied *c)
{
    const int64_t pieces = ceil_div(c->elems, PIECE);
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t p = 0; p < pieces; p++)
        ech__layout_gather(c->layout, sizeof(float), p * PIECE, least(PIECE, c->elems - p * PIECE),
                           c->given, c->rows + p * PIECE);
}

static void scatter(const plain_kernel *k, const copied *c)
{
    const int64_t pieces = ceil_div(c->elems, PIECE);
    if (c->extent > c->elems)
        memset(c->given, 0, (size_t)c->extent * sizeof(float));
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t p = 0; p < pieces; p++)
        ech__layout_scatter(c->layout, sizeof(float), p * PIECE, least(PIECE, c->elems - p * PIECE),
                            c->rows + p * PIECE, c->given);
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    const plain_kernel *k = (const plain_kernel *)base;
    for (int i = 0; i < k->nin; i++)
        gather(k, &k->in[i]);
    ECH_TRY(k->inner->run(k->inner, scalars));
    for (int i = 0; i < k->nout; i++)
        scatter(k, &k->out[i]);
    return ECH_OK;
}

static void destroy(ech__kernel *base)
{
    plain_kernel *k = (plain_kernel *)base;
    if (k->inner)
        k->inner->destroy(k->inner);
    ech__kernel_free(base);
}

/* Gives the operands that need it their copies; the kernel inside is bound to those. */
static void copy_operands(plain_kernel *k, const ech__kernel_desc *desc, ech__binding *binding)
{
    char *scratch = binding->scratch;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const ech__layout *layout = &k->layouts[i];
        if (ech__layout_is_plain(layout))
            continue;
        copied c = {
            .layout = layout, .given = binding->operands[i], .rows = (float *)(void *)scratch};
        ech__layout_extent(layout, &c.extent);
        ech__shape_elems(&layout->shape, &c.elems);
        scratch += copy_bytes(layout);
        binding->operands[i] = c.rows;
        if (i < desc->nin)
            k->in[k->nin++] = c;
        else
            k->out[k->nout++] = c;
    }
    binding->scratch = scratch;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const plain_kernel empty = {.base = {.run = run, .destroy = destroy}};
    ECH_TRY(ech__kernel_make(args->device, &empty, sizeof empty, out));
    plain_kernel *k = (plain_kernel *)*out;
    memcpy(k->layouts, args->candidate->layouts, sizeof k->layouts);
    ech__binding rows = *args->binding;
    copy_operands(k, args->desc, &rows);
    const ech__kernel_desc plain = row_major(args->desc);
    ech__candidate found[ECH__MAX_CANDIDATES];
    int count;
    ech_status status = ech__reference_table.candidates(args->device, &plain, found, &count);
    if (status == ECH_OK)
        status =
            found[0].create(&(ech__kernel_args){args->device, &plain, &found[0], &rows}, &k->inner);
    return ech__kernel_made(status, out);
}

void ech__plain_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    const ech__kernel_desc plain = row_major(desc);
    ech__candidate found[ECH__MAX_CANDIDATES];
    int count;
    if (desc->op == ECH__OP_LINEAR_ADD_WEIGHTS) /* planned as product and addition then */
        return;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        if (desc->operands[i].dtype != ECH_F32)
            return;
    }
    if (ech__reference_table.candidates(offer->device, &plain, found, &count) != ECH_OK || !count)
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "plain", create_kernel);
    if (!candidate)
        return;
    candidate->is_fallback = true;
    for (int i = 0; i < desc->nin + desc->nout; i++)
        candidate->scratch_bytes += copy_bytes(&candidate->layouts[i]);
}
