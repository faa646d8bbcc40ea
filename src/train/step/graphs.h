/* The graphs of a training run, from its options. The trainer, on the real and the virtual clock,
 * and prediction build them here and nowhere else, so what is priced is what runs.
 *
 *     one device, or one rank of several      ech__graphs_of_rank        a graph for each role of a micro-step
 *     DataParallel                            ech__graphs_of_split      body and head
 *     layers on several devices               ech__graphs_of_layers      fused, layers are found
 *                                             ech__graphs_place          when each layer has its device
 *                                             ech__graphs_of_stage       of each device, for each role
 *
 * Passes and their order are those of passes.h.
 */
#pragma once

#include "parallel/pipe/pipe.h"
#include "parallel/place.h"

typedef struct ech__graphs_options {
    const ech_train_options *train;
    int ranks;          /* with samples of their own; up to 1: nothing is exchanged */
    bool shared_memory; /* of the ranks */
    double straggle_ms; /* idle time of this rank alone, before its backward pass */
} ech__graphs_options;

/* What a micro-step does with its gradients; each role is a graph of its own. 0 writes them where
 * nothing else is to be added, and is the last micro-step of a tree of sums. Else it adds: 1 to the
 * gradient, or, in a tree, 1 + level. */
enum { ECH__MAX_ROLES = 8 };

/* Of a rank in an optimizer step: accumulation, or its slots in the reproducible mode. */
int ech__micro_steps(const ech_train_options *train, int ranks);
int ech__roles(const ech_train_options *train, int ranks);
/* The role of a micro-step, from 0 to count - 1. tree: of the reproducible mode. */
int ech__role_of(bool tree, int index, int count);

/* The scale that the loss starts with; 0: it is not scaled. */
double ech__loss_scale(const ech_train_options *train);
/* Whether gradients are checked before they are used: to scale the loss, or to clip. */
bool ech__checks_gradients(const ech_train_options *train);
/* Whether each rank updates a shard of the parameters for all of them. */
bool ech__updates_sharded(const ech__graphs_options *options);

/* out[ECH__MAX_ROLES], the caller's to destroy, also after a failure; NULL from ech__roles on. */
ech_status ech__graphs_of_rank(const ech_graph *model, ech_value loss,
                               const ech__graphs_options *options, ech_graph **out);

/* The body has all passes. Both graphs are the caller's to destroy. */
ech_status ech__graphs_of_split(const ech_graph *model, ech_value loss,
                                const ech__graphs_options *options, ech__split_model *out);

/* The whole model, forward only, and its layers, placed as the options say as long as no times are
 * known. */
ech_status ech__graphs_of_layers(const ech_graph *model, const ech__graphs_options *options,
                                 ech_graph **out, ech__layers *layers);
/* How the options place layers. */
ech__placement ech__graphs_placement(const ech_train_options *train);
/* Adds the transfers between devices and the backward pass. */
ech_status ech__graphs_place(ech_graph *whole, ech__layers *layers, ech_value loss,
                             const ech__graphs_options *options);
/* The part of one device. out[ECH__PIPE_ROLES] but for evaluation; what is wrong is said in ctx.
 * buckets: how many the devices before it have, to which its own are added. */
ech_status ech__graphs_of_stage(const ech_graph *whole, int device, ech_ctx *ctx,
                                const ech__graphs_options *options, int *buckets, ech_graph **out);

/* Micro-batches of a model whose layers are on several devices. */
int ech__micro_batches(const ech_train_options *train);
