/* What runs an all-reduce algorithm between nodes. Its steps are in price/schedule.h, its price in price/collective.h.
 *
 *     ech__algorithm_run_of(ECH__ALGORITHM_BEST) == ECH__RUN_NOWHERE
 *
 * Algorithms run between nodes, over MPI. Ranks of one node always add up through shared memory,
 * which is what `direct` does: naming another algorithm there changes nothing, and
 * ech__comm_algorithm says so. */
#pragma once

#include "comm/comm.h"
#include "price/schedule.h"

typedef enum ech__algorithm_run {
    ECH__RUN_NOWHERE, /* it has a price, but no code runs it */
    ECH__RUN_RANKS,   /* by messages between all ranks, in rank order */
    ECH__RUN_NODES, /* through shared memory inside the nodes, by messages between the owners of a shard */
} ech__algorithm_run;

ech__algorithm_run ech__algorithm_run_of(ech__algorithm algorithm);
