/* The largest batch that fits a limit, where bytes grow with the batch about on a line.
 *
 *     ECH_TRY(ech__largest_batch(bytes_of, user, limit, &batch));
 *
 * bytes_of says what a batch needs, INT64_MAX where its sizes cannot be counted. It is asked only a
 * few times: the line through the last two answers says where to look next, and every other time
 * the gap is halved instead, so that steps in the sizes do no harm. Bytes must not shrink when the
 * batch grows. */
#pragma once

#include "base/status.h"

typedef ech_status (*ech__bytes_of_batch)(void *user, int64_t batch, int64_t *bytes);

/* At most INT32_MAX; 0 where not even one sample fits. */
ech_status ech__largest_batch(ech__bytes_of_batch bytes_of, void *user, int64_t limit,
                              int64_t *out);
