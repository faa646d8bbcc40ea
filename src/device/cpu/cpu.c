#include "device/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

ech__candidate *ech__offer_add(ech__offer *offer, const ech__kernel_desc *desc, const char *name,
                               ech__create_kernel *create)
{
    if (offer->count == ECH__MAX_CANDIDATES)
        return NULL;
    ech__candidate *candidate = &offer->items[offer->count++];
    *candidate = (ech__candidate){.create = create};
    snprintf(candidate->name, sizeof candidate->name, "%s", name);
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const ech__operand *operand = &desc->operands[i];
        candidate->layouts[i] =
            operand->free ? ech__layout_plain(&operand->layout.shape) : operand->layout;
    }
    return candidate;
}

int ech__weight_operand(ech__op op)
{
    return op == ECH__OP_LINEAR_BWD_WEIGHTS || op == ECH__OP_LINEAR_ADD_WEIGHTS ||
                   op == ECH__OP_CONV2D_BWD_WEIGHTS
               ? 2
               : 1;
}

ech__linear ech__linear_of(const ech__kernel_desc *desc, const ech__binding *binding)
{
    const ech__shape *w = &desc->operands[ech__weight_operand(desc->op)].layout.shape;
    ech__linear l = {.n = desc->operands[0].layout.shape.dims[0],
                     .o = w->dims[0],
                     .i = w->dims[1],
                     .relu = desc->attrs.relu};
    if (!binding)
        return l;
    void *const *at = binding->operands;
    switch (desc->op) {
    case ECH__OP_LINEAR: /* x w (b) -> y */
        l.x = at[0];
        l.w = at[1];
        l.b = desc->nin == 3 ? at[2] : NULL;
        l.y = at[desc->nin];
        break;
    case ECH__OP_LINEAR_BWD_DATA: /* dy w -> dx */
        l.dy = at[0];
        l.w = at[1];
        l.dx = at[2];
        break;
    default: /* x dy -> dw (db), or x dy *dw (*db) */
        l.adds = desc->op == ECH__OP_LINEAR_ADD_WEIGHTS;
        l.x = at[0];
        l.dy = at[1];
        l.dw = at[2];
        l.db = desc->attrs.bias ? at[3] : NULL;
    }
    return l;
}

bool ech__is_linear(ech__op op)
{
    return op == ECH__OP_LINEAR || op == ECH__OP_LINEAR_BWD_DATA ||
           op == ECH__OP_LINEAR_BWD_WEIGHTS || op == ECH__OP_LINEAR_ADD_WEIGHTS;
}

bool ech__is_conv(ech__op op)
{
    return op == ECH__OP_CONV2D || op == ECH__OP_CONV2D_BWD_DATA ||
           op == ECH__OP_CONV2D_BWD_WEIGHTS;
}

bool ech__is_blocked(const ech__layout *layout, int64_t B)
{
    if (layout->shape.ndims != 4)
        return false;
    const ech__layout blocked = ech__layout_blocked_channels(&layout->shape, B);
    return ech__layout_equal(layout, &blocked);
}

/* ---- what is offered ---- */

enum { MAX_LAYOUTS = 8 };

static int add_layout(ech__layout *list, int count, const ech__layout *layout)
{
    for (int i = 0; i < count; i++) {
        if (ech__layout_equal(&list[i], layout))
            return count;
    }
    list[count] = *layout;
    return count + 1;
}

/* Layouts worth trying for a weight. A blocked one of oneDNN's own comes first: it has kernels
 * for it in all directions. Where oneDNN falls back on matrix multiplication it asks for
 * whatever it was asked about first, and row-major is the better start. */
static int weight_layouts(const ech__cpu *cpu, const ech__kernel_desc *desc, ech__layout *out)
{
    const ech__operand *weight = &desc->operands[ech__weight_operand(desc->op)];
    if (!weight->free) {
        out[0] = weight->layout;
        return 1;
    }
    if (weight->dtype != ECH_F32) { /* of 16 bits, only panels are read as they are */
        out[0] = ech__panel_layout(&weight->layout.shape);
        return 1;
    }
    ech__layout own[3];
    const int nown = ech__onednn_layouts(cpu->onednn, desc, own);
    const ech__layout rows = ech__layout_plain(&weight->layout.shape);
    const ech__layout columns = ech__layout_transposed(&weight->layout.shape);
    const ech__layout panels = ech__panel_layout(&weight->layout.shape);
    int count = 0;
    for (int i = 0; i < nown; i++) {
        if (own[i].nblocks)
            count = add_layout(out, count, &own[i]);
    }
    count = add_layout(out, count, &panels);
    count = add_layout(out, count, &rows);
    return add_layout(out, count, &columns);
}

static void offer_linear(const ech__kernel_desc *desc, ech__offer *offer)
{
    ech__layout layouts[MAX_LAYOUTS];
    const int count = weight_layouts(offer->cpu, desc, layouts);
    for (int i = 0; i < count; i++) {
        /* oneDNN's own matrix multiplication is slow when the weight is not transposed. */
        ech__panel_offer_linear(desc, &layouts[i], offer);
        if (desc->operands[ech__weight_operand(desc->op)].dtype != ECH_F32)
            continue;
        const bool blas_first = desc->op == ECH__OP_LINEAR_BWD_DATA;
        if (blas_first)
            ech__blas_offer_linear(desc, &layouts[i], offer);
        ech__onednn_offer_weighted(desc, &layouts[i], offer);
        if (!blas_first)
            ech__blas_offer_linear(desc, &layouts[i], offer);
    }
    if (!offer->count)
        ech__plain_offer(desc, offer);
}

/* oneDNN's own, with the weight in the layout that it has, or in those that oneDNN likes best. */
static void offer_onednn(const ech__kernel_desc *desc, ech__offer *offer)
{
    const ech__operand *weight = &desc->operands[ech__weight_operand(desc->op)];
    ech__layout layouts[3] = {weight->layout};
    const int count = weight->free ? ech__onednn_layouts(offer->cpu->onednn, desc, layouts) : 1;
    for (int i = 0; i < count; i++)
        ech__onednn_offer_weighted(desc, &layouts[i], offer);
}

static void offer_conv(const ech__kernel_desc *desc, ech__offer *offer)
{
    offer_onednn(desc, offer);
    ech__direct_offer(desc, offer);
    ech__winograd_offer(desc, offer);
    if (!offer->count)
        ech__plain_offer(desc, offer);
}

/* ---- 16 bits ---- */

/* Casts and reorders: at once, through f32, or number by number. */
static void offer_moves(const ech__kernel_desc *desc, ech__offer *offer)
{
    if (!ech__layout_equal(&desc->operands[0].layout, &desc->operands[1].layout)) {
        if (desc->operands[0].dtype != ECH_F16 && desc->operands[1].dtype != ECH_F16)
            ech__onednn_offer_reorder(desc, offer);
        ech__staged_offer(desc, false, offer);
    }
    ech__cast_offer(desc, offer);
}

void ech__cpu_offer_wide(const ech__kernel_desc *desc, ech__offer *offer)
{
    const bool f32 = desc->nin && desc->operands[0].dtype == ECH_F32;
    if (ech__is_linear(desc->op) && f32)
        offer_linear(desc, offer);
    else if (ech__is_conv(desc->op) && f32)
        offer_conv(desc, offer);
    else if (desc->op == ECH__OP_REORDER && f32) {
        ech__onednn_offer_reorder(desc, offer);
        if (!offer->count)
            ech__cast_offer(desc, offer);
    } else if (desc->op == ECH__OP_QLINEAR || desc->op == ECH__OP_QCONV2D) {
        if (ech__onednn_has_vnni())
            ech__onednn_offer_int8(desc, offer);
        ech__int8_offer(desc, offer);
    } else {
        ech__simple_offer(desc, offer);
        ech__int8_image_offer(desc, offer);
        ech__image_offer(desc, offer);
    }
}

/* oneDNN's own kernels for bf16 first, then ours that go through f32 a piece at a time, then all
 * others through f32. */
static void offer_low(const ech__kernel_desc *desc, ech__offer *offer)
{
    if (desc->op == ECH__OP_CAST || desc->op == ECH__OP_REORDER) {
        offer_moves(desc, offer);
        return;
    }
    if (!ech__is_linear(desc->op) && !ech__is_conv(desc->op)) {
        ech__simple_offer(desc, offer);
        ech__image_offer(desc, offer);
        if (!offer->count)
            ech__staged_offer(desc, false, offer);
        return;
    }
    if (desc->operands[0].dtype == ECH_BF16)
        offer_onednn(desc, offer);
    if (ech__is_linear(desc->op) &&
        ech__dtype_is_low(desc->operands[ech__weight_operand(desc->op)].dtype))
        ech__staged_offer(desc, true, offer);
    ech__staged_offer(desc, false, offer);
}

static bool has_low(const ech__kernel_desc *desc)
{
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        if (ech__dtype_is_low(desc->operands[i].dtype))
            return true;
    }
    return false;
}

static ech_status cpu_candidates(ech__device *device, const ech__kernel_desc *desc,
                                 ech__candidate *out, int *count)
{
    ech__offer offer = {device, ech__cpu_of(device), out, 0};
    if (has_low(desc))
        offer_low(desc, &offer);
    else
        ech__cpu_offer_wide(desc, &offer);
    *count = offer.count;
    return ECH_OK;
}

/* ---- life ---- */

void ech__cpu_processor(char *out, size_t bytes)
{
    snprintf(out, bytes, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        const char *value = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
        if (value) {
            snprintf(out, bytes, "%s", value + 2);
            out[strcspn(out, "\n")] = 0;
            break;
        }
    }
    fclose(file);
}

static ech_status cpu_open(ech__device *device, void **out)
{
    *out = NULL;
    ech__cpu *cpu = ech__new(device->ctx, sizeof *cpu);
    if (!cpu)
        return ech__no_memory(device->ctx, "the cpu device");
    const ech_status status = ech__onednn_open(device->ctx, &cpu->onednn);
    if (status < 0) {
        ech__delete(device->ctx, cpu, sizeof *cpu);
        return status;
    }
    ech__blas_open();
    cpu->loops = ech__loops_for(ech__isa_level());
    char processor[80], onednn[48], blas[48];
    ech__cpu_processor(processor, sizeof processor);
    ech__onednn_version(onednn, sizeof onednn);
    ech__blas_version(blas, sizeof blas);
    snprintf(cpu->fingerprint, sizeof cpu->fingerprint, "%s; isa %s; %s; %s", processor,
             ech__isa_name(ech__isa_level()), onednn, blas);
    *out = cpu;
    return ECH_OK;
}

static void cpu_close(ech__device *device, void *state)
{
    ech__cpu *cpu = state;
    ech__onednn_close(device->ctx, cpu->onednn);
    ech__delete(device->ctx, cpu, sizeof *cpu);
}

static const char *cpu_fingerprint(ech__device *device)
{
    return ech__cpu_of(device)->fingerprint;
}

/* What oneDNN's direct convolutions want, and our own kernels follow. */
static ech__layout cpu_activation_layout(ech__device *device, const ech__shape *shape)
{
    return shape->ndims == 4
               ? ech__layout_blocked_channels(shape, ech__cpu_of(device)->loops->channels)
               : ech__layout_plain(shape);
}

const ech__kernel_table ech__cpu_table = {
    .kind = "cpu",
    .memory = &ech__host_memory,
    .updates_parts = true,
    .open = cpu_open,
    .close = cpu_close,
    .fingerprint = cpu_fingerprint,
    .activation_layout = cpu_activation_layout,
    .candidates = cpu_candidates,
};
