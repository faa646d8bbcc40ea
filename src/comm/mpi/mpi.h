/* Ranks that mpirun or srun started: MPI as a plugin, so that the program runs where there is no
 * MPI.
 *
 * plugin.c is built as a shared object of its own against Open MPI, loaded with
 * RTLD_NOW|RTLD_GLOBAL when the environment says that this process is one of several MPI ranks, and
 * hands out one table of functions. hier.c makes an ech__comm of it: ranks of a node join one memfd
 * (passed over a Unix socket) and reduce in shared memory, owners of shards exchange them with the
 * other nodes, without waiting. */
#pragma once

#include "comm/comm.h"
#include "comm/mpi/plugin.h"

/* Whether the environment is that of an MPI rank (Open MPI's mpirun, PMIx, or srun with several
 * tasks). */
bool ech__mpi_wanted(void);

/* The options have a time-out. */
ech_status ech__mpi_open(ech_ctx *ctx, const ech__comm_options *options, ech__comm **out);

/* Ranks of several nodes as one comm: shared memory inside a node, messages between nodes.
 * Collective over all ranks of mpi, which is initialised. first[r]: the lowest rank on the machine
 * of rank r. */
ech_status ech__hier_open(ech_ctx *ctx, const ech__mpi_table *mpi, int rank, int world,
                          const int *first, const ech__comm_options *options, ech__comm **out);
/* Messages that this rank has sent and received in blocking collectives. comm is from
 * ech__hier_open. */
uint64_t ech__hier_messages(const ech__comm *comm);
