/* oneDNN's v2 C interface, as far as its primitives have things in common. Only this folder may
 * see it. */
#pragma once

#include "device/cpu/cpu.h"

#include <dnnl.h>

struct ech__onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* A layout as oneDNN describes it, and back; false where our layouts cannot say what oneDNN
 * means. */
void ech__onednn_md(const ech__layout *layout, ech_dtype dtype, dnnl_memory_desc_t *md);
bool ech__onednn_layout(const dnnl_memory_desc_t *md, ech__layout *layout);

/* Whether oneDNN can be asked about a tensor: it has at most ECH__LIBRARY_ELEMENTS. On its way
 * to a kernel oneDNN dies of a division by zero where a product of sizes wraps around. */
bool ech__onednn_addresses(const dnnl_memory_desc_t *md);

/* Scratch from us. NULL when it cannot be made. */
dnnl_primitive_attr_t ech__onednn_attributes(void);

/* What oneDNN calls the kernel: "brgemm:avx512_core", "x64:gemm:jit". */
const char *ech__onednn_kernel_name(const_dnnl_primitive_desc_t pd);
/* Kernels on its matrix multiplication take their packing buffers by themselves, in every call;
 * those on its batch-reduce one ("brgemm") take them from the scratch that they are given. */
bool ech__onednn_allocates(const char *kernel_name);

/* A candidate from a primitive description, with this layout for its free operand. oneDNN's
 * reference code is none for bf16, where our own way through f32 is faster. */
void ech__onednn_offer(const_dnnl_primitive_desc_t pd, ech__create_kernel *create,
                       const ech__kernel_desc *desc, int free_operand, const ech__layout *layout,
                       ech__offer *offer);

/* The tensors of an operator with a weight, whatever the direction: a linear layer or a
 * convolution. */
typedef struct ech__onednn_tensors {
    dnnl_memory_desc_t src, wei, bia, dst;
    bool has_bias;
} ech__onednn_tensors;

/* Whether oneDNN can be asked about the operator: it addresses each of its tensors. */
bool ech__onednn_can_ask(const ech__onednn_tensors *tensors);

/* The tensors of the forward operator by which op is described. The weight has the type of the
 * data, where a gradient may be f32, and of bf16 no order that only the backward pass has. */
ech__onednn_tensors ech__onednn_hint(ech__op op, const ech__onednn_tensors *tensors);

/* Directions to ask oneDNN for layouts of a weight, from op on: of 16 bits, the gradient is
 * another tensor than the weight. */
typedef struct ech__onednn_directions {
    ech__op op[3];
    int count;
} ech__onednn_directions;

ech__onednn_directions ech__onednn_directions_of(const ech__kernel_desc *desc);

enum { ECH__ONEDNN_MAX_ARGS = 4 };

/* What a primitive is executed on. */
typedef struct ech__onednn_args {
    int count;
    int arg[ECH__ONEDNN_MAX_ARGS];
    const dnnl_memory_desc_t *md[ECH__ONEDNN_MAX_ARGS];
    void *memory[ECH__ONEDNN_MAX_ARGS];
    bool relu; /* of the last argument, after the primitive */
} ech__onednn_args;

void ech__onednn_arg(ech__onednn_args *args, int arg, const dnnl_memory_desc_t *md, void *memory);
/* A kernel that executes the primitive on these arguments. pd may be NULL: then it fails. */
ech_status ech__onednn_create(ech__device *device, ech__onednn *onednn, dnnl_primitive_desc_t pd,
                              const ech__onednn_args *args, void *scratch, ech__kernel **out);
/* The same with the arguments of forward, backward data or backward weights; destroys pd. */
ech_status ech__onednn_create_weighted(ech__device *device, const ech__kernel_desc *desc,
                                       const ech__onednn_tensors *tensors, dnnl_primitive_desc_t pd,
                                       const ech__binding *binding, ech__kernel **out);
