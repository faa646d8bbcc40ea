#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ech_version(void)
{
    return ECH_VERSION;
}

const char *ech_status_name(ech_status status)
{
    switch (status) {
#define NAME(id, value, text)                                                                      \
    case value:                                                                                    \
        return text;
        ECH_STATUS_LIST(NAME)
#undef NAME
    }
    return "unknown status";
}

static void *heap_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    void *ptr = NULL;
    if (align < sizeof(void *))
        align = sizeof(void *);
    return posix_memalign(&ptr, align, bytes ? bytes : 1) == 0 ? ptr : NULL;
}

static void heap_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

ech_status ech_ctx_create(const ech_ctx_options *options, ech_ctx **out)
{
    ech_allocator alloc = {heap_alloc, heap_free, NULL};
    if (options && options->alloc.alloc)
        alloc = options->alloc;
    *out = NULL;
    ech_ctx *ctx = alloc.alloc(alloc.user, sizeof *ctx, _Alignof(ech_ctx));
    if (!ctx)
        return ECH_E_NOMEM;
    memset(ctx, 0, sizeof *ctx);
    ctx->alloc = alloc;
    if (options) {
        ctx->log = options->log;
        ctx->log_user = options->log_user;
    }
    *out = ctx;
    return ECH_OK;
}

void ech_ctx_destroy(ech_ctx *ctx)
{
    if (!ctx)
        return;
    ech_allocator alloc = ctx->alloc;
    alloc.free(alloc.user, ctx, sizeof *ctx);
}

const char *ech_ctx_error(const ech_ctx *ctx)
{
    return ctx ? ctx->error : "";
}

ech_status ech__fail(ech_ctx *ctx, ech_status code, const char *fmt, ...)
{
    if (ctx) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(ctx->error, sizeof ctx->error, fmt, args);
        va_end(args);
    }
    return code;
}

ech_status ech__fail_in(ech_ctx *ctx, ech_status code, const char *fmt, ...)
{
    if (ctx) {
        char rest[sizeof ctx->error], prefix[256];
        memcpy(rest, ctx->error, sizeof rest);
        va_list args;
        va_start(args, fmt);
        vsnprintf(prefix, sizeof prefix, fmt, args);
        va_end(args);
        size_t used = (size_t)snprintf(ctx->error, sizeof ctx->error, "%s: ", prefix);
        if (used < sizeof ctx->error)
            strncat(ctx->error, rest, sizeof ctx->error - used - 1);
    }
    return code;
}

void ech__log(ech_ctx *ctx, const char *fmt, ...)
{
    if (!ctx || !ctx->log)
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ctx->log(ctx->log_user, line);
}

void *ech__new(ech_ctx *ctx, size_t bytes)
{
    void *ptr = ctx->alloc.alloc(ctx->alloc.user, bytes, _Alignof(max_align_t));
    if (ptr)
        memset(ptr, 0, bytes);
    return ptr;
}

void ech__delete(ech_ctx *ctx, void *ptr, size_t bytes)
{
    if (ptr)
        ctx->alloc.free(ctx->alloc.user, ptr, bytes);
}
