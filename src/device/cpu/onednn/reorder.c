/* A tensor brought into another layout, and between f32 and bf16, on oneDNN's reorder. */
#include "device/cpu/onednn/onednn.h"

static ech__create_kernel create_kernel;

static dnnl_primitive_desc_t primitive_desc(const ech__onednn *onednn, const ech__kernel_desc *desc,
                                            dnnl_memory_desc_t md[2])
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = ech__onednn_attributes();
    for (int i = 0; i < 2; i++)
        ech__onednn_md(&desc->operands[i].layout, desc->operands[i].dtype, &md[i]);
    if (attr && ech__onednn_addresses(&md[0]) && ech__onednn_addresses(&md[1]) &&
        dnnl_reorder_primitive_desc_create(&pd, &md[0], onednn->engine, &md[1], onednn->engine,
                                           attr) != dnnl_success)
        pd = NULL;
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return pd;
}

void ech__onednn_offer_reorder(ech__onednn *onednn, const ech__kernel_desc *desc, ech__offer *offer)
{
    dnnl_memory_desc_t md[2];
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc, md);
    if (!pd)
        return;
    ech__onednn_offer(pd, create_kernel, desc, 1, &desc->operands[1].layout, offer);
    dnnl_primitive_desc_destroy(pd);
}

static ech_status create_kernel(ech__device *device, const ech__kernel_desc *desc,
                                const ech__candidate *candidate, const ech__binding *binding,
                                ech__kernel **out)
{
    ech__onednn *onednn = ((const ech__cpu *)ech__device_state(device))->onednn;
    (void)candidate;
    dnnl_memory_desc_t md[2];
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc, md);
    ech__onednn_args args = {0};
    ech__onednn_arg(&args, DNNL_ARG_FROM, &md[0], binding->operands[0]);
    ech__onednn_arg(&args, DNNL_ARG_TO, &md[1], binding->operands[1]);
    const ech_status status = ech__onednn_create(device, onednn, pd, &args, binding->scratch, out);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}
