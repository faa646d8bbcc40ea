#include "device/ref/ref.h"
#include "base/size.h"
#include "tensor/half.h"

const char *ech__ref_fingerprint(ech__device *device)
{
    (void)device;
    return "reference";
}

/* NULL where the types are not for this device. What is of 16 bits is computed in f32. */
static ech__ref_fn find(const ech__kernel_desc *desc)
{
    if (ech__ref_quant[desc->op])
        return ech__ref_quant[desc->op];
    const int decides = desc->op == ECH__OP_CONVERT && desc->operands[0].dtype == ECH_BF16 ? 1 : 0;
    const ech_dtype dtype = desc->nin ? ech__op_wide(desc->operands[decides].dtype) : ECH_F32;
    if (dtype == ECH_F32)
        return ech__ref_f32[desc->op];
    return dtype == ECH_F64 ? ech__ref_f64[desc->op] : NULL;
}

/* Whether an operand is widened into scratch, or rounded from there. */
static bool is_staged(const ech__kernel_desc *desc, int i)
{
    return ech__dtype_is_low(desc->operands[i].dtype) && desc->op != ECH__OP_CONVERT;
}

/* 0 where it is not staged, or too large to be: then it cannot be created either. */
static int64_t stage_bytes(const ech__kernel_desc *desc, int i, const ech__layout *layout)
{
    int64_t extent;
    if (!is_staged(desc, i) || !ech__layout_extent(layout, &extent) || extent > INT64_MAX / 64)
        return 0;
    return ech__round_up(extent * (int64_t)sizeof(float), 64);
}

/* The layout that flat operands share: that of the first one which is not free. */
static ech__layout shared_layout(const ech__kernel_desc *desc)
{
    for (int i = 0; i < desc->nin; i++) {
        if (!desc->operands[i].free)
            return desc->operands[i].layout;
    }
    return ech__layout_plain(&desc->operands[0].layout.shape);
}

static ech__create_kernel ref_create;

static ech_status ref_candidates(ech__device *device, const ech__kernel_desc *desc,
                                 ech__candidate *out, int *count)
{
    (void)device;
    *count = 0;
    if (!find(desc))
        return ECH_OK;
    ech__candidate plain = {.name = "plain", .create = ref_create};
    const bool flat = ech__op_info(desc->op)->flat;
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const ech__operand *operand = &desc->operands[i];
        const ech__layout wanted =
            flat && i < desc->nin ? shared_layout(desc) : ech__layout_plain(&operand->layout.shape);
        if (!operand->free && !ech__layout_equal(&operand->layout, &wanted))
            return ECH_OK;
        plain.layouts[i] = wanted;
        plain.scratch_bytes += stage_bytes(desc, i, &wanted);
    }
    out[0] = plain;
    *count = 1;
    return ECH_OK;
}

static ech_status ref_run(ech__kernel *kernel, const ech__scalars *scalars)
{
    ech__ref_kernel *self = (ech__ref_kernel *)kernel;
    const ech__kernel_desc *desc = &self->desc;
    const int64_t *dims = desc->operands[0].layout.shape.dims;
    if (ech__has_labels(desc))
        ECH_TRY(ech__check_labels(kernel->device, self->at[1], dims[0], dims[1]));
    for (int i = 0; i < desc->nin; i++) {
        if (is_staged(desc, i))
            ech__widen(desc->operands[i].dtype, self->extent[i], self->low[i], self->at[i]);
    }
    self->scalars = scalars;
    self->fn(self);
    for (int i = desc->nin; i < desc->nin + desc->nout; i++) {
        if (is_staged(desc, i))
            ech__narrow(desc->operands[i].dtype, self->extent[i], self->at[i], self->low[i]);
    }
    if (self->copy)
        ech__narrow(self->copy_type, self->extent[0], self->at[0], self->copy);
    return ECH_OK;
}

static ech_status ref_create(const ech__kernel_args *args, ech__kernel **out)
{
    ech__ref_kernel k = {.base = {.run = ref_run},
                         .fn = find(args->desc),
                         .desc = *args->desc,
                         .copy = args->binding->copy,
                         .copy_type = args->binding->copy_type};
    char *scratch = args->binding->scratch;
    for (int i = 0; i < args->desc->nin + args->desc->nout; i++) {
        k.low[i] = args->binding->operands[i];
        k.at[i] = is_staged(args->desc, i) ? (void *)scratch : args->binding->operands[i];
        scratch += stage_bytes(args->desc, i, &args->candidate->layouts[i]);
        if (!ech__layout_extent(&args->candidate->layouts[i], &k.extent[i]))
            return ech__fail(args->device->ctx, ECH_E_LIMIT, "operand %d of %s is too large", i,
                             ech__op_name(args->desc->op));
    }
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

ech__layout ech__ref_activation_layout(ech__device *device, const ech__shape *shape)
{
    (void)device;
    return ech__layout_plain(shape);
}

const ech__kernel_table ech__reference_table = {
    .kind = "reference",
    .memory = &ech__host_memory,
    .fingerprint = ech__ref_fingerprint,
    .activation_layout = ech__ref_activation_layout,
    .candidates = ref_candidates,
};
