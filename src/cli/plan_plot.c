#include "cli/plan.h"
ech_status ech__plan_plot(ech_ctx *ctx, const ech__plan_result *result, const char *path)
{
    (void)result;
    return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s", path);
}
