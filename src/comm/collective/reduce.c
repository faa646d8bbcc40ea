#include "comm/collective/reduce.h"
#include "device/isa.h"

const ech__reduce_loops *ech__reduce_best(void)
{
    static const ech__reduce_loops *const widths[] = {
#define ENTRY(id, suffix) &ech__reduce_##suffix,
        ECH__WIDTH_LIST(ENTRY)
#undef ENTRY
    };
    return widths[ech__isa_width(ech__isa_level())];
}

ech_status ech__reduce(ech_ctx *ctx, ech__reduction reduction, ech_dtype dtype, int64_t count,
                       const void *const *src, int nsrc, void *const *dst, int ndst, int divisor)
{
    const bool known = dtype == ECH_F32 || dtype == ECH_F64 || dtype == ECH_BF16 ||
                       dtype == ECH_F16 || dtype == ECH_S32;
    if (!known || (dtype == ECH_S32 && reduction == ECH__REDUCTION_MEAN))
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "there is no %s over %s",
                         ech__reduction_name(reduction), ech__dtype_name(dtype));
    if (nsrc < 1 || nsrc > ECH__MAX_TERMS)
        return ech__fail(ctx, ECH_E_LIMIT, "a %s over %d parts: there can be 1 to %d",
                         ech__reduction_name(reduction), nsrc, (int)ECH__MAX_TERMS);
    const ech__reduce_task task = {.reduction = reduction,
                                   .dtype = dtype,
                                   .count = count,
                                   .src = src,
                                   .dst = dst,
                                   .nsrc = nsrc,
                                   .ndst = ndst,
                                   .divisor = reduction == ECH__REDUCTION_MEAN ? divisor : 1};
    if (count > 0)
        ech__reduce_best()->run(&task);
    return ECH_OK;
}
