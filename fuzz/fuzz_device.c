/* Any bytes as the description of a device: either a sentence on one line, or figures by which every operator has a price. */
#include "predict/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check_prices(const ech__device_spec *spec, ech__work_kind kind, double flops)
{
    static const ech_dtype types[] = {ECH_F32, ECH_BF16, ECH_F16, ECH_S8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const ech__work work = {kind, types[t], flops, 1e6, true};
        const double fast = ech__roofline_seconds(spec, &work, ECH__ROOFLINE_FAST);
        const double middle = ech__roofline_seconds(spec, &work, ECH__ROOFLINE_MIDDLE);
        const double slow = ech__roofline_seconds(spec, &work, ECH__ROOFLINE_SLOW);
        must(isfinite(slow) && fast > 0);
        must(fast <= middle * (1 + 1e-9) && middle <= slow * (1 + 1e-9));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    ech__device_spec spec;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    if (ech__device_spec_parse(ctx, "device", (const char *)data, size, &spec) < 0) {
        must(ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
    } else {
        must(spec.link.bytes_per_s > 0 && spec.link.latency_s >= 0);
        for (int k = 0; k < ECH__WORK_COUNT; k++) {
            check_prices(&spec, (ech__work_kind)k, 1);
            check_prices(&spec, (ech__work_kind)k, 1e12);
        }
    }
    ech_ctx_destroy(ctx);
    return 0;
}
