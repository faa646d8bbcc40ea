/* Told to clang-tidy alone, before each file: a call that reports a failure returns the code it was given.
 * The analyzer looks at one file at a time and would take the success path after a failure. */
#ifndef ECH_TOOLS_ANALYZER_H
#define ECH_TOOLS_ANALYZER_H

#include "base/status.h"

void ech__analyzer_fail(ech_ctx *ctx, const char *fmt, ...);

#define ech__fail(ctx, code, ...) (ech__analyzer_fail(ctx, __VA_ARGS__), (code))
#define ech__fail_in(ctx, code, ...) (ech__analyzer_fail(ctx, __VA_ARGS__), (code))
#define ech__no_memory(ctx, ...) (ech__analyzer_fail(ctx, __VA_ARGS__), ECH_E_NOMEM)

#endif
