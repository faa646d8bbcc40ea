/* What runs an all-reduce algorithm between nodes, over MPI: the last column of ECH__ALGORITHM_LIST (price/collective.h).
 *
 *     ech__algorithm_run *run = ech__algorithm_run_of(ECH__ALGORITHM_RING);      NULL for BEST: not run here
 *     ECH_TRY(run(&comm, &members, &layout));
 *
 * Ranks of one node always add up through shared memory, which is what `direct` does: naming another algorithm there
 * changes nothing, and ech__comm_algorithm says so. */
#pragma once

#include "comm/mpi/inter.h"

/* How an algorithm is laid out among ranks. */
typedef struct ech__layout {
    ech__between_options started; /* of all-reduces that are started */
    ech__between_options
        blocking; /* of those that are waited for; 0 places: ech__wire_run does them */
    bool flat;    /* as in ech__inter: all data go between all ranks */
} ech__layout;

typedef struct ech__members {
    const int *everyone; /* [world] 0, 1, 2, ...; borrowed */
    const int *
        peers; /* [nodes] the rank of this rank's place on each node; -1: this rank owns no shard */
} ech__members;

typedef ech_status ech__algorithm_run(const ech__comm *comm, const ech__members *members,
                                      ech__layout *out);

ech__algorithm_run *ech__algorithm_run_of(ech__algorithm algorithm);
