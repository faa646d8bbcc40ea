/* In place of onednn*.c in a build without oneDNN 2: nothing is offered, so nothing is ever
 * created. */
#include "device/cpu/cpu.h"

#include <stdio.h>

ech_status ech__onednn_open(ech_ctx *ctx, ech__onednn **out)
{
    (void)ctx;
    *out = NULL;
    return ECH_OK;
}

void ech__onednn_close(ech_ctx *ctx, ech__onednn *onednn)
{
    (void)ctx, (void)onednn;
}

void ech__onednn_version(char *out, size_t bytes)
{
    snprintf(out, bytes, "no oneDNN");
}

bool ech__onednn_has_vnni(void)
{
    return false;
}

int ech__onednn_layouts(ech__onednn *onednn, const ech__kernel_desc *desc, ech__layout *out)
{
    (void)onednn, (void)desc, (void)out;
    return 0;
}

void ech__onednn_offer_weighted(const ech__kernel_desc *desc, const ech__layout *weight,
                                ech__offer *offer)
{
    (void)desc, (void)weight, (void)offer;
}

void ech__onednn_offer_reorder(const ech__kernel_desc *desc, ech__offer *offer)
{
    (void)desc, (void)offer;
}

void ech__onednn_offer_int8(const ech__kernel_desc *desc, ech__offer *offer)
{
    (void)desc, (void)offer;
}
