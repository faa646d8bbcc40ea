/* Strategies: how a training step is spread over devices. */
#ifndef ECH_PARALLEL_STRATEGY_H
#define ECH_PARALLEL_STRATEGY_H

#define ECH__STRATEGY_LIST(X)                                                                      \
    X(DDP, "ddp") /* a rank for each device; gradients are added up */                             \
    X(DP, "dp")   /* one process; the first device has the model and does what is left */          \
    X(MP, "mp")   /* one process; layers are spread over the devices */                            \
    X(PIPELINE, "pipeline") /* the same, with micro-batches that keep them busy */

typedef enum ech__strategy {
#define ECH__STRATEGY_ENUM(id, text) ECH__STRATEGY_##id,
    ECH__STRATEGY_LIST(ECH__STRATEGY_ENUM)
#undef ECH__STRATEGY_ENUM
        ECH__STRATEGY_COUNT
} ech__strategy;

#endif
