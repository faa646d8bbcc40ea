/* Two or more programs compared in turns: the engine behind echelon compare and bench/.
 *
 *     ech__compare_options o = ech__compare_defaults();
 *     o.arms = specs;  o.count = 2;
 *     ech__compare *c;
 *     ech_status status = ech__compare_create(ctx, &o, &c);
 *     if (status == ECH_OK) status = ech__compare_run(c);      c->rounds has what is known, also where it failed
 *     ech_json *record = ech__compare_json(c);
 *     ech__compare_destroy(c);
 *
 * First each arm is started alone: that times its kernels, once for all starts, and shows how much
 * memory it takes. Then all are started together, start after start (rounds.h). Arms that do not
 * fit into memory together are started for each block.
 */
#pragma once

#include "base/file/json.h"
#include "comm/launch/leftovers.h"
#include "compare/arm.h"
#include "compare/probe.h"

typedef enum ech__compare_phase {
    ECH__COMPARE_TRIAL, /* starts the arms one by one */
    ECH__COMPARE_QUIET, /* waits for other programs to leave the cores */
    ECH__COMPARE_TURNS,
} ech__compare_phase;

typedef struct ech__compare ech__compare;

typedef struct ech__compare_options {
    const ech__arm_spec *arms; /* the first is what the others are compared with */
    int count;                 /* 2 to ECH__COMPARE_ARMS - 1 */
    double budget_s, threshold, half_width, block_s;
    double limit_s; /* without a word from an arm */
    bool apart;     /* also where the arms fit into memory together */
    int stop_fd;    /* readable: end with what is known; -1: never */
    /* Something has changed; may be NULL. */
    void (*on_progress)(void *user, const ech__compare *compare);
    /* A warning, in one line. */
    void (*on_warning)(void *user, const char *line);
    void *user;
} ech__compare_options;

ech__compare_options ech__compare_defaults(void);

struct ech__compare {
    ech_ctx *ctx;
    ech__compare_options options;
    ech__compare_phase phase;
    int narms; /* with the copy */
    ech__arm arms[ECH__COMPARE_ARMS];
    int64_t memory[ECH__COMPARE_ARMS]; /* bytes resident in the trial */
    bool apart;                        /* not in memory together */
    int trial;                         /* arm that is tried */
    char dir[64], copy_name[64];
    char mark[ECH__MARK_BYTES];
    ech__watch watch;
    ech__probe *probe;
    int64_t begin_ns;
    ech__disturbance before; /* when it began */
    double waited_s;         /* for a quiet moment */
    ech__rounds rounds;
};

ech_status ech__compare_create(ech_ctx *ctx, const ech__compare_options *options,
                               ech__compare **out);
ech_status ech__compare_run(ech__compare *compare);
/* Ends all arms and removes all files. NULL is fine. */
void ech__compare_destroy(ech__compare *compare);

double ech__compare_elapsed(const ech__compare *compare);
/* What the ratio of an arm is judged by. */
double ech__compare_threshold(const ech__compare *compare, int arm);
/* The copy of the first arm by the first arm, at 99 %. */
ech__ratio ech__compare_noise(const ech__compare *compare);
/* docs/compare.md has its members. */
ech_json *ech__compare_json(const ech__compare *compare);

/* The log-ratios of copies in records that ech__compare_json made, judged together: appended to logs[*count]. */
ech_status ech__compare_pool(ech_ctx *ctx, const char *path, double logs[ECH__COMPARE_POOL],
                             int *count);
