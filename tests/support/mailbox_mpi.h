/* Ranks as threads of one process, with messages through memory in place of MPI: an ech__mpi_table
 * for ech__hier_open.
 *
 *     mailbox_run(512, 2, options, body, user);     512 ranks on two pretended nodes, a thread each
 *
 * body runs in every rank's thread with a comm of its own; mailbox_run returns when all have. */
#pragma once

#include "comm/comm.h"

typedef void (*mailbox_body)(ech__comm *comm, void *user);

/* Returns how many ranks could not open their comm, with the reason of one of them in error[1024]. */
int mailbox_run(int world, int nodes, const ech__comm_options *options, mailbox_body body,
                void *user, char *error);
