/* Runs a program of the system, without a shell, and waits for it.
 *
 *     ECH_TRY(ech__child_run(ctx, NULL, (const char *[]){"tar", "-xf", path, "-C", dir, NULL}));
 */
#ifndef ECH_DATA_CHILD_H
#define ECH_DATA_CHILD_H

#include "base/status.h"

/* argv[0] is looked up in PATH. The program starts in dir (NULL: here), reads nothing, and what it prints on
 * stdout is dropped. Fails where it is not installed (ECH_E_UNSUPPORTED) or does not succeed, with the first line
 * that it printed on stderr. */
ech_status ech__child_run(ech_ctx *ctx, const char *dir, const char *const *argv);

#endif
