/* Core binding of ranks that another launcher started: binds them if they are unbound, and reports
 * a bad binding. */
#pragma once

#include "base/status.h"
#include "base/system/cpus.h"

typedef enum ech__binding_kind {
    ECH__BINDING_KEEP,   /* each rank has cores for itself, or there are more ranks than cores */
    ECH__BINDING_SHARE,  /* all may use all: each should take its share */
    ECH__BINDING_SHARED, /* some are bound to too few cores although there are enough for all */
} ech__binding_kind;

/* masks[ranks]: what each rank of one machine may use; cores: how many this machine has.
 * sharing[ranks] and `mask` say who shares what in the third case. */
ech__binding_kind ech__binding_judge(const ech__cpus *masks, int ranks, int cores, bool *sharing,
                                     ech__cpus *mask);

/* Does it: takes this rank's share with sched_setaffinity, or logs one line that names the fix, on
 * the first of the ranks that share. masks[ranks] are those of this machine's ranks, ids[ranks]
 * their numbers in the job; `local` is this one's place. */
ech_status ech__binding_apply(ech_ctx *ctx, const ech__cpus *masks, const int *ids, int local,
                              int ranks);
