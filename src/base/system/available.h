/* How much memory can be had now: what the machine, the control group and the limits of this process leave; and
 * whether threads can be started.
 *
 *     ECH_TRY(ech__memory_check(ctx, "the data set", bytes, ranks, threads));
 *
 * The system hands out more addresses than it has memory and kills a process later, and libraries
 * crash or try for ever where an allocation fails. So what is large is asked for here before it is
 * allocated.
 */
#pragma once

#include "base/status.h"

/* Bytes that can be had now without getting a process killed: what the machine has left, or the control group that this
 * process is in. */
int64_t ech__machine_available(void);

/* Bytes that this process can still map within its own limits (RLIMIT_AS, RLIMIT_DATA), besides what its libraries and
 * `threads` threads will take. INT64_MAX: there is no limit. */
int64_t ech__process_available(int threads);
/* Whether there is one. */
bool ech__process_limited(void);

/* Fails where `bytes` more cannot be had by each of `sharers` processes, of which this one has so
 * many threads; `what` needs them. */
ech_status ech__memory_check(ech_ctx *ctx, const char *what, int64_t bytes, int sharers,
                             int threads);

/* For libraries that abort where they cannot: starts so many threads at the same time, up to ECH__THREADS_MOST, and
 * ends them again. `what` needs them, and names them in the error message. */
enum { ECH__THREADS_MOST = 16 };
ech_status ech__threads_check(ech_ctx *ctx, const char *what, int count);
