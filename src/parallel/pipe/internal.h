/* What an ech__pipe is made of. Private to this folder: pipe.c creates it, transfer.c its passes,
 * link.c moves data between devices, run.c runs it. */
#pragma once

#include "parallel/pipe/pipe.h"

struct ech__stage_plan {
    ech__pipe_role role;
    ech__plan *plan;
    ech__stage_plan *next;
};

struct ech__pipe {
    ech_ctx *ctx;
    ech__arena arena; /* of stages, params and stats */
    ech__pipe_options options;
    ech_value watched[ECH__PIPE_MOST_WATCHED];
    ech_value *params;  /* [options.nparams] */
    double *stats;      /* [1 + ranks of options.comm][nparams][ECH__GRAD_STATS] */
    ech__stage *stages; /* [options.devices] */
    ech__pass *passes;  /* the last one is the first that was made: that of a full step */
    ech__pass *made;    /* being made: links belong to it, and to its micro-batch */
    int made_micro;
    int64_t spin_ns; /* that a worker looks before it sleeps; 0 where devices share cores */
    /* The run under way, or the last one. */
    const ech__pass *now;
    ech__scalars scalars;
    unsigned after;        /* phases, see ech__pipe_step */
    _Atomic uint64_t turn; /* of the devices that meet other groups */
    _Atomic int failed;    /* 1 + the device that failed first; 0: none */
    double results[ECH__PIPE_MOST_WATCHED];
    int64_t start_ns, flushed_ns, end_ns;
    int64_t busy_ns;   /* of all devices, when the run began, in the step */
    int64_t window_ns; /* until the pipeline was empty, over all micro-steps of the step */
};

/* The plan of a role for so many samples, made when it is not there yet. */
ech_status ech__stage_plan_for(ech__stage *stage, ech__pipe_role role, int64_t count,
                               ech__plan **out);

/* The functions of a stage's exchange. */
extern const ech__exchange_ops ech__stage_exchange_ops;

/* Waits until what a micro-batch of this device sent has been fetched. */
ech_status ech__stage_await_taken(ech__stage *stage, int micro);

/* The share of this group in the samples of a micro-batch of the current run. */
double ech__pipe_share(const ech__pipe *pipe, int micro);

/* The order in which devices synchronise with other groups in the middle of their tasks; it is the
 * same in all groups. */
ech_status ech__pass_order_meetings(ech__pipe *pipe, ech__pass *pass);
/* The kernel that meets other groups, in its turn. Takes over inner. */
ech_status ech__stage_meeting(ech__stage *stage, ech__kernel *inner, ech__kernel **out);

void ech__pass_destroy(ech__pipe *pipe, ech__pass *pass);
