/* Operators: one table row each. To add one: a line in ECH__OP_LIST, its row in op.c, its shape and backward
 * rules in the file of its family, a kernel on each device, and a line in the operator harness of the tests.
 *
 * Shape letters: N samples, I and O input and output features or channels, C channels or classes, H W height
 * and width. A star marks what is changed in place, parentheses what may be left out.
 */
#pragma once

#include "tensor/shape.h"

/* clang-format off */
/*    id and name                                 inputs -> outputs; attributes */
#define ECH__OP_LIST(X)                                                                             \
    X(LINEAR, "linear")                         /* x[N,I] w[O,I] (b[O]) -> y[N,O]; relu */          \
    X(LINEAR_BWD_DATA, "linear_bwd_data")       /* dy[N,O] w[O,I] -> dx[N,I] */                     \
    X(LINEAR_BWD_WEIGHTS, "linear_bwd_weights") /* x[N,I] dy[N,O] -> dw[O,I] (db[O]); bias */       \
    X(LINEAR_ADD_WEIGHTS, "linear_add_weights") /* x[N,I] dy[N,O] *dw[O,I] (*db[O]): adds; bias */  \
    X(CONV2D, "conv2d")                         /* x[N,I,H,W] w[O,I,K,K] (b[O]) -> y; relu */       \
    X(CONV2D_BWD_DATA, "conv2d_bwd_data")       /* dy w -> dx; height width */                      \
    X(CONV2D_BWD_WEIGHTS, "conv2d_bwd_weights") /* x dy -> dw (db); bias */                         \
    X(BN_STATS, "bn_stats")                     /* x[N,C,H,W] -> mean[C] variance[C] (of N H W) */  \
    X(BN_RUNNING, "bn_running")                 /* *mean *variance, of the batch, and x; momentum */ \
    X(BN_APPLY, "bn_apply")                     /* x mean variance gamma beta (residual) -> y; relu */ \
    X(BN_REDUCE, "bn_reduce")                   /* x dy mean variance (y) -> dgamma[C] dbeta[C] */  \
    X(BN_BWD_DATA, "bn_bwd_data")               /* x dy mean variance gamma dgamma dbeta (y) -> dx */ \
    X(MAXPOOL2D, "maxpool2d")                   /* x -> y, place of the largest u8 */               \
    X(MAXPOOL2D_BWD, "maxpool2d_bwd")           /* dy place -> dx; height width */                  \
    X(AVGPOOL2D, "avgpool2d")                   /* x -> y */                                        \
    X(AVGPOOL2D_BWD, "avgpool2d_bwd")           /* dy -> dx; height width */                        \
    X(FLATTEN, "flatten")                       /* x[N,C,H,W] -> y[N,C*H*W] */                      \
    X(UNFLATTEN, "unflatten")                   /* y[N,C*H*W] -> x[N,C,H,W]; channels height width */ \
    X(ADD, "add")                               /* a b -> a + b; b like a or a vector */            \
    X(SUM_ROWS, "sum_rows")                     /* a[...,C] -> sums[C] */                           \
    X(RELU, "relu")                             /* x -> max(x, 0) */                                \
    X(RELU_BWD, "relu_bwd")                     /* dy y -> dy where y > 0 */                        \
    X(MSE, "mse")                               /* pred target -> scalar */                         \
    X(MSE_BWD, "mse_bwd")                       /* pred target -> dpred */                          \
    X(CROSS_ENTROPY, "cross_entropy")           /* logits[N,C] labels[N] -> scalar */               \
    X(CROSS_ENTROPY_BWD, "cross_entropy_bwd")   /* logits labels -> dlogits */                      \
    X(COUNT_CORRECT, "count_correct")           /* logits[N,C] labels[N] -> scalar */               \
    X(SGD, "sgd")                               /* *p g (*momentum) */                              \
    X(ADAM, "adam")                             /* *p g *m *v; decoupled: adamw */                  \
    X(ACCUMULATE, "accumulate")                 /* *g part (terms...): g + part, or fresh: terms + part */ \
    X(GRAD_STATS, "grad_stats")                 /* g -> f64: sum of squares, largest magnitude, how many not finite */ \
    X(CONVERT, "convert")                       /* *to from: the same numbers in to's type */       \
    X(ALLREDUCE, "allreduce")                   /* *gradients (*params *states): begins the sum; bucket update */ \
    X(ALLREDUCE_WAIT, "allreduce_wait")         /* nothing; until all begun sums are there */       \
    X(BROADCAST, "broadcast")                   /* *group: rank 0's on every rank */                \
    X(SYNC_STATS, "sync_stats")                 /* *mean *variance x -> variance for bn_running; of all ranks */ \
    X(SYNC_SUMS, "sync_sums")                   /* dgamma dbeta -> their sums over ranks times this one's share */ \
    X(TRANSFER, "transfer")                     /* x -> the same on another device; from to */      \
    X(SEND, "send")                             /* x, to another device's graph; link to */         \
    X(RECV, "recv")                             /* -> x, of another device's graph; link from */    \
    X(REORDER, "reorder")                       /* w -> the same in another layout */               \
    X(CAST, "cast")                             /* x -> the same in another type and layout; dtype */ \
    X(DELAY, "delay")                           /* nothing; idles for seconds */                    \
    X(QUANTIZE, "quantize")                     /* x f32 -> x / scale as a whole number; dtype scale */ \
    X(DEQUANTIZE, "dequantize")                 /* x s8 or u8 -> x * scale in f32; scale */         \
    X(QLINEAR, "qlinear")                       /* x[N,I] w[O,I] s8 b[O] s32 scale[O] -> y; relu dtype */ \
    X(QCONV2D, "qconv2d")                       /* x[NIHW] w[O,K,K*I] s8 b[O] s32 scale[O] -> y; relu dtype bound */ \
    X(QADD, "qadd")                             /* a b -> a * scale + b * scale2; relu dtype */      \
    X(QMAXPOOL2D, "qmaxpool2d")                 /* x -> y */                                        \
    X(QAVGPOOL2D, "qavgpool2d")                 /* x -> sums * scale; dtype */                       \
    X(QFLATTEN, "qflatten")                     /* x[N,C,H,W] -> y[N,C*H*W] */                      \
    X(ROUND, "round")                           /* x[N,C,...] scale[C] -> round(x * scale) in f32; low high */
/* clang-format on */

typedef enum ech__op {
#define ECH__OP_ENUM(id, text) ECH__OP_##id,
    ECH__OP_LIST(ECH__OP_ENUM)
#undef ECH__OP_ENUM
        ECH__OP_COUNT
} ech__op;

#define ECH__PHASE_LIST(X)                                                                         \
    X(FORWARD, "forward")                                                                          \
    X(BACKWARD, "backward")                                                                        \
    X(EXCHANGE, "exchange") /* with other ranks, once an optimizer step; is among BACKWARD */      \
    X(CHECK, "check")       /* of the sums of gradients, before anything is changed by them */     \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(REFRESH, "refresh") /* copies of what the optimizer changed */

typedef enum ech__phase {
#define ECH__PHASE_ENUM(id, text) ECH__PHASE_##id,
    ECH__PHASE_LIST(ECH__PHASE_ENUM)
#undef ECH__PHASE_ENUM
        ECH__PHASE_COUNT
} ech__phase;

/* What grad_stats gives of a gradient, in this order. */
enum { ECH__GRAD_SQUARES, ECH__GRAD_LARGEST, ECH__GRAD_BROKEN, ECH__GRAD_STATS };

enum { ECH__MAX_IN = 8, ECH__MAX_OUT = 2, ECH__MAX_OPERANDS = ECH__MAX_IN + ECH__MAX_OUT };
enum { ECH__BOUND_CHANNELS = 64 }; /* of an attribute `bound` */

typedef struct ech__type {
    ech_dtype dtype;
    ech__shape shape;
} ech__type;

/* What an operator needs to know besides its operands. Unused members are zero. */
typedef struct ech__attrs {
    bool
        relu; /* linear, conv2d, bn_apply: max(., 0) on the result; bn_reduce, bn_bwd_data: y masks dy */
    bool bias;                       /* *_weights: gives the bias gradient too */
    int64_t kernel, stride, pad;     /* conv2d and pools; windows are square */
    int64_t channels, height, width; /* of what a backward operator or unflatten gives */
    double seconds;
    int64_t bucket; /* allreduce: its number */
    int update;     /* allreduce with parameters: the optimizer's operator, an ech__op */
    int from, to;   /* transfer, send, recv: devices */
    int64_t link;   /* send, recv: the number of the transfer that they are the ends of */
    bool fresh;     /* accumulate: g is written, not added to; only then there may be terms */
    double momentum, weight_decay, beta1, beta2, epsilon;
    bool nesterov, decoupled;
    ech_dtype dtype;      /* cast, operators on integers: of what it gives */
    double scale, scale2; /* operators on integers: from an operand's unit to the result's */
    double low, high;     /* round: limits of the result */
    /* qconv2d: no sum over ECH__BOUND_CHANNELS neighbouring inputs is further from 0; 0: not known */
    int64_t bound;
} ech__attrs;

typedef struct ech__node {
    ech__op op;
    const char *name; /* of the layer: "fc1"; unique with the operator's name in most graphs */
    ech__phase phase;
    int device; /* where a model is spread over several (parallel/place.h); a transfer: the first */
    ech__attrs attrs;
    int nin, nout;
    ech_value in[ECH__MAX_IN], out[ECH__MAX_OUT];
} ech__node;

static inline ech_value ech__node_operand(const ech__node *node, int i)
{
    return i < node->nin ? node->in[i] : node->out[i - node->nin];
}

struct ech__autodiff;
typedef ech_status ech__infer_rule(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                   ech__type *out);
typedef ech_status ech__backward_rule(struct ech__autodiff *ad, const ech__node *node);

typedef struct ech__op_row {
    int min_in, max_in;
    /* The input whose memory the first output may take over, or -1. */
    int reuses;
    unsigned changes; /* bit k: input k is changed in place */
    bool flat;        /* operands are flat arrays: any layout will do that they share */
    bool is_loss;
    /* Mixed precision. Inputs with a bit in low_in may be of 16 bits, all of one type; then so are
     * the outputs with a bit in low_out, and everything else is f32. */
    unsigned low_in, low_out;
    bool product;   /* linear layers and convolutions: what flows begins there */
    int weight;     /* the input that is a weight: of the one type or the other; 0: none */
    bool exchange;  /* done by ranks or devices together (plan/exchange.h), not by one device */
    bool own_types; /* the shape rule says which types fit, else they are checked before it */
    /* Gives the outputs' types, and node->nout where it is not 1, or says what does not fit. */
    ech__infer_rule *infer;
    /* Adds the operators of the backward pass; NULL where there is none. */
    ech__backward_rule *backward;
} ech__op_row;

/* The type in which a 16-bit operator computes and keeps its sums; any other type is its own. */
ech_dtype ech__op_wide(ech_dtype dtype);

const ech__op_row *ech__op_info(ech__op op);
/* The types of what a node gives, by the rule of its operator. */
ech_status ech__op_infer(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out);
const char *ech__op_name(ech__op op);
const char *ech__phase_name(ech__phase phase);

/* ---- what a backward rule calls (autodiff.c) ---- */

/* The gradient of a value made by this node. */
ech_value ech__ad_of(struct ech__autodiff *ad, ech_value value);
const ech__type *ech__ad_type(const struct ech__autodiff *ad, ech_value value);
/* Whether a value leads back to a parameter. */
bool ech__ad_needs(const struct ech__autodiff *ad, ech_value value);
/* Adds a backward operator; as ech__graph_add. Without a name it has that of the forward operator. */
ech_value ech__ad_add(struct ech__autodiff *ad, const ech__node *node);
/* Says that grad is a contribution to value's gradient. */
ech_status ech__ad_give(struct ech__autodiff *ad, ech_value value, ech_value grad);
