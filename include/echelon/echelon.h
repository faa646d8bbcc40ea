/* Echelon: define a model, train it, and know what it costs. The whole public interface.
 *
 * Object lifecycle:
 *
 *     ech_ctx *ctx;         ech_ctx_create(NULL, &ctx);
 *     ech_graph *g;         ech_graph_create(ctx, &g);
 *     ech_value x = ech_input(g, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, 16});
 *     ech_value y = ech_input(g, "y", ECH_F32, 2, (int64_t[]){ECH_BATCH, 4});
 *     ech_value h = ech_relu(g, ech_linear(g, "fc1", x, 32, true));
 *     ech_value loss = ech_mse(g, ech_linear(g, "fc2", h, 4, true), y);
 *
 *     ech_train_options o = ech_train_defaults();
 *     o.batch = 64;
 *     ech_trainer *t;
 *     if (ech_trainer_create(ctx, g, loss, &o, &t) < 0) puts(ech_ctx_error(ctx));
 *     ech_trainer_write(t, "x", xs, sizeof xs);  ech_trainer_write(t, "y", ys, sizeof ys);
 *     ech_step s;           ech_trainer_step(t, &s);
 *
 *     ech_trainer_destroy(t);  ech_graph_destroy(g);  ech_ctx_destroy(ctx);
 *
 * Functions return ECH_OK or a negative status and leave one error message in the context. The
 * functions that build a graph return a value, or a negative status that later calls pass on, so
 * that a chain needs one check at its end. The library never prints and never exits. Only one
 * thread at a time may use a context and the objects that were created with it.
 *
 * Options are structs that a function fills with their defaults: start from it and change what is
 * wanted. Their first member is the size of the struct. Later versions of the library add members
 * at the end, so that a program that was compiled against an older header gets their defaults. Each
 * member says what 0, a negative number or NULL stands for.
 *
 * Constants have the prefix of their type (ECH_OPTIMIZER_SGD, ECH_AMP_BF16). Two that are used
 * everywhere are shorter: statuses (ECH_OK, ECH_E_INVALID) and element types (ECH_F32, ECH_S32).
 */
#ifndef ECHELON_H
#define ECHELON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ECH_VERSION "0.2.0"

#if defined(__GNUC__)
#define ECH_API __attribute__((visibility("default")))
#else
#define ECH_API
#endif

/* ---- status ---- */

#define ECH_STATUS_LIST(X)                                                                         \
    X(OK, 0, "ok")                                                                                 \
    X(E_INVALID, -1, "invalid argument")                                                           \
    X(E_NOMEM, -2, "out of memory")                                                                \
    X(E_IO, -3, "input or output failed")                                                          \
    X(E_FORMAT, -4, "malformed data")                                                              \
    X(E_LIMIT, -5, "over a limit")                                                                 \
    X(E_UNSUPPORTED, -6, "not supported")                                                          \
    X(E_INTERNAL, -7, "internal error")

typedef enum ech_status {
#define ECH_STATUS_ENUM(id, value, text) ECH_##id = value,
    ECH_STATUS_LIST(ECH_STATUS_ENUM)
#undef ECH_STATUS_ENUM
} ech_status;

ECH_API const char *ech_status_name(ech_status status);
ECH_API const char *ech_version(void);

/* ---- context ---- */

typedef struct ech_ctx ech_ctx;

/* Where descriptions (not tensors) are allocated. free gets the size that alloc was asked for. */
typedef struct ech_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *ptr, size_t bytes);
    void *user;
} ech_allocator;

/* Gets one line without a newline. */
typedef void (*ech_log_fn)(void *user, const char *line);

typedef struct ech_ctx_options {
    ech_allocator alloc; /* zero: the heap */
    ech_log_fn log;      /* NULL: silence */
    void *log_user;
} ech_ctx_options;

/* options may be NULL. */
ECH_API ech_status ech_ctx_create(const ech_ctx_options *options, ech_ctx **out);
/* After everything that was made with it. */
ECH_API void ech_ctx_destroy(ech_ctx *ctx);
/* The error message of the last failure; empty when there was none. Valid until the next call with
 * ctx. */
ECH_API const char *ech_ctx_error(const ech_ctx *ctx);

/* ---- graph ---- */

#define ECH_DTYPE_LIST(X)                                                                          \
    X(F32, "f32", 4)                                                                               \
    X(F64, "f64", 8)                                                                               \
    X(BF16, "bf16", 2)                                                                             \
    X(F16, "f16", 2)                                                                               \
    X(S8, "s8", 1)                                                                                 \
    X(U8, "u8", 1)                                                                                 \
    X(S32, "s32", 4)                                                                               \
    X(S64, "s64", 8)

typedef enum ech_dtype {
#define ECH_DTYPE_ENUM(id, text, bytes) ECH_##id,
    ECH_DTYPE_LIST(ECH_DTYPE_ENUM)
#undef ECH_DTYPE_ENUM
} ech_dtype;

enum { ECH_MAX_DIMS = 6 };

/* Stands for the number of samples in the first dimension of an input; a trainer puts in the real
 * one. */
#define ECH_BATCH ((int64_t)-1)

typedef struct ech_graph ech_graph;
typedef int32_t ech_value; /* 0 and up: a value of one graph; negative: an ech_status */

ECH_API ech_status ech_graph_create(ech_ctx *ctx, ech_graph **out);
ECH_API void ech_graph_destroy(ech_graph *graph);
/* The first failure while the graph was built, or ECH_OK. */
ECH_API ech_status ech_graph_status(const ech_graph *graph);

/* Something the program writes before each step. Names are unique in a graph. */
ECH_API ech_value ech_input(ech_graph *graph, const char *name, ech_dtype dtype, int ndims,
                            const int64_t *dims);
/* y[N,O] = x[N,I] W[O,I]^T + b[O]. Parameters NAME.weight and NAME.bias, initialised as PyTorch
 * does: uniform within 1/sqrt(I). */
ECH_API ech_value ech_linear(ech_graph *graph, const char *name, ech_value x, int64_t out_features,
                             bool bias);
typedef struct ech_conv {
    int64_t out_channels, kernel; /* the kernel is square */
    int64_t stride, pad;          /* stride 0: 1; pad 0: none */
    bool bias;
} ech_conv;

/* x[N,C,H,W]. Parameters NAME.weight [O,C,K,K] and NAME.bias [O], initialised as PyTorch does. */
ECH_API ech_value ech_conv2d(ech_graph *graph, const char *name, ech_value x, const ech_conv *conv);
/* Normalises every channel of x[N,C,H,W] over the batch. Parameters NAME.weight and NAME.bias;
 * buffers NAME.running_mean and NAME.running_var, which evaluation uses (momentum 0.1, epsilon
 * 1e-5). */
ECH_API ech_value ech_batchnorm2d(ech_graph *graph, const char *name, ech_value x);
ECH_API ech_value ech_maxpool2d(ech_graph *graph, ech_value x, int64_t kernel, int64_t stride);
ECH_API ech_value ech_avgpool2d(ech_graph *graph, ech_value x, int64_t kernel, int64_t stride);
/* [N,C,H,W] -> [N,C*H*W] */
ECH_API ech_value ech_flatten(ech_graph *graph, ech_value x);
ECH_API ech_value ech_relu(ech_graph *graph, ech_value x);
/* Same shapes, or b a vector as long as a's last dimension. */
ECH_API ech_value ech_add(ech_graph *graph, ech_value a, ech_value b);
/* Mean of (pred - target)^2 over all elements: a scalar. */
ECH_API ech_value ech_mse(ech_graph *graph, ech_value pred, ech_value target);
/* Mean over samples of softmax cross-entropy. logits[N,C], labels[N] of type s32: a scalar. */
ECH_API ech_value ech_cross_entropy(ech_graph *graph, ech_value logits, ech_value labels);

/* How many samples have their largest logit at their label: a scalar of the logits' type. */
ECH_API ech_value ech_count_correct(ech_graph *graph, ech_value logits, ech_value labels);

/* ---- devices ---- */

/* Devices that this process could use, as torch.cuda.device_count(): the cores that it may run
 * on. */
ECH_API int ech_device_count(void);

/* ---- ranks ----
 *
 * A program that is started by `echelon run -n N -- PROG`, or by mpirun, is one of several ranks.
 * Each rank opens the group, gives it to its trainer, and feeds it different samples; gradients are
 * summed over the ranks. A program that is started directly is a group of one. */

typedef struct ech_group ech_group;

/* Reads rank and size from the environment. Call it before training. */
ECH_API ech_status ech_group_open(ech_ctx *ctx, ech_group **out);
/* After the trainers that use it. */
ECH_API void ech_group_close(ech_group *group);
ECH_API int ech_group_rank(const ech_group *group); /* from 0 to size - 1 */
ECH_API int ech_group_size(const ech_group *group);
ECH_API int ech_group_local_rank(const ech_group *group); /* among those on this machine */
/* How often `echelon run --max-restarts` has started the ranks again after one of them failed. */
ECH_API int ech_group_restarts(const ech_group *group);
/* Every rank calls these in the same order. */
ECH_API ech_status ech_group_barrier(ech_group *group);
/* Sums data[count] over the ranks; the result has the same bits on all of them. */
ECH_API ech_status ech_group_sum(ech_group *group, float *data, int64_t count);

/* ---- images ----
 *
 * Batches of labelled images, prefetched by a thread, normalised, and distributed over the ranks of
 * a group:
 *
 *     ech_loader_options o = ech_loader_defaults();
 *     o.dir = "cifar";  o.batch = 128;  o.group = group;
 *     ech_loader *train;        ech_loader_open(ctx, &o, &train);
 *     for (int64_t i = 0; i < ech_loader_steps(train); i++) {          one epoch
 *         ech_batch b;          ech_loader_next(train, &b);
 *         ech_trainer_step_batch(t, "images", "labels", &b, &step);
 *     }
 *     ech_loader_close(train);
 *
 * The content of a batch is a function of the options, the rank and the step: the same seed gives
 * the same bits, and in a step N ranks together see the samples that one rank with N times the
 * batch sees. Each sample occurs once in an epoch. The last step of an epoch has the remaining
 * samples, split evenly, so ranks may then have different numbers of samples, or none. */

typedef struct ech_loader ech_loader;

typedef struct ech_loader_options {
    size_t size;      /* as ech_loader_defaults sets it */
    const char *dir;  /* CIFAR-10's binary files; NULL: synthetic images */
    bool test;        /* the test set, in its order and as it is, instead of the training set */
    int64_t limit;    /* samples to use, balanced over the classes; 0: all */
    int64_t batch;    /* samples of this rank in a step; the same on every rank */
    uint64_t seed;    /* of order and augmentation */
    bool shuffle;     /* another order in every epoch; off: that of the files */
    bool augment;     /* random crops and flips */
    ech_group *group; /* ranks that share the set; borrowed; NULL: none */
    /* Of synthetic images; 0: as CIFAR-10, 3x32x32 and 10. At most 64, 4096, 4096 and 256. */
    int channels, height, width, classes;
} ech_loader_options;

/* The samples of one rank in one step. */
typedef struct ech_batch {
    const float *images;   /* [count, channels, height, width] */
    const int32_t *labels; /* [count], from 0 to classes - 1 */
    int channels, height, width, classes;
    int64_t count;        /* 0: this rank has none in this step */
    int64_t global_count; /* over all ranks */
    int64_t epoch, step;  /* both from 0 */
    double waited_s;      /* how long it was not ready */
} ech_batch;

/* Batch 64, shuffled and augmented, synthetic images. */
ECH_API ech_loader_options ech_loader_defaults(void);
/* Reads and checks the files; loading starts right away. */
ECH_API ech_status ech_loader_open(ech_ctx *ctx, const ech_loader_options *options,
                                   ech_loader **out);
/* At any time; NULL is fine. */
ECH_API void ech_loader_close(ech_loader *loader);
ECH_API int64_t ech_loader_steps(const ech_loader *loader);   /* of an epoch, on every rank */
ECH_API int64_t ech_loader_samples(const ech_loader *loader); /* of an epoch, over all ranks */
/* The next step's, epoch after epoch. What it points to is valid until the next call. */
ECH_API ech_status ech_loader_next(ech_loader *loader, ech_batch *out);

/* ---- training ---- */

#define ECH_OPTIMIZER_LIST(X)                                                                      \
    X(SGD, "sgd")                                                                                  \
    X(ADAM, "adam")                                                                                \
    X(ADAMW, "adamw")

typedef enum ech_optimizer {
#define ECH_OPTIMIZER_ENUM(id, text) ECH_OPTIMIZER_##id,
    ECH_OPTIMIZER_LIST(ECH_OPTIMIZER_ENUM)
#undef ECH_OPTIMIZER_ENUM
} ech_optimizer;

/* Mixed precision: the type of linear layers, convolutions, and what flows between them.
 * Parameters, their gradients, statistics, losses and the optimizer stay in f32. */
#define ECH_AMP_LIST(X)                                                                            \
    X(OFF, "off")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(FP16, "fp16")

typedef enum ech_amp {
#define ECH_AMP_ENUM(id, text) ECH_AMP_##id,
    ECH_AMP_LIST(ECH_AMP_ENUM)
#undef ECH_AMP_ENUM
} ech_amp;

/* In which order the devices of a pipeline work: all forward passes first, or one forward and one
 * backward in turns, which holds the activations of fewer micro-batches. */
#define ECH_PIPELINE_LIST(X)                                                                       \
    X(GPIPE, "gpipe")                                                                              \
    X(ONE_F_ONE_B, "1f1b")

typedef enum ech_pipeline {
#define ECH_PIPELINE_ENUM(id, text) ECH_PIPELINE_##id,
    ECH_PIPELINE_LIST(ECH_PIPELINE_ENUM)
#undef ECH_PIPELINE_ENUM
} ech_pipeline;

/* PyTorch's rules and defaults, but for lr (0.01). */
typedef struct ech_optimizer_options {
    ech_optimizer kind;
    double lr, momentum, weight_decay; /* 0: none; momentum: ECH_OPTIMIZER_SGD only */
    bool nesterov;                     /* requires momentum above 0 */
    double beta1, beta2, epsilon;      /* ECH_OPTIMIZER_ADAM and ECH_OPTIMIZER_ADAMW */
    double clip_norm;                  /* clips the global norm of the gradient; 0: no clipping */
} ech_optimizer_options;

/* Data parallelism over ranks, as DistributedDataParallel. */
typedef struct ech_ddp_options {
    ech_group *group;       /* the ranks; borrowed; NULL: this process alone */
    int64_t bucket_bytes;   /* gradients are exchanged in buckets of about this size; 1 or more */
    ech_dtype grad_dtype;   /* of gradients between ranks: ECH_F32 or ECH_BF16 */
    bool broadcast_buffers; /* rank 0's running statistics on every rank, after each step */
    bool
        sharded_update; /* the rank that has summed a slice of the gradient updates it for all; off: each updates all */
    bool sync_bn; /* batch norm statistics over the samples of all ranks */
    bool
        reproducible; /* gradients are summed in a fixed tree over slots: the same bits on 1, 2, 4... ranks */
    int slots; /* of the reproducible mode: parts of a step, a power of two up to 64 */
} ech_ddp_options;

/* DataParallel: one process, several devices. */
typedef struct ech_dp_options {
    int devices; /* the batch is split over this many; 0: no DataParallel */
} ech_dp_options;

/* Layers spread over devices: model parallelism, or with micro-batches a pipeline. */
typedef struct ech_pipeline_options {
    int devices; /* that share the layers; 0: no model parallelism */
    const char *
        placement; /* even (NULL), half, balanced, balanced-memory, or "0,0,1": a device for each layer */
    int micro_batches; /* the batch is split into so many; 0 and 1: no pipeline */
    ech_pipeline schedule;
    bool
        ranks; /* the devices are the ranks of the group, one each; every rank then writes the same inputs */
} ech_pipeline_options;

/* Mixed precision. */
typedef struct ech_amp_options {
    ech_amp type;
    /* The loss scaler's first scale, 2^-14 or more; 0: 65536 with fp16 and no scaler otherwise;
     * below 0: no scaler. A step whose gradient is not finite is skipped on all ranks and halves
     * the scale; 2000 good steps in a row double it. */
    double loss_scale;
} ech_amp_options;

typedef struct ech_train_options {
    size_t size;   /* as ech_train_defaults sets it */
    int64_t batch; /* samples per micro-step, of this rank; 1 or more */
    int accum; /* micro-steps per optimizer step, 1: no accumulation; see ech_trainer_accumulate */
    int threads;           /* of each device; 0: its share of the cores that this process may use */
    int64_t device_memory; /* limit in bytes; 0: what the machine has */
    uint64_t seed;         /* of the initial parameters */
    const char *init;      /* safetensors file with the initial parameters; NULL: random ones */
    bool tune;             /* time candidate kernels once; off: a fixed choice */
    const char *tuning_file; /* where timings are kept; NULL: the user's cache directory */
    bool
        recompute; /* compute batch norm outputs again in the backward pass instead of keeping them */
    double delay_ms; /* idle time before each backward pass; 0: none */
    ech_optimizer_options optimizer;
    ech_amp_options amp;
    ech_ddp_options ddp;
    ech_dp_options dp;
    ech_pipeline_options pipeline;
} ech_train_options;

ECH_API ech_train_options ech_train_defaults(void);

/* What one step did. Seconds; time_s runs from before the forward pass to after the optimizer step.
 * Every instant counts once: time_s = forward_s + backward_s + optimizer_s + comm_exposed_s +
 * wait_s + other_s. */
typedef struct ech_step {
    double
        loss; /* NaN or infinite where the training diverges: the step then still returns ECH_OK */
    double time_s, forward_s, backward_s, optimizer_s;
    double comm_exposed_s; /* bytes were on their way, and this rank did nothing else */
    double wait_s;         /* for another rank or device that was late */
    double other_s;        /* handing work to the device, and between operators */
    double comm_hidden_s;  /* bytes were on their way while this rank computed */
    double scale;          /* of the loss in this step; 1 without a scaler */
    bool skipped; /* a gradient was not finite: parameters and optimizer state are as before */
    double grad_norm,
        grad_max; /* of the unscaled gradient, before clipping; 0 where nothing asks for them */
} ech_step;

/* The clock of a step's seconds: the real clock with dedicated cores for each device; the real
 * clock while devices shared cores, which is not the time of that many devices; or the virtual
 * clock, as if each device had its own core. */
#define ECH_CLOCK_LIST(X)                                                                          \
    X(MEASURED, "measured")                                                                        \
    X(OVERSUBSCRIBED, "measured, oversubscribed")                                                  \
    X(EMULATED, "emulated")

typedef enum ech_clock {
#define ECH_CLOCK_ENUM(id, text) ECH_CLOCK_##id,
    ECH_CLOCK_LIST(ECH_CLOCK_ENUM)
#undef ECH_CLOCK_ENUM
} ech_clock;

ECH_API const char *ech_clock_name(ech_clock clock);

typedef struct ech_trainer ech_trainer;

/* A layer of the model: the operators that share a name up to its last part, or one without a name
 * of its own. */
typedef struct ech_layer {
    const char *name; /* "fc1"; valid as long as the trainer */
    int device;     /* that has it, from 0; with data parallelism every device has all layers: 0 */
    int64_t params; /* elements of its parameters */
} ech_layer;

/* Plans the training of loss, allocates all it needs, and initialises the parameters. The graph is
 * copied: it may be changed or destroyed afterwards. */
ECH_API ech_status ech_trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                                      const ech_train_options *options, ech_trainer **out);
ECH_API void ech_trainer_destroy(ech_trainer *trainer);

/* Copies a whole input, parameter or buffer in or out, by name, as row-major data of the value's
 * type. */
ECH_API ech_status ech_trainer_write(ech_trainer *trainer, const char *name, const void *data,
                                     size_t bytes);
ECH_API ech_status ech_trainer_read(ech_trainer *trainer, const char *name, void *data,
                                    size_t bytes);

/* By which clock its steps are timed. `echelon run --clock auto|real|virtual` says so to a program,
 * in ECHELON_CLOCK, and its --link, in ECHELON_LINK, what the exchange costs on the virtual clock;
 * auto, its default, is virtual where ranks outnumber cores. Without the variable the clock is
 * real. What a program times itself, and loading, is always in real time. */
ECH_API ech_clock ech_trainer_clock(const ech_trainer *trainer);

/* One training step. out may be NULL. With a group, loss is that of the samples of all ranks. A
 * step that fails after it has begun to change parameters, such as one in which another rank is
 * lost, leaves those of two steps: from then on the trainer refuses steps, evaluation, and to read
 * or save parameters. */
ECH_API ech_status ech_trainer_step(ech_trainer *trainer, ech_step *out);
/* Forward and backward over the present inputs, by the loss times the scale and divided by the
 * micro-steps; the gradient is added to that of the step in progress. With accum N, N-1 calls of
 * this and one of ech_trainer_step, each after its inputs were written, make one optimizer step
 * over N*batch samples; ranks exchange nothing until the last. The reproducible mode has slots/size
 * of them. */
ECH_API ech_status ech_trainer_accumulate(ech_trainer *trainer);
/* The end of a step in parts, for programs that want to see them: after N calls of
 * ech_trainer_accumulate, the last of which exchanges, apply undoes the scale, looks for gradients
 * that are not finite, clips, and updates or skips; update_scale then adapts the scale to what was
 * found. ech_trainer_step is all three together. With ranks that update for each other
 * (ddp.sharded_update) parameters may change in the exchange already. */
ECH_API ech_status ech_trainer_apply(ech_trainer *trainer, ech_step *out);
/* Fails when many steps in a row were skipped with the least scale: it is not the scale then. */
ECH_API ech_status ech_trainer_update_scale(ech_trainer *trainer);
/* A forward pass over the present inputs that changes nothing, by the running statistics of batch
 * norms: gives the loss, or a count of correct samples. */
ECH_API ech_status ech_trainer_evaluate(ech_trainer *trainer, ech_value value, double *out);
/* One training step over a batch of a loader, which goes to the inputs of these names; out may be
 * NULL. Every sample weighs alike, also where ranks have different numbers of them. The trainer has
 * no accumulation, and its batch is the loader's. */
ECH_API ech_status ech_trainer_step_batch(ech_trainer *trainer, const char *images,
                                          const char *labels, const ech_batch *batch,
                                          ech_step *out);
/* A forward pass over a batch, as ech_trainer_evaluate: out[i] is values[i], over the samples of
 * this rank. */
ECH_API ech_status ech_trainer_evaluate_batch(ech_trainer *trainer, const char *images,
                                              const char *labels, const ech_batch *batch,
                                              const ech_value *values, int count, double *out);
/* The learning rate of the steps that follow. */
ECH_API void ech_trainer_set_lr(ech_trainer *trainer, double lr);

/* Parameters and buffers from or to a safetensors file, under PyTorch's names. A file must hold all
 * of them and no others, with their shapes; a leading "module." is left out. */
ECH_API ech_status ech_trainer_load(ech_trainer *trainer, const char *path);
ECH_API ech_status ech_trainer_save(ech_trainer *trainer, const char *path);

/* Bytes the plan says the device needs, and bytes the device really took; they are equal. Of
 * several devices: the one that needs most, or device 0 of DataParallel. */
ECH_API int64_t ech_trainer_planned_memory(const ech_trainer *trainer);
ECH_API int64_t ech_trainer_peak_memory(const ech_trainer *trainer);

/* What one device did in the last step, and the memory that it holds for all steps. */
typedef struct ech_device_stats {
    int64_t samples;
    int64_t bytes_in, bytes_out; /* from and to the memory of other devices */
    double busy_s;               /* in kernels and copies */
    int64_t memory;              /* bytes, all kinds */
    int64_t weights, gradients, optimizer, inputs,
        activations;           /* with copies of weights, and workspace */
    int64_t copies, workspace; /* of weights, and of activations: what of them is that */
} ech_device_stats;

/* device counts from 0; there are dp.devices or pipeline.devices of them, or one. */
ECH_API ech_status ech_trainer_device_stats(const ech_trainer *trainer, int device,
                                            ech_device_stats *out);

/* Layers in the order of the forward pass, and where they are. */
ECH_API int ech_trainer_layer_count(ech_trainer *trainer);
ECH_API ech_status ech_trainer_layer(ech_trainer *trainer, int layer, ech_layer *out);

/* ---- int8 ----
 *
 * A trained network whose linear layers and convolutions compute on integers of 8 bits: a quarter
 * of the size, and faster.
 *
 *     ech_int8_options o = ech_int8_defaults();
 *     ech_int8 *net;
 *     ech_int8_create(trainer, logits, samples, count, &o, &net);     samples [count, ...] of the training set
 *     ech_int8_run(net, x, n, y);                                      x [n, ...] -> y [n, ...], both f32
 *     ech_int8_save(net, "int8.safetensors");  ech_int8_export(net, "int8.onnx");
 *     ech_int8_destroy(net);
 */

/* The range of a weight that the integers cover; values outside it are clamped. */
#define ECH_CLIP_LIST(X)                                                                           \
    X(MAX, "max")               /* all of it */                                                    \
    X(SIGMA, "3sigma")          /* three standard deviations */                                    \
    X(PERCENTILE, "percentile") /* all but the largest few */                                      \
    X(MSE, "mse")               /* MSE-optimal */

typedef enum ech_clip {
#define ECH_CLIP_ENUM(id, text) ECH_CLIP_##id,
    ECH_CLIP_LIST(ECH_CLIP_ENUM)
#undef ECH_CLIP_ENUM
} ech_clip;

/* The range of what flows between layers, as samples show it. */
#define ECH_OBSERVE_LIST(X)                                                                        \
    X(MAX, "max")               /* min-max */                                                      \
    X(PERCENTILE, "percentile") /* all but the largest few */                                      \
    X(ENTROPY, "entropy")       /* entropy calibration (KL) */

typedef enum ech_observe {
#define ECH_OBSERVE_ENUM(id, text) ECH_OBSERVE_##id,
    ECH_OBSERVE_LIST(ECH_OBSERVE_ENUM)
#undef ECH_OBSERVE_ENUM
} ech_observe;

typedef struct ech_int8_options {
    size_t size;   /* as ech_int8_defaults sets it */
    int64_t batch; /* samples that are computed at a time */
    int threads;   /* 0: every core that this process may use */
    ech_clip weights;
    bool per_channel; /* a scale for each output of a layer; off: one for all of its weight */
    double weight_percentile; /* of ECH_CLIP_PERCENTILE: above 0, at most 100 */
    ech_observe activations;
    double percentile; /* of ECH_OBSERVE_PERCENTILE: above 0, at most 100 */
} ech_int8_options;

ECH_API ech_int8_options ech_int8_defaults(void);

typedef struct ech_int8 ech_int8;

/* Takes the network from its one input to prediction, with the trainer's present parameters, to
 * integers. Batch norms are folded into the convolutions before them. The trainer may go
 * afterwards. */
ECH_API ech_status ech_int8_create(ech_trainer *trainer, ech_value prediction, const float *samples,
                                   int64_t count, const ech_int8_options *options, ech_int8 **out);
/* From a file that ech_int8_save wrote, for the same graph. Of the options only batch and threads
 * count. */
ECH_API ech_status ech_int8_load(ech_ctx *ctx, const ech_graph *graph, ech_value prediction,
                                 const char *path, const ech_int8_options *options, ech_int8 **out);
ECH_API void ech_int8_destroy(ech_int8 *network);

/* Any number of samples. */
ECH_API ech_status ech_int8_run(ech_int8 *network, const float *x, int64_t count, float *y);
/* Weights, biases and scales as a safetensors file. */
ECH_API ech_status ech_int8_save(const ech_int8 *network, const char *path);
/* The same network as an ONNX file, with QuantizeLinear and DequantizeLinear around its
 * operators. */
ECH_API ech_status ech_int8_export(const ech_int8 *network, const char *path);

#ifdef __cplusplus
}
#endif

#endif
