/* The all-reduce algorithms: one row for each, with its geometry, its price and what runs it.
 *
 *     const ech__algorithm_row *row = ech__algorithm_row_of(ECH__ALGORITHM_RING);
 *     row->run == ECH__RUN_NOWHERE ? "not run here" : row->about
 *
 * Algorithms run between nodes, over MPI. Ranks of one node always add up through shared memory,
 * which is what `direct` does: naming another algorithm there changes nothing, and
 * ech__algorithm_describe says so. */
#pragma once

#include "comm/comm.h"
#include "price/schedule.h"

typedef enum ech__algorithm_run {
    ECH__RUN_NOWHERE, /* it has a price, but no code runs it */
    ECH__RUN_RANKS,   /* by messages between all ranks, in rank order */
    ECH__RUN_NODES, /* through shared memory inside the nodes, by messages between the owners of a shard */
} ech__algorithm_run;

typedef struct ech__algorithm_row {
    const char *about;
    int64_t (*moves)(const ech__schedule *, int64_t rank, int64_t step, ech__move *out);
    ech__collective_price (*price)(const ech__cluster *, ech__algorithm, int64_t devices,
                                   int64_t bytes);
    ech__algorithm_run run;
} ech__algorithm_row;

const ech__algorithm_row *ech__algorithm_row_of(ech__algorithm algorithm);
