/* The lock of a file that several processes read, merge and replace, such as the tuning store. It
 * is a file of its own, because the stored file is replaced.
 *
 *     int lock;
 *     ECH_TRY(ech__store_lock(ctx, "tuning.json", 5, &lock));      tuning.json.lock
 *     ...read, merge, write...
 *     close(lock);                                                 also when the process ends
 */
#pragma once

#include "base/status.h"

/* Waits at most so many seconds for another holder; fails where the lock cannot be had. */
ech_status ech__store_lock(ech_ctx *ctx, const char *path, double seconds, int *out);
