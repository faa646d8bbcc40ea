#include "device/cpu/onednn/onednn.h"
#include "base/size.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static ech_status failed(ech_ctx *ctx, const char *what, dnnl_status_t status)
{
    return ech__fail(ctx, ECH_E_INTERNAL, "oneDNN: %s failed with status %d", what, (int)status);
}

/* ---- the level of instructions ---- */

static pthread_once_t held = PTHREAD_ONCE_INIT;
static dnnl_status_t hold_status = dnnl_success;

/* Before anything else is asked of oneDNN: it decides once for the process. Without ECHELON_ISA
 * it takes what it finds, which may be more than our levels tell apart. */
static void hold_to_level(void)
{
#ifdef ECH_X86
    static const dnnl_cpu_isa_t isas[] = {
        [ECH__ISA_GENERIC] = dnnl_cpu_isa_sse41,
        [ECH__ISA_AVX2] = dnnl_cpu_isa_avx2,
        [ECH__ISA_AVX512] = dnnl_cpu_isa_avx512_core,
        [ECH__ISA_AVX512_VNNI] = dnnl_cpu_isa_avx512_core_vnni,
        [ECH__ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
    };
    if (ech__isa_is_set())
        hold_status = dnnl_set_max_cpu_isa(isas[ech__isa_level()]);
#endif
}

/* ---- opening ---- */

ech_status ech__onednn_open(ech_ctx *ctx, ech__onednn **out)
{
    *out = NULL;
    pthread_once(&held, hold_to_level);
    if (hold_status != dnnl_success)
        return ech__fail(ctx, ECH_E_UNSUPPORTED,
                         ECH__ISA_VARIABLE " %s: oneDNN cannot be held to it, because this process "
                                           "has used it before",
                         ech__isa_name(ech__isa_level()));
    ech__onednn *onednn = ech__new(ctx, sizeof *onednn);
    if (!onednn)
        return ech__no_memory(ctx, "the cpu device");
    dnnl_status_t status = dnnl_engine_create(&onednn->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        ech__onednn_close(ctx, onednn);
        return failed(ctx, "opening the cpu engine", status);
    }
    *out = onednn;
    return ECH_OK;
}

void ech__onednn_close(ech_ctx *ctx, ech__onednn *onednn)
{
    if (!onednn)
        return;
    if (onednn->stream)
        dnnl_stream_destroy(onednn->stream);
    if (onednn->engine)
        dnnl_engine_destroy(onednn->engine);
    ech__delete(ctx, onednn, sizeof *onednn);
}

static const struct isa {
    dnnl_cpu_isa_t isa;
    const char *name;
    bool vnni;
} isas[] = {
    {dnnl_cpu_isa_sse41, "sse4.1", false},
    {dnnl_cpu_isa_avx, "avx", false},
    {dnnl_cpu_isa_avx2, "avx2", false},
    {dnnl_cpu_isa_avx2_vnni, "avx2+vnni", true},
    {dnnl_cpu_isa_avx512_core, "avx512", false},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512+vnni", true},
    {dnnl_cpu_isa_avx512_core_bf16, "avx512+bf16", true},
    {dnnl_cpu_isa_avx512_core_amx, "amx", true},
};

static struct isa effective_isa(void)
{
    pthread_once(&held, hold_to_level);
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (isas[i].isa == isa)
            return isas[i];
    }
    return (struct isa){isa, "other", false};
}

bool ech__onednn_has_vnni(void)
{
    return effective_isa().vnni;
}

void ech__onednn_version(char *out, size_t bytes)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, bytes, "oneDNN %d.%d.%d %s", v->major, v->minor, v->patch, effective_isa().name);
}

/* ---- layouts and memory descriptions ---- */

static const dnnl_data_type_t types[ECH_S64 + 1] = {[ECH_F32] = dnnl_f32,
                                                    [ECH_BF16] = dnnl_bf16,
                                                    [ECH_S32] = dnnl_s32,
                                                    [ECH_S8] = dnnl_s8,
                                                    [ECH_U8] = dnnl_u8};

void ech__onednn_md(const ech__layout *layout, ech_dtype dtype, dnnl_memory_desc_t *md)
{
    memset(md, 0, sizeof *md);
    md->ndims = layout->shape.ndims;
    md->data_type = types[dtype];
    assert(md->data_type != dnnl_data_type_undef);
    md->format_kind = dnnl_blocked;
    for (int k = 0; k < md->ndims; k++) {
        md->dims[k] = layout->shape.dims[k];
        md->padded_dims[k] = layout->padded[k];
        md->format_desc.blocking.strides[k] = layout->strides[k];
    }
    md->format_desc.blocking.inner_nblks = layout->nblocks;
    for (int b = 0; b < layout->nblocks; b++) {
        md->format_desc.blocking.inner_blks[b] = layout->block_size[b];
        md->format_desc.blocking.inner_idxs[b] = layout->block_axis[b];
    }
}

bool ech__onednn_layout(const dnnl_memory_desc_t *md, ech__layout *layout)
{
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    *layout = (ech__layout){.shape = {.ndims = md->ndims}};
    if (md->format_kind != dnnl_blocked || md->ndims > ECH_MAX_DIMS || md->offset0 != 0 ||
        md->extra.flags != 0 || blocking->inner_nblks > ECH__MAX_BLOCKS)
        return false;
    for (int k = 0; k < md->ndims; k++) {
        if (md->padded_offsets[k] != 0)
            return false;
        layout->shape.dims[k] = md->dims[k];
        layout->padded[k] = md->padded_dims[k];
        layout->strides[k] = blocking->strides[k];
    }
    layout->nblocks = blocking->inner_nblks;
    for (int b = 0; b < layout->nblocks; b++) {
        layout->block_size[b] = blocking->inner_blks[b];
        layout->block_axis[b] = (int)blocking->inner_idxs[b];
    }
    return true;
}

bool ech__onednn_addresses(const dnnl_memory_desc_t *md)
{
    int64_t elements = 1;
    for (int k = 0; k < md->ndims; k++) {
        if (!ech__mul(elements, md->padded_dims[k], &elements) || elements > ECH__LIBRARY_ELEMENTS)
            return false;
    }
    return true;
}

bool ech__onednn_can_ask(const ech__onednn_tensors *t)
{
    return ech__onednn_addresses(&t->src) && ech__onednn_addresses(&t->wei) &&
           ech__onednn_addresses(&t->dst);
}

/* ---- describing primitives ---- */

dnnl_primitive_attr_t ech__onednn_attributes(void)
{
    dnnl_primitive_attr_t attr = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    if (dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) != dnnl_success) {
        dnnl_primitive_attr_destroy(attr);
        return NULL;
    }
    return attr;
}

const char *ech__onednn_kernel_name(const_dnnl_primitive_desc_t pd)
{
    const char *info = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&info);
    return info;
}

bool ech__onednn_allocates(const char *kernel_name)
{
    return strstr(kernel_name, "gemm") && !strstr(kernel_name, "brgemm");
}

void ech__onednn_offer(dnnl_primitive_desc_t pd, ech__create_kernel *create,
                       const ech__kernel_desc *desc, int free_operand, const ech__layout *layout,
                       ech__offer *offer)
{
    if (!pd)
        return;
    const char *info = ech__onednn_kernel_name(pd);
    const bool reference = strstr(info, "ref") != NULL;
    const bool bf16 = desc->operands[0].dtype == ECH_BF16 || desc->operands[1].dtype == ECH_BF16;
    const bool slow = bf16 && (reference || strstr(info, ":any")); /* number by number */
    char name[40];
    snprintf(name, sizeof name, "onednn:%s", info);
    ech__candidate *candidate = slow ? NULL : ech__offer_add(offer, desc, name, create);
    if (candidate) {
        const dnnl_memory_desc_t *scratch =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        candidate->layouts[free_operand] = *layout;
        candidate->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
        candidate->is_fallback = reference;
        candidate->stands_in = ech__onednn_allocates(info);
        candidate->only_timed = strstr(info, "wino") != NULL;
    }
    dnnl_primitive_desc_destroy(pd);
}

/* ---- kernels ---- */

enum { MAX_ARGS = ECH__ONEDNN_MAX_ARGS + 1, PIECE = 1024 };

typedef struct primitive_kernel {
    ech__kernel base;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    int nargs;
    dnnl_exec_arg_t args[MAX_ARGS];
    void *relu; /* in place, after the primitive; NULL: no ReLU */
    ech_dtype relu_type;
    int64_t relu_count; /* elements, padding included */
} primitive_kernel;

static void relu_piece(const primitive_kernel *k, const ech__vec *vec, int64_t first, int64_t count)
{
    if (k->relu_type == ECH_F32) {
        float *y = (float *)k->relu + first;
        vec->relu(count, y, y);
        return;
    }
    float wide[PIECE];
    uint16_t *low = (uint16_t *)k->relu + first;
    vec->widen(k->relu_type, count, low, wide);
    vec->relu(count, wide, wide);
    vec->narrow(k->relu_type, count, wide, low);
}

/* Not as a post-op of oneDNN, which turns NaN into 0 (it computes max(x, 0) with maxps, which
 * returns the second operand when one is NaN) and so would hide that a training run diverged. */
static void relu_all(const primitive_kernel *k)
{
    const ech__vec *vec = ech__cpu_of(k->base.device)->loops->vec;
    const int64_t pieces = (k->relu_count + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t p = 0; p < pieces; p++) {
        const int64_t left = k->relu_count - p * PIECE;
        relu_piece(k, vec, p * PIECE, left < PIECE ? left : PIECE);
    }
}

static ech_status run_primitive(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const primitive_kernel *kernel = (const primitive_kernel *)base;
    const dnnl_status_t status =
        dnnl_primitive_execute(kernel->primitive, kernel->stream, kernel->nargs, kernel->args);
    if (status != dnnl_success)
        return failed(kernel->base.device->ctx, "a primitive", status);
    if (kernel->relu)
        relu_all(kernel);
    return ECH_OK;
}

static void destroy_primitive(ech__kernel *base)
{
    primitive_kernel *kernel = (primitive_kernel *)base;
    for (int i = 0; i < kernel->nargs; i++)
        dnnl_memory_destroy(kernel->args[i].memory);
    if (kernel->primitive)
        dnnl_primitive_destroy(kernel->primitive);
    ech__kernel_free(base);
}

static dnnl_status_t add_arg(primitive_kernel *kernel, dnnl_engine_t engine, int arg,
                             const dnnl_memory_desc_t *md, void *memory)
{
    dnnl_exec_arg_t *place = &kernel->args[kernel->nargs];
    place->arg = arg;
    const dnnl_status_t status = dnnl_memory_create(&place->memory, md, engine, memory);
    if (status == dnnl_success)
        kernel->nargs++;
    return status;
}

static ech_status create(ech__device *device, dnnl_primitive_desc_t pd,
                         const ech__onednn_args *args, void *scratch, ech__kernel **out)
{
    const ech__onednn *onednn = ech__cpu_of(device)->onednn;
    const primitive_kernel empty = {.base = {.run = run_primitive, .destroy = destroy_primitive},
                                    .stream = onednn->stream};
    ECH_TRY(ech__kernel_make(device, &empty, sizeof empty, out));
    primitive_kernel *kernel = (primitive_kernel *)*out;
    if (args->relu) {
        const dnnl_memory_desc_t *md = args->md[args->count - 1];
        kernel->relu = args->memory[args->count - 1];
        kernel->relu_type = md->data_type == dnnl_bf16 ? ECH_BF16 : ECH_F32;
        kernel->relu_count =
            (int64_t)dnnl_memory_desc_get_size(md) / ech__dtype_bytes(kernel->relu_type);
    }
    dnnl_status_t status = pd ? dnnl_primitive_create(&kernel->primitive, pd) : dnnl_unimplemented;
    for (int i = 0; i < args->count && status == dnnl_success; i++)
        status = add_arg(kernel, onednn->engine, args->arg[i], args->md[i], args->memory[i]);
    if (status == dnnl_success) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        if (dnnl_memory_desc_get_size(md))
            status = add_arg(kernel, onednn->engine, DNNL_ARG_SCRATCHPAD, md, scratch);
    }
    return status == dnnl_success
               ? ECH_OK
               : ech__kernel_made(failed(device->ctx, "preparing a primitive", status), out);
}

ech_status ech__onednn_create(ech__device *device, dnnl_primitive_desc_t pd,
                              const ech__onednn_args *args, void *scratch, ech__kernel **out)
{
    const ech_status status = create(device, pd, args, scratch, out);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

void ech__onednn_arg(ech__onednn_args *args, int arg, const dnnl_memory_desc_t *md, void *memory)
{
    args->arg[args->count] = arg;
    args->md[args->count] = md;
    args->memory[args->count++] = memory;
}
