/* Shape and backward rules of the operators on images [N, C, H, W]: rows of the table in op.c. */
#pragma once

#include "graph/op.h"

/* From op.c: says which operator, with which shapes, breaks the rule. */
ech_status ech__op_type_error(ech_ctx *ctx, const ech__node *node, const ech__type *in,
                              const char *rule);
#define type_error ech__op_type_error

static inline ech__type ech__vector_type(ech_dtype dtype, int64_t length)
{
    return (ech__type){dtype, {1, {length}}};
}

static inline bool ech__is_vector_of(const ech__type *type, int64_t length)
{
    return type->shape.ndims == 1 && type->shape.dims[0] == length;
}

ech__infer_rule ech__infer_conv2d, ech__infer_conv2d_bwd_data, ech__infer_conv2d_bwd_weights,
    ech__infer_bn_running, ech__infer_maxpool2d, ech__infer_avgpool2d, ech__infer_pool_bwd,
    ech__infer_flatten, ech__infer_unflatten;
/* Batch norms: bn_stats and bn_reduce, bn_apply and bn_bwd_data. */
ech__infer_rule ech__infer_bn_sums, ech__infer_bn_image;

/* Linear layers and convolutions. */
ech__backward_rule ech__backward_product;
/* Pools and flattening. */
ech__backward_rule ech__backward_image;
ech__backward_rule ech__backward_bn_apply;

#define ECH__INFER(name)                                                                           \
    ech_status ech__infer_##name(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
#define ECH__BACKWARD(name)                                                                        \
    ech_status ech__backward_##name(struct ech__autodiff *ad, const ech__node *node)
