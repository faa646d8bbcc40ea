/* An arm of a comparison: a program that runs blocks of steps on request, and is stopped in between.
 *
 *     ECH_TRY(ech__arm_launch(&arm));              returns at once, so that several can start together
 *     ECH_TRY(ech__arm_await(&arm));               until it is ready; then it is stopped
 *     ECH_TRY(ech__arm_block(&arm, 150, &block));  goes on, runs for 150 ms, is stopped again
 *     ech__arm_end(&arm);                          with all that it has started
 *
 * The program hears "run MS" and says "ready TEXT", then a number of seconds for each step, and
 * "done" (docs/compare.md). One of our own does so over the socket that ECHELON_TURNS names
 * (base/system/turns.h), wherever its rank 0 runs; a peer does so on its standard input and output.
 * Standard error goes to a file, for the reason when it fails.
 */
#pragma once

#include "compare/rounds.h"
#include "compare/tree.h"

enum { ECH__ARM_WHAT = 96, ECH__ARM_PATH = 96 };

typedef struct ech__arm_spec {
    const char *name;  /* "arm 1", or what the user calls it */
    char *const *argv; /* the program, looked up in PATH, and its arguments; NULL at its end */
    bool is_peer;
    double threshold; /* that its ratio is judged by; 0: that of the comparison */
} ech__arm_spec;

typedef struct ech__arm {
    ech_ctx *ctx;
    ech__arm_spec spec;
    const char *dir;  /* for its socket and its errors */
    const char *mark; /* goes into its environment */
    int number;
    int stop_fd;    /* readable: wait for nothing more */
    double limit_s; /* without a word from it */

    char what[ECH__ARM_WHAT]; /* what it says it is: "PyTorch 2.15.0, eager" */
    ech__tree tree;           /* root 0: it does not run */
    int process;              /* a pidfd */
    int listener, in, out;    /* in: what it hears; out: what it says; -1: none */
    char said[4096];          /* from out, not read yet */
    size_t first, last;
    double *samples; /* [ECH__ARM_SAMPLES] */
} ech__arm;

enum { ECH__ARM_SAMPLES = 1 << 16 };

/* Of an arm whose ctx, spec, dir, mark, number, stop_fd and limit_s are set. */
ech_status ech__arm_init(ech__arm *arm);
void ech__arm_fini(ech__arm *arm);

ech_status ech__arm_launch(ech__arm *arm);
ech_status ech__arm_await(ech__arm *arm);
/* Everything but out->seen and out->seconds. */
ech_status ech__arm_block(ech__arm *arm, double ms, ech__block *out);
/* Asks it to end; it may take a moment to do so. */
void ech__arm_ask(ech__arm *arm);
void ech__arm_end(ech__arm *arm);
/* Whether its times are those of a virtual clock, as it says itself. */
bool ech__arm_is_emulated(const ech__arm *arm);
