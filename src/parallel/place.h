/* Layers and where they are: the pass that spreads a model over several devices.
 *
 *     ech__layers layers;
 *     ECH_TRY(ech__layers_find(graph, &layers));                       after ech__fuse, before ech__autodiff
 *     ECH_TRY(ech__placement_apply(ctx, &placement, &layers));         fills in layers.at[i].device
 *     ECH_TRY(ech__place_layers(graph, &layers));                             labels operators, adds transfers
 *
 * A border is possible between two operators when exactly one activation is alive across it; inputs
 * and targets do not count, they are written where they are used. A layer begins at a linear or a
 * convolution that stands behind a possible border, and holds everything up to the next such
 * operator: so a residual block is one layer, and pools belong to the layer before them. The loss
 * is in the last layer. Autodiff turns every transfer into one that goes back, so the gradient of
 * an activation is made on the device that needs it.
 */
#pragma once

#include "graph/graph.h"

enum { ECH__MAX_STAGES = 64 };

typedef struct ech__layer {
    const char *name;    /* "layers.3", "layer1.0"; in the graph's arena */
    size_t first, count; /* of its operators in the forward graph */
    int64_t params;      /* elements of its parameters */
    int64_t bytes;       /* of them */
    int64_t outputs;     /* bytes of its activations, of one sample */
    double flops;        /* multiplications and additions of a forward pass, of one sample */
    double seconds;      /* of a training step, where somebody knows; else 0 */
    int device;
} ech__layer;

typedef struct ech__layers {
    ech__layer *at; /* [count], in the graph's arena */
    int count;
} ech__layers;

ech_status ech__layers_find(ech_graph *graph, ech__layers *out);

/* Ways to place layers 0 to L-1 on devices 0 to D-1; a list of devices is one more. */
#define ECH__PLACEMENT_LIST(X)                                                                     \
    X(EVEN, "even")         /* layer i on device floor(i * D / L): counts differ by one at most */ \
    X(HALF, "half")         /* the first L/2 on device 0, the others on device 1 */                \
    X(BALANCED, "balanced") /* contiguous, so that the device with most time has least of it */    \
    X(BALANCED_MEMORY, "balanced-memory") /* the same for memory */

/* Fills in the layers' devices as the text says: a name from the list above, or one device for each
 * layer, "0,0,1". Refuses more devices than layers, lists of another length, devices that are not
 * there and devices without a layer. `balanced` goes by seconds where all layers have some, else by
 * flops. copies: how often the memory of a parameter is needed (itself, its gradient, the
 * optimizer's states); batch: samples whose activations are alive. */
typedef struct ech__placement {
    const char *text; /* NULL: even */
    int devices;
    int copies;
    int64_t batch;
} ech__placement;
ech_status ech__placement_apply(ech_ctx *ctx, const ech__placement *placement, ech__layers *layers);

/* Whether the time of operators is asked for, so that it is worth finding out. */
bool ech__placement_wants_seconds(const char *text);
/* Whether layers stay in the order of the devices, as a pipeline needs it. */
bool ech__layers_in_order(const ech__layers *layers);

/* Labels every operator with the device of its layer, and moves what crosses a border between
 * devices by transfers, which stand between the layers. */
ech_status ech__place_layers(ech_graph *graph, ech__layers *layers);

/* The layer, by its number, that an operator of a training of this graph belongs to: backward
 * operators have the names of the forward ones, updates its parameters. -1: none. */
int ech__layer_of(const ech_graph *graph, const ech__layers *layers, const ech__node *node);

/* One device's part of a labelled graph, for any phase: transfers become a send in one part and a
 * recv in another, with the same number. Values keep their numbers; those that this part has
 * nothing to do with are of no kind that a pass looks at. What is sent stays where it is until the
 * part has run, so that the other side can fetch it; a gradient is sent before that of the weights
 * beside it is computed. */
ech_status ech__cut(const ech_graph *graph, int device, ech_ctx *ctx, ech_graph **out);

/* Transfers of a labelled graph. */
typedef struct ech__move {
    int from, to;
    bool backward;
    const char *after; /* name of the operator whose result is moved, and which it is */
    ech__op op;
    int64_t bytes; /* of one sample */
} ech__move;
int ech__moves_count(const ech_graph *graph);
/* out[ech__moves_count], in the order of the graph; names are the graph's. */
void ech__moves_of(const ech_graph *graph, ech__move *out);
