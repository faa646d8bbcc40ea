/* Operators on 16-bit numbers by kernels for f32: what is of 16 bits is widened into scratch, the
 * kernel runs on that, and what it gives is rounded. So every f32 kernel of this device does for
 * bf16 and f16 too, and timing chooses among them.
 *
 *   f32:NAME   every 16-bit operand is staged
 *   w16:NAME   the weight is not: the kernel NAME reads it as it is
 */
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"

#include <stdio.h>
#include <string.h>

enum { PREFIX = 4, ALIGN = 64, BLOCK = 4096 };

static const char ALL[] = "f32:", ALL_BUT_WEIGHT[] = "w16:";

typedef struct staged {
    ech_dtype dtype;
    int64_t n; /* elements, padding included */
    void *low;
    float *wide;
} staged;

typedef struct staged_kernel {
    ech__kernel base;
    const ech__vec *vec;
    ech__kernel *inner;
    staged in[ECH__MAX_IN], out[ECH__MAX_OUT];
    int nin, nout; /* that are staged */
} staged_kernel;

/* ---- which operands ---- */

static bool is_staged(const ech__kernel_desc *desc, int i, bool but_weight)
{
    const int weight = ech__op_info(desc->op)->weight;
    return ech__dtype_is_low(desc->operands[i].dtype) && !(but_weight && weight && i == weight);
}

/* What the kernel inside is asked for. */
static ech__kernel_desc inside(const ech__kernel_desc *desc, bool but_weight)
{
    ech__kernel_desc wide = *desc;
    if (desc->op == ECH__OP_CAST) /* between f32 and f32 only the layout is left to change */
        wide.op = ECH__OP_REORDER;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        if (is_staged(desc, i, but_weight))
            wide.operands[i].dtype = ECH_F32;
    }
    return wide;
}

/* 0 where it is not staged, or too large to be. */
static int64_t stage_bytes(const ech__kernel_desc *desc, int i, bool but_weight,
                           const ech__layout *layout)
{
    int64_t n;
    if (!is_staged(desc, i, but_weight) || !ech__layout_extent(layout, &n) || n > INT64_MAX / 64)
        return 0;
    return ech__round_up(n * (int64_t)sizeof(float), ALIGN);
}

/* ---- running ---- */

static void convert(const staged_kernel *k, const staged *s, bool widen)
{
    const int64_t blocks = ceil_div(s->n, BLOCK);
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t count = least(BLOCK, s->n - b * BLOCK);
        uint16_t *low = (uint16_t *)s->low + b * BLOCK;
        if (widen)
            k->vec->widen(s->dtype, count, low, s->wide + b * BLOCK);
        else
            k->vec->narrow(s->dtype, count, s->wide + b * BLOCK, low);
    }
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    const staged_kernel *k = (const staged_kernel *)base;
    for (int i = 0; i < k->nin; i++)
        convert(k, &k->in[i], true);
    ECH_TRY(k->inner->run(k->inner, scalars));
    for (int i = 0; i < k->nout; i++)
        convert(k, &k->out[i], false);
    return ECH_OK;
}

static void destroy(ech__kernel *base)
{
    staged_kernel *k = (staged_kernel *)base;
    if (k->inner)
        k->inner->destroy(k->inner);
    ech__kernel_free(base);
}

/* ---- creating ---- */

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const bool but_weight = !strncmp(args->candidate->name, ALL_BUT_WEIGHT, PREFIX);
    staged_kernel k = {.base = {.run = run, .destroy = destroy},
                       .vec = ech__cpu_of(args->device)->loops->vec};
    ech__binding wide = *args->binding;
    char *scratch = args->binding->scratch;
    int nin = 0, nout = 0;
    for (int i = 0; i < args->desc->nin + args->desc->nout; i++) {
        if (!is_staged(args->desc, i, but_weight))
            continue;
        staged s = {args->desc->operands[i].dtype, 0, args->binding->operands[i],
                    (float *)(void *)scratch};
        ech__layout_extent(&args->candidate->layouts[i], &s.n);
        scratch += stage_bytes(args->desc, i, but_weight, &args->candidate->layouts[i]);
        wide.operands[i] = s.wide;
        if (i < args->desc->nin)
            k.in[nin++] = s;
        else
            k.out[nout++] = s;
    }
    k.nin = nin;
    k.nout = nout;
    wide.scratch = scratch;
    ech__candidate inner = *args->candidate;
    inner.create = args->candidate->inner;
    inner.inner = NULL;
    snprintf(inner.name, sizeof inner.name, "%s", args->candidate->name + PREFIX);
    const ech__kernel_desc inner_desc = inside(args->desc, but_weight);
    ECH_TRY(ech__kernel_make(args->device, &k, sizeof k, out));
    ech__kernel **inner_out = &((staged_kernel *)*out)->inner;
    return ech__kernel_made(
        args->candidate->inner(&(ech__kernel_args){args->device, &inner_desc, &inner, &wide},
                               inner_out),
        out);
}

/* ---- offering ---- */

void ech__staged_offer(const ech__kernel_desc *desc, bool but_weight, ech__offer *offer)
{
    const ech__kernel_desc wide = inside(desc, but_weight);
    ech__candidate found[ECH__MAX_CANDIDATES];
    ech__offer inner = {offer->device, offer->cpu, found, 0};
    ech__cpu_offer_wide(&wide, &inner);
    for (int c = 0; c < inner.count; c++) {
        char name[sizeof found[c].name];
        snprintf(name, sizeof name, "%s%.*s", but_weight ? ALL_BUT_WEIGHT : ALL,
                 (int)sizeof name - PREFIX - 1, found[c].name);
        ech__candidate *candidate = ech__offer_add(offer, desc, name, create_kernel);
        if (!candidate)
            return;
        candidate->inner = found[c].create;
        candidate->is_fallback = found[c].is_fallback;
        candidate->stands_in = found[c].stands_in;
        candidate->only_timed = found[c].only_timed;
        candidate->scratch_bytes = found[c].scratch_bytes;
        for (int i = 0; i < desc->nin + desc->nout; i++) {
            candidate->layouts[i] = found[c].layouts[i];
            candidate->scratch_bytes += stage_bytes(desc, i, but_weight, &found[c].layouts[i]);
        }
    }
}
