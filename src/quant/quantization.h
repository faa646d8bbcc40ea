/* One run of echelon quantize: a trained model of the program's own, calibrated, taken to int8 step by step, and
 * written out.
 *
 *     ech__quantization study;
 *     ECH_TRY(ech__quantization_run(ctx, &config, &study));
 *     study.ladder.rungs, study.scales, study.calibration.seen ...
 *     ech__quantization_fini(&study);
 */
#pragma once

#include "base/file/dir.h"
#include "base/system/turns.h"
#include "models/models.h"
#include "quant/calibrate.h"
#include "quant/ladder.h"

typedef struct ech__quantization_config {
    ech__model_options model;
    const char *init; /* trained weights in f32, or a directory of checkpoints; NULL: load */
    const char *load; /* a network that was quantized before; NULL: none */
    const char *data; /* NULL: synthetic; "cifar10" */
    const char *data_dir;
    int64_t limit;       /* test samples, balanced over classes; 0: all */
    int64_t samples;     /* of the training set, for calibration */
    int64_t sensitivity; /* samples on which each layer is tried alone; 0: none */
    uint64_t seed;       /* of the choice of samples */
    ech__scale_options scales;
    int64_t batch;
    int threads;
    bool tune;
    int64_t timed;   /* batches of f32 and of int8 to time by themselves; 0: none */
    bool turns_f32;  /* as an arm of a comparison: the f32 network runs, not the int8 one */
    const char *out; /* directory; NULL: nothing is written */
    void (*progress)(void *user, const char *what); /* may be NULL */
    void *user;
} ech__quantization_config;

/* Names of files in the directory. */
#define ECH__QUANTIZATION_INT8 "int8.safetensors"
#define ECH__QUANTIZATION_ONNX "f32.onnx"
#define ECH__QUANTIZATION_ONNX_INT8 "int8.onnx"

typedef struct ech__quantization {
    ech_ctx *ctx;
    ech__quantization_config config;
    ech__claim claim;            /* on config.out, until fini */
    ech__turns *turns;           /* of an arm of a comparison; NULL: not in a comparison */
    char init[ECH_DIR_MAX_PATH]; /* the file that config.init stands for */
    ech_graph *graph;            /* of the model, with its loss */
    ech__images *train, *test;
    ech__device *device;
    ech__tuning *tuning;
    ech__qmodel model;
    ech__scales scales;
    ech__tensors whole;
    ech__calibration calibration;
    ech__ladder ladder;
    ech__histogram **weights; /* [scales.nlayers] of each layer's weight */
    double calibration_s;     /* forward passes and histograms of all samples */
    double *f32_s, *int8_s;   /* [config.timed] seconds of a batch; NULL where nothing was timed */
    int64_t f32_bytes, int8_bytes; /* of the files; 0 where there is none */
} ech__quantization;

/* On failure there is nothing to fini. */
ech_status ech__quantization_run(ech_ctx *ctx, const ech__quantization_config *config,
                                 ech__quantization *out);
void ech__quantization_fini(ech__quantization *study);
