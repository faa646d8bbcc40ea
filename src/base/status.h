/* How every function reports failure: a negative status, and one error message in the context.
 *
 * An error message names the thing, the value and the limit ("--batch-size 0: must be at least 1").
 * The first failure of a call chain writes it; callers hand the status up with ECH_TRY.
 *
 *     ech_status load(ech_ctx *ctx, const char *path)
 *     {
 *         if (!path) return ech__fail(ctx, ECH_E_INVALID, "no path was given");
 *         ECH_TRY(open_it(ctx, path));
 *         return ECH_OK;
 *     }
 */
#pragma once

#include "echelon/echelon.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a context is made of. Owned by ech_ctx_create/ech_ctx_destroy. */
struct ech_ctx {
    ech_allocator alloc;
    ech_log_fn log; /* may be NULL */
    void *log_user;
    char error[1024]; /* the last error message; empty when nothing failed yet */
};

/* Writes the error message into ctx (which may be NULL) and returns code. */
ech_status ech__fail(ech_ctx *ctx, ech_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends "prefix: " to the current error message and returns code. */
ech_status ech__fail_in(ech_ctx *ctx, ech_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes "cannot allocate memory for WHAT" and returns ECH_E_NOMEM; WHAT is such as "a plan of %zu operators". */
ech_status ech__no_memory(ech_ctx *ctx, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies options of a program that may have been compiled against an older version of the header: given begins with
 * the size of its struct there. *out, of this many bytes, holds the defaults of members that it does not have.
 * defaults: the function that a program starts from, for the error message. */
ech_status ech__options_take(ech_ctx *ctx, const char *defaults, const void *given, void *out,
                             size_t bytes);

/* Hands one line to the context's log function, if it has one. */
void ech__log(ech_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Zeroed heap memory from the context's allocator. NULL on failure, which the caller reports. */
void *ech__new(ech_ctx *ctx, size_t bytes);
void ech__delete(ech_ctx *ctx, void *ptr, size_t bytes);

#define ECH_TRY(expr)                                                                              \
    do {                                                                                           \
        ech_status try_status_ = (expr);                                                           \
        if (try_status_ < 0)                                                                       \
            return try_status_;                                                                    \
    } while (0)
