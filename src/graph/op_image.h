/* Shape and backward rules of the operators on images [N, C, H, W]: rows of the table in op.c. */
#pragma once

#include "graph/op.h"

/* From op.c: says which operator, with which shapes, breaks the rule. */
ech_status ech__op_type_error(ech_ctx *ctx, const ech__node *node, const ech__type *in,
                              const char *rule);
/* From op.c: all inputs f32, or all f64, or 16 bits where the operator's row allows it. */
ech_status ech__op_types(ech_ctx *ctx, const ech__node *node, const ech__type *in);

#define ECH__INFER(name)                                                                           \
    ech_status ech__infer_##name(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
ECH__INFER(conv2d);
ECH__INFER(conv2d_bwd_data);
ECH__INFER(conv2d_bwd_weights);
ECH__INFER(bn_stats);
ECH__INFER(bn_running);
ECH__INFER(bn_apply);
ECH__INFER(bn_reduce);
ECH__INFER(bn_bwd_data);
ECH__INFER(maxpool2d);
ECH__INFER(avgpool2d);
ECH__INFER(pool_bwd);
ECH__INFER(flatten);
ECH__INFER(unflatten);

#define ECH__BACKWARD(name)                                                                        \
    ech_status ech__backward_##name(struct ech__autodiff *ad, const ech__node *node)
ECH__BACKWARD(conv2d);
ECH__BACKWARD(bn_apply);
ECH__BACKWARD(maxpool2d);
ECH__BACKWARD(avgpool2d);
ECH__BACKWARD(flatten);
