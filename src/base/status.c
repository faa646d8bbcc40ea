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

/* ---- messages ---- */

/* Messages repeat the user's values, and the text after a value must stay visible: of a word longer
 * than LONG_WORD bytes only the head and the tail are shown. */
enum {
    LINE_BYTES = sizeof(((ech_ctx *)0)->error),
    LONG_WORD = 256,
    WORD_HEAD = 160,
    WORD_TAIL = 80
};

/* Puts "..." in the place of text[from, to), without cutting a character of several bytes; returns where what
 * follows it begins. */
static size_t leave_out(char *text, size_t from, size_t to)
{
    while (from > 0 && ((unsigned char)text[from] & 0xc0) == 0x80)
        from--;
    while (((unsigned char)text[to] & 0xc0) == 0x80)
        to++;
    memmove(text + from + 3, text + to, strlen(text + to) + 1);
    memset(text + from, '.', 3);
    return from + 3;
}

static void shorten_words(char *text)
{
    for (size_t at = 0; text[at];) {
        const size_t word = strcspn(text + at, " ");
        at = word > LONG_WORD ? leave_out(text, at + WORD_HEAD, at + word - WORD_TAIL) + WORD_TAIL
                              : at + word;
        at += strspn(text + at, " ");
    }
}

/* One line of printable text. What is too long for it loses its middle. */
__attribute__((format(printf, 2, 0))) static void write_line(char out[LINE_BYTES], const char *fmt,
                                                             va_list args)
{
    va_list again;
    char line[LINE_BYTES];
    va_copy(again, args);
    const int length = vsnprintf(line, sizeof line, fmt, args);
    char *all = length >= (int)sizeof line ? malloc((size_t)length + 1) : NULL;
    char *text = all ? all : line;
    if (length < 0)
        line[0] = '\0';
    if (all)
        vsnprintf(all, (size_t)length + 1, fmt, again);
    va_end(again);
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    }
    shorten_words(text);
    const size_t bytes = strlen(text);
    if (bytes >= LINE_BYTES)
        leave_out(text, LINE_BYTES / 2, bytes - LINE_BYTES / 2 + 8);
    memcpy(out, text, strlen(text) + 1);
    free(all);
}

ech_status ech__fail(ech_ctx *ctx, ech_status code, const char *fmt, ...)
{
    if (ctx) {
        va_list args;
        va_start(args, fmt);
        write_line(ctx->error, fmt, args);
        va_end(args);
    }
    return code;
}

ech_status ech__fail_in(ech_ctx *ctx, ech_status code, const char *fmt, ...)
{
    if (!ctx)
        return code;
    char prefix[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    write_line(prefix, fmt, args);
    va_end(args);
    return ech__fail(ctx, code, "%s: %s", prefix, ctx->error);
}

ech_status ech__no_memory(ech_ctx *ctx, const char *what, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, what);
    write_line(line, what, args);
    va_end(args);
    return ech__fail(ctx, ECH_E_NOMEM, "cannot allocate memory for %s", line);
}

void ech__log(ech_ctx *ctx, const char *fmt, ...)
{
    if (!ctx || !ctx->log)
        return;
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    write_line(line, fmt, args);
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

ech_status ech__options_take(ech_ctx *ctx, const char *defaults, const void *given, void *out,
                             size_t bytes)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return ech__fail(ctx, ECH_E_INVALID, "options of size %zu: start from %s()", size,
                         defaults);
    if (size > bytes)
        return ech__fail(ctx, ECH_E_INVALID,
                         "options of %zu bytes: this version of the library knows %zu; the program "
                         "was compiled for a newer one",
                         size, bytes);
    memcpy(out, given, size);
    memcpy(out, &bytes, sizeof bytes);
    return ECH_OK;
}
