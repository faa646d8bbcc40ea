/* What an ech__pipe is made of. Private to this folder: pipe.c makes it, pipe_pass.c its passes, pipe_link.c moves data between
 * devices, pipe_run.c runs it. */
#ifndef ECH_PARALLEL_PIPE_INTERNAL_H
#define ECH_PARALLEL_PIPE_INTERNAL_H

#include "parallel/pipe/pipe.h"

struct ech__stage_plan {
    ech__pipe_role role;
    ech__plan *plan;
    ech__stage_plan *next;
};

struct ech__pipe {
    ech_ctx *ctx;
    ech__pipe_options options;
    ech_value watched[ECH__PIPE_MOST_WATCHED];
    ech__stage *stages; /* [options.devices] */
    ech__pass *passes;  /* the last one is the first that was made: that of a full step */
    ech__pass *made;    /* being made: links belong to it, and to its micro-batch */
    int made_micro;
    int64_t spin_ns; /* that a worker looks before it sleeps; 0 where devices share cores */
    /* The run under way, or the last one. */
    const ech__pass *now;
    ech__scalars scalars;
    _Atomic int failed; /* 1 + the device that failed first; 0: none */
    double results[ECH__PIPE_MOST_WATCHED];
    int64_t start_ns, flushed_ns, end_ns;
};

/* The plan of a role for so many samples, made when it is not there yet. */
ech_status ech__stage_plan_for(ech__stage *stage, ech__pipe_role role, int64_t count,
                               ech__plan **out);

/* The functions of a stage's exchange. */
extern const ech__exchange_ops ech__stage_exchange_ops;

/* Waits until what a micro-batch of this device sent has been fetched. */
ech_status ech__stage_await_taken(ech__stage *stage, int micro);

void ech__pass_destroy(ech__pipe *pipe, ech__pass *pass);

#endif
