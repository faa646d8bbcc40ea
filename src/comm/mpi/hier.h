/* Ranks of several nodes as one ech__comm: shared memory inside of a node, messages between nodes. */
#ifndef ECH_COMM_MPI_HIER_H
#define ECH_COMM_MPI_HIER_H

#include "comm/comm.h"
#include "comm/mpi/plugin.h"

/* Collective over all ranks of mpi, which is initialised. first[r]: the lowest rank on the machine of rank r. */
ech_status ech__hier_open(ech_ctx *ctx, const ech__mpi_table *mpi, int rank, int world,
                          const int *first, ech__backend backend, double timeout_s,
                          ech__comm **out);

#endif
