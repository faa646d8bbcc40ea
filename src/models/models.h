/* The models that come with Echelon: functions that write themselves into a graph. */
#pragma once

#include "graph/graph.h"

#define ECH__MODEL_LIST(X)                                                                         \
    X(LINEAR, "linear")     /* depth times Linear(dim, dim) and ReLU, mean-squared error */        \
    X(LENET, "lenet")       /* conv 3-6-16 of 5x5 with pools, fc 400-120-84-10 */                  \
    X(RESNET18, "resnet18") /* for 32x32 images: 64 to 512 channels, 11,173,962 parameters */      \
    X(RESNET8, "resnet8")   /* the same blocks, one a stage and three stages, 16 to 64 channels */

typedef enum ech__model_kind {
#define ECH__MODEL_ENUM(id, text) ECH__MODEL_##id,
    ECH__MODEL_LIST(ECH__MODEL_ENUM)
#undef ECH__MODEL_ENUM
} ech__model_kind;

const char *ech__model_name(ech__model_kind kind);
/* Whether it takes images [N,3,32,32] "x" and "labels" [N], or vectors "x" and "y" [N, dim]. */
bool ech__model_takes_images(ech__model_kind kind);

typedef struct ech__model_options {
    ech__model_kind kind;
    int64_t dim, depth; /* linear */
} ech__model_options;

/* What a program needs of a model in a graph. */
typedef struct ech__model {
    ech_value loss;
    ech_value correct; /* samples that were classified rightly; -1 without classes */
} ech__model;

/* Parameters have PyTorch's names and initial distributions. */
ech_status ech__model_build(ech_graph *graph, const ech__model_options *options, ech__model *out);
