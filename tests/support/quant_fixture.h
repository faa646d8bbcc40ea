/* Small networks with made-up weights, and images for them: what the tests of int8 share. */
#pragma once

#include "support/cmocka_first.h"
#include "models/models.h"
#include "quant/calibrate.h"
#include "quant/rewrite.h"

enum { QUANT_SAMPLES = 6, QUANT_PIXELS = 3 * 32 * 32, QUANT_CLASSES = 10 };

typedef struct quant_fixture {
    ech_ctx *ctx;
    ech_graph *graph; /* with its loss */
    ech_value prediction;
    ech__tensors tensors; /* trained weights would be here */
    ech__qmodel model;
    ech__scales scales;
    ech__tensors whole;
    ech__device *device; /* of the kind that is asked for; the CPU by default */
    ech__device *reference;
    float *x; /* [QUANT_SAMPLES, QUANT_PIXELS] in [-1, 1) */
} quant_fixture;

/* Calibrated by the samples, with options. */
void quant_init(quant_fixture *q, ech__model_kind kind, const ech__scale_options *options);
void quant_fini(quant_fixture *q);

/* y[QUANT_SAMPLES, QUANT_CLASSES] of a rewritten network. */
void quant_run(quant_fixture *q, ech__device *device, const ech__rewritten *r, float *y);
/* The same of a graph. */
void quant_run_graph(quant_fixture *q, ech__device *device, const ech_graph *graph,
                     ech_value output, const ech__tensors *weights, float *y);

/* Fails the test with the context's sentence where status is one. */
void quant_good(const quant_fixture *q, ech_status status);
