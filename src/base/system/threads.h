/* Whether threads can be started, for libraries that abort where they cannot. */
#pragma once

#include "base/status.h"

/* Starts so many threads at the same time, up to ECH__THREADS_MOST, and ends them again. `what`
 * needs them, and names them in the error message. */
enum { ECH__THREADS_MOST = 16 };
ech_status ech__threads_check(ech_ctx *ctx, const char *what, int count);
