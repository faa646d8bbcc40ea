/* A graph: operators over named values. It knows shapes and types, but not devices or ranks.
 *
 * Nodes are in an order in which they can be executed. Values keep their numbers: a pass may add
 * values and leave some without users, but never renumbers, so that a handle given to a program
 * stays valid.
 *
 *     ech__node n = {.op = ECH__OP_RELU, .nin = 1, .in = {x}};
 *     ech_value y = ech__graph_add(g, &n);            infers shapes; negative where they do not fit
 *
 */
#pragma once

#include "base/arena.h"
#include "graph/op.h"

#define ECH__VALUE_LIST(X)                                                                         \
    X(INPUT, "input") /* written by the program before a step */                                   \
    X(PARAM, "parameter")                                                                          \
    X(BUFFER, "buffer")         /* kept from step to step, but not trained */                      \
    X(ACTIVATION, "activation") /* lives between its producer and its last user */                 \
    X(GRADIENT, "gradient")     /* of a parameter: .of */                                          \
    X(STATE, "state")           /* of the optimizer, for a parameter: .of */                       \
    X(COPY, "copy")             /* of a parameter or copy, in another type or layout: .of */       \
    X(PART, "part")   /* of a gradient, added to a sum; has the lifetime of an activation */       \
    X(SENT, "sent")   /* a gradient in the type in which it is exchanged; of a parameter: .of */   \
    X(SUM, "sum")     /* of parts, kept from micro-step to micro-step; of a parameter: .of */      \
    X(GROUP, "group") /* of contiguous values that are exchanged together */

typedef enum ech__value_kind {
#define ECH__VALUE_ENUM(id, text) ECH__VALUE_##id,
    ECH__VALUE_LIST(ECH__VALUE_ENUM)
#undef ECH__VALUE_ENUM
} ech__value_kind;

const char *ech__value_kind_name(ech__value_kind kind);

/* How a parameter or buffer starts: uniform in [low, high); constant where they are equal. */
typedef struct ech__init {
    double low, high;
} ech__init;

typedef struct ech__value {
    const char *name;
    ech__value_kind kind;
    ech__type type;
    ech_value of;   /* the parameter a gradient, state or copy belongs to; else -1 */
    ech__init init; /* parameters and buffers */
    bool kept;      /* read after a step by others than operators; an input: has a place anyway */
    bool grouped;   /* it lies in a group: .group, as its member number .place */
    ech_value group;
    int place;
} ech__value;

struct ech_graph {
    ech_ctx *ctx;
    ech__arena arena;
    ech__value *values;
    size_t nvalues, cap_values;
    ech__node *nodes;
    size_t nnodes, cap_nodes;
    ech__phase phase;  /* of the nodes added from now on */
    ech_status status; /* first failure of a building call */
    ech_value loss;    /* -1 until ech__autodiff */
    /* Called after every pass over the graph and its copies (train/step/passes.h); NULL: not called. */
    void (*on_pass)(void *user, const ech_graph *graph, const char *pass);
    void *on_pass_user;
};

/* A value of its own (input, parameter, state). The name is copied. Negative status on failure. */
ech_value ech__graph_value(ech_graph *graph, const ech__value *value);

/* Appends a node and its outputs; returns the first output, the others follow it in number. Operators
 * without outputs return 0. The node's name may be NULL. */
ech_value ech__graph_add(ech_graph *graph, const ech__node *node);

/* Says that the program will read a value after each step. */
void ech__graph_keep(ech_graph *graph, ech_value value);

/* The value with this name, or -1. */
ech_value ech__graph_find(const ech_graph *graph, const char *name);
/* The node that makes a value, or NULL. */
ech__node *ech__graph_maker(const ech_graph *graph, ech_value value);
/* The only node that uses value; NULL where there is none, or more than one. */
ech__node *ech__only_user(const ech_graph *graph, ech_value value);

/* Moves the last node to a place before others. */
void ech__graph_move_last(ech_graph *graph, size_t to);

/* Puts values of one kind into a group of that name, in this order. */
ech_value ech__graph_group(ech_graph *graph, const char *name, const ech_value *members,
                           size_t count);

/* The gradient of a parameter, or -1. */
ech_value ech__graph_gradient(const ech_graph *graph, ech_value param);

/* A copy that shares nothing with the original. */
ech_status ech__graph_clone(const ech_graph *graph, ech_graph **out);

/* Checks what passes must keep: inputs made before use, each value made once. For tests. */
ech_status ech__graph_check(const ech_graph *graph);

/* ---- passes of this layer ---- */

/* Folds what one kernel can do into one operator: a bias and ReLU into linear, ReLU into conv2d and bn_apply, a
 * residual sum into bn_apply. Before ech__autodiff. */
ech_status ech__fuse(ech_graph *graph);

/* Appends the backward operators that give every parameter under loss its gradient, and no others. */
ech_status ech__autodiff(ech_graph *graph, ech_value loss);

/* The same from a value whose gradient is known: grad, an input of the value's type. */
ech_status ech__autodiff_from(ech_graph *graph, ech_value value, ech_value grad);

/* A model in two: the body makes the prediction, the head takes it and makes the loss and the gradient of the
 * prediction. Values keep their numbers in both. */
typedef struct ech__split_model {
    ech_graph *body, *head;
    ech_value prediction; /* an activation of the body, an input of the head */
    ech_value grad_in;    /* of the prediction: an input of the body */
    ech_value grad_out;   /* the same in the head, which makes it */
} ech__split_model;

/* The head has its backward operator, and holds every input of the model, its own or not. The body is forward
 * only: ech__fuse and then ech__autodiff_from(body, prediction, grad_in) come next. The loss must be one mse or
 * cross_entropy. Both graphs are the caller's to destroy. */
ech_status ech__split_loss(const ech_graph *model, ech_value loss, ech__split_model *out);

/* Mixed precision: what flows from operator to operator becomes of this 16-bit type, see autocast.c. Right after
 * ech__recompute, or where there is no backward pass after ech__fuse. */
ech_status ech__autocast(ech_graph *graph, ech_dtype dtype);

/* Lets operators read copies of their weights, refreshed after the optimizer: of 16 bits where their data are, and
 * in a layout of their own for backward data, whose kernels want another. Last of all passes; a plan that finds one
 * layout good for both directions drops the second copy. */
ech_status ech__copy_weights(ech_graph *graph);

/* For evaluation: normalises by the running statistics instead of the batch's. Instead of ech__autodiff. */
ech_status ech__infer_only(ech_graph *graph);

/* Lets the backward pass compute the outputs of batch norms again instead of keeping them. Right after
 * ech__autodiff. */
ech_status ech__recompute(ech_graph *graph);

/* Lets a micro-step add to what others left, instead of writing gradients: see accumulate.c. Right after
 * ech__recompute. */
typedef struct ech__accumulation {
    bool onto; /* parts are added to the gradient that is there */
    bool
        inside; /* with onto: by the operators that make them, where these can; no part is made then */
    int levels; /* sums that are kept between micro-steps, for a fixed tree of sums */
    int adds;   /* of these, how many are added to the part: those of level 0 to adds - 1 */
    int into;   /* the level that takes the result; levels: the gradient does */
} ech__accumulation;
ech_status ech__accumulate(ech_graph *graph, const ech__accumulation *how);

/* Lets every gradient be looked at between the exchange and the optimizer: see check.c. After ech__ddp, before the
 * optimizer. */
ech_status ech__check_gradients(ech_graph *graph);

/* Puts an operator that idles for this long before the first backward operator. */
ech_status ech__insert_delay(ech_graph *graph, double seconds);
