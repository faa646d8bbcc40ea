/* Convolutions of f32 by the kernels that one file of the cpu device offers, and sums in f64 to compare them with.
 *
 *     conv_bench b;
 *     conv_bench_init(&b, &(conv_setting){ech__direct_offer, 1, false});
 *     conv_data d = conv_inputs(&c);
 *     conv_expect(&d);
 *     ech__kernel_desc desc = conv_describe(&b, &c, &variant);
 *     ech__candidate first = conv_first_offer(&b, &desc);
 *     conv_run r;
 *     conv_run_init(&r, &b, &desc, &first, &d);
 *     conv_run_check(&r);             what every kernel must keep to
 *     double *right = conv_right(&r); beside r.data.at[desc.nin], which the kernel gave
 *     free(right);
 *     conv_run_fini(&r);
 *     conv_data_fini(&d);
 *     conv_bench_fini(&b);
 *
 * How far a result may be from what is right is for each test to say.
 */
#pragma once

#include "device/cpu/cpu.h"
#include "support/op_run.h"

/* One convolution: x[N,I,H,W] w[O,I,K,K] -> y[N,O,H',W'] */
typedef struct conv {
    int64_t N, I, O, H, W, K, stride, pad;
    bool plain; /* x is row-major */
} conv;

/* One direction of it. */
typedef struct conv_variant {
    ech__op op;
    bool bias, relu;
} conv_variant;

/* ---- the device, and what it offers ---- */

typedef void conv_offer_fn(const ech__kernel_desc *desc, ech__offer *offer);

typedef struct conv_setting {
    conv_offer_fn *offer; /* of the kernels under test */
    int threads;
    bool generic; /* loops, instead of the widest that the processor has */
} conv_setting;

typedef struct conv_bench {
    ech_ctx *ctx;
    ech__device *device;
    const ech__cpu *cpu; /* the device's own state */
    conv_offer_fn *offer;
    int runs; /* kernels that were checked */
} conv_bench;

void conv_bench_init(conv_bench *b, const conv_setting *setting);
void conv_bench_fini(conv_bench *b);

/* For cmocka: a test is given a setting, and from setup on the bench that it describes. */
int conv_bench_setup(void **state);
int conv_bench_teardown(void **state);

/* Images are blocked by channels, but for a plain x; the weight is free. */
ech__kernel_desc conv_describe(const conv_bench *b, const conv *c, const conv_variant *v);

/* Fills out with at most ECH__MAX_CANDIDATES of the kernels under test and returns how many. */
int conv_offers(conv_bench *b, const ech__kernel_desc *desc, ech__candidate *out);
/* The same of all kernels of the device. */
int conv_all_offers(conv_bench *b, const ech__kernel_desc *desc, ech__candidate *out);
/* There must be one. */
ech__candidate conv_first_offer(conv_bench *b, const ech__kernel_desc *desc);
/* Fixes the layout of the weight; there must be one kernel that takes it so, and no other. */
ech__candidate conv_only_offer(conv_bench *b, ech__kernel_desc *desc, const ech__layout *weight);

/* ---- data ---- */

/* What goes into a convolution, and what each direction should give; in canonical order. */
typedef struct conv_data {
    conv c;
    int64_t nx, ny, nw;
    double *x, *w, *b, *dy;
    double *y, *dx, *dw, *db; /* y without bias and ReLU; NULL before conv_expect */
} conv_data;

/* Uniform in [-1, 1). */
conv_data conv_inputs(const conv *c);
void conv_expect(conv_data *d);
void conv_data_fini(conv_data *d);

/* Of y, dx and dw, the one that op makes. */
const double *conv_sums(const conv_data *d, ech__op op);

/* ---- one kernel over guarded memory ---- */

typedef struct conv_run {
    conv_bench *b;
    const conv_data *given;
    op_case fixed; /* in the layouts of the candidate */
    op_data data;  /* of all operands */
    op_kernel kernel;
} conv_run;

/* Takes from the data what goes in; the data must outlive it. */
void conv_run_init(conv_run *r, conv_bench *b, const ech__kernel_desc *desc,
                   const ech__candidate *candidate, const conv_data *given);
void conv_run_fini(conv_run *r);

/* Runs on spoilt scratch and outputs and reads the outputs into r->data. Fails the test where the inputs or what
 * lies around operands and scratch are not as they were, and where padding of outputs is not zero. */
void conv_run_once(conv_run *r);
/* The same after another run, which must give the same bits; and with ReLU nothing below zero. */
void conv_run_check(conv_run *r);
/* The best of many runs, in seconds: as many as the given time has room for, 3 to most. Other work on the
 * machine only makes them slower. */
double conv_run_time(conv_run *r, double seconds, int most);

/* What the first output should be, with bias and ReLU. The caller frees it. */
double *conv_right(const conv_run *r);
/* The bytes of an operand, padding included. The caller frees them. */
char *conv_bytes(const conv_run *r, int operand);
