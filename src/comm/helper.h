/* A thread that goes on with started all-reduces while this rank computes, so that messages between
 * nodes travel meanwhile.
 *
 *     ECH_TRY(ech__helper_start(comm));        from then on every call of comm.h takes a lock
 *     ...
 *     ech__comm_close(comm);                   ends the thread
 *
 * The thread sleeps while nothing is in progress, and between two looks at messages that have not
 * come. It does one chunk at a time (ech__comm_ops.step) and lets go of the lock in between, so
 * that a call waits for one chunk at most. A failure in the thread is the failure of the next call. */
#pragma once

#include "comm/comm.h"

#define ECH__HELP_LIST(X)                                                                          \
    X(AUTO, "auto") /* where the rank has a core that its device does not use */                   \
    X(ON, "on")                                                                                    \
    X(OFF, "off")

typedef enum ech__help {
#define ECH__HELP_ENUM(id, text) ECH__HELP_##id,
    ECH__HELP_LIST(ECH__HELP_ENUM)
#undef ECH__HELP_ENUM
} ech__help;

/* Starts it if it is wanted and there are other nodes: inside one node there are no messages.
 * threads: of the device on this rank; 0: as many as it has cores. Before anything is started. */
ech_status ech__helper_start_if(ech__comm *comm, ech__help help, int threads);
/* Once, and before anything is started. Fails where the system gives no thread. */
ech_status ech__helper_start(ech__comm *comm);
/* NULL is allowed. */
void ech__helper_stop(ech__helper *helper);
/* Around every use of the transport, where there is a helper: fails where the helper has. */
ech_status ech__helper_enter(ech__comm *comm);
void ech__helper_leave(ech__comm *comm);
/* The helper's failure, without a lock. */
ech_status ech__helper_status(ech__comm *comm);
