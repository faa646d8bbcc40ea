/* The tuning store: measured times of kernel candidates, kept in a file so that one set of choices
 * stays.
 *
 *     ech__tuning *t;
 *     ECH_TRY(ech__tuning_open(ctx, path, &t));       a file that is not there is an empty store
 *     if (!ech__tuning_find(t, machine, work, kernel, &seconds)) { ...measure...; ech__tuning_put(...); }
 *     ech__tuning_save(t);                            only when something was added
 *     ech__tuning_close(t);
 *
 * A key is a machine (processor, library versions), the work (operator, types, shapes, layouts,
 * threads) and the kernel's name. The first time that was written for a key stands: saving merges
 * with what others wrote meanwhile and lets theirs win. Choices are computed from the times, so
 * equal files give equal choices.
 *
 * A file that cannot be read, of another program or of a newer version, or larger than 64 MB, is
 * not an error: it is logged, the store starts empty, and saving fails instead of replacing that
 * file.
 */
#pragma once

#include "base/status.h"

typedef struct ech__tuning ech__tuning;

/* path NULL: in memory only. Fails only where there is no memory. */
ech_status ech__tuning_open(ech_ctx *ctx, const char *path, ech__tuning **out);
void ech__tuning_close(ech__tuning *tuning);
bool ech__tuning_find(const ech__tuning *tuning, const char *machine, const char *work,
                      const char *kernel, double *seconds);
/* What is no time (0, negative, not finite) is not kept. */
void ech__tuning_put(ech__tuning *tuning, const char *machine, const char *work, const char *kernel,
                     double seconds);
/* Waits a few seconds for another process that saves, and then fails. */
ech_status ech__tuning_save(ech__tuning *tuning);
/* From now on no kernel is timed for this store: a plan is chosen by its times where it has all
 * that the choice needs, and by the device's preference where one is missing. */
void ech__tuning_freeze(ech__tuning *tuning);
bool ech__tuning_frozen(const ech__tuning *tuning);
/* All of it as a text, to be freed with free(); and what such a text holds, added to a store. */
ech_status ech__tuning_text(const ech__tuning *tuning, char **out);
ech_status ech__tuning_merge_text(ech__tuning *tuning, const char *text);
/* Kernels that were timed since it was opened. */
int ech__tuning_added(const ech__tuning *tuning);

/* The default path: $ECHELON_TUNING, or echelon/tuning.json in the user's cache directory. Empty
 * when there is no such directory. */
ech_status ech__tuning_default_path(ech_ctx *ctx, char *out, size_t bytes);
