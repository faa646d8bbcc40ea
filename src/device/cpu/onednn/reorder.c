/* A tensor brought into another layout, and between f32 and bf16, on oneDNN's reorder. */
#include "device/cpu/onednn/onednn.h"

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

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    dnnl_memory_desc_t md[2];
    dnnl_primitive_desc_t pd = primitive_desc(ech__cpu_of(args->device)->onednn, args->desc, md);
    ech__onednn_args bound = {0};
    ech__onednn_arg(&bound, DNNL_ARG_FROM, &md[0], args->binding->operands[0]);
    ech__onednn_arg(&bound, DNNL_ARG_TO, &md[1], args->binding->operands[1]);
    return ech__onednn_create(args->device, pd, &bound, args->binding->scratch, out);
}

void ech__onednn_offer_reorder(const ech__kernel_desc *desc, ech__offer *offer)
{
    dnnl_memory_desc_t md[2];
    ech__onednn_offer(primitive_desc(offer->cpu->onednn, desc, md), create_kernel, desc, 1,
                      &desc->operands[1].layout, offer);
}
