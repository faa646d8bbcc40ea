#include "train/record/step_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL_LINES = 1000000, ALL_DETAILS = 1000 };

static bool is_due(int64_t step, int64_t all)
{
    int64_t every = 1;
    while (step > all * every)
        every *= 10;
    return step % every == 0;
}

bool ech__step_has_line(int64_t step)
{
    return is_due(step, ALL_LINES);
}

bool ech__step_has_details(int64_t step)
{
    return is_due(step, ALL_DETAILS);
}

/* ---- opening ---- */

/* The start of the next line: after the first newline from there on; `end` if there is none. */
static int64_t line_after(int fd, int64_t place, int64_t end)
{
    char text[4096];
    while (place < end) {
        const size_t want =
            end - place < (int64_t)sizeof text ? (size_t)(end - place) : sizeof text;
        const ssize_t got = pread(fd, text, want, (off_t)place);
        if (got <= 0)
            break;
        const char *newline = memchr(text, '\n', (size_t)got);
        if (newline)
            return place + (newline - text) + 1;
        place += got;
    }
    return end;
}

/* Where the last whole line ends. */
static int64_t end_of_lines(int fd, int64_t end)
{
    char text[4096];
    while (end > 0) {
        const size_t want = end < (int64_t)sizeof text ? (size_t)end : sizeof text;
        if (pread(fd, text, want, (off_t)(end - (int64_t)want)) != (ssize_t)want)
            return 0;
        const char *newline = memrchr(text, '\n', want);
        if (newline)
            return end - (int64_t)want + (newline - text) + 1;
        end -= (int64_t)want;
    }
    return 0;
}

/* The step of the line that begins there; a number that is too large if it has none. */
static int64_t step_at(int fd, int64_t place)
{
    static const char *const tokens[] = {"{", "\"step\"", ":"};
    char text[64], *end;
    const ssize_t got = pread(fd, text, sizeof text - 1, (off_t)place);
    const char *rest = text;
    text[got > 0 ? got : 0] = 0;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        rest += strspn(rest, " \t");
        if (strncmp(rest, tokens[i], strlen(tokens[i])) != 0)
            return INT64_MAX;
        rest += strlen(tokens[i]);
    }
    const long long step = strtoll(rest, &end, 10);
    return end != rest && step >= 1 ? step : INT64_MAX;
}

/* Where the first line of a step after `kept` begins. Steps ascend, so that a few lines are read
 * and not all of them. */
static int64_t end_of_kept(int fd, int64_t bytes, int64_t kept)
{
    const int64_t end = end_of_lines(fd, bytes);
    int64_t low = 0,
            high = end; /* lines that begin before low are kept, from high on they are not */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t line = middle ? line_after(fd, middle - 1, end) : 0;
        if (line < end && step_at(fd, line) <= kept)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? line_after(fd, low - 1, end) : 0;
}

ech_status ech__step_lines_open(ech_ctx *ctx, ech__step_lines *lines, const char *path,
                                int64_t kept)
{
    struct stat st;
    *lines = (ech__step_lines){.ctx = ctx, .path = path};
    lines->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (lines->fd < 0 || fstat(lines->fd, &st) < 0)
        return ech__fail(ctx, ECH_E_IO, "%s cannot be written: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ECH_OK;
    lines->bytes = kept ? end_of_kept(lines->fd, st.st_size, kept) : 0;
    return ftruncate(lines->fd, (off_t)lines->bytes) == 0
               ? ECH_OK
               : ech__fail(ctx, ECH_E_IO, "%s cannot be cut to %lld bytes: %s", path,
                           (long long)lines->bytes, strerror(errno));
}

/* ---- writing ---- */

/* 0, or errno. */
static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        const ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        text += written;
        bytes -= (size_t)written;
    }
    return 0;
}

/* A reader finds whole lines and no half one at their end, where the file can be cut at all. */
static void close_file(ech__step_lines *lines, int error)
{
    const bool cut = ftruncate(lines->fd, (off_t)lines->bytes) == 0;
    lines->error = error;
    ech__log(lines->ctx,
             "%s cannot be written: %s; training continues without further step records%s",
             lines->path, strerror(error), cut ? "" : ", and the last line may be incomplete");
    close(lines->fd);
    lines->fd = -1;
}

void ech__step_lines_write(ech__step_lines *lines, int64_t step, const ech_json *json)
{
    char *text;
    size_t bytes;
    if (lines->fd < 0)
        return;
    if (ech__json_dump(lines->ctx, json, ECH_JSON_LINE, &text, &bytes) < 0) {
        close_file(lines, ENOMEM);
        return;
    }
    text[bytes++] = '\n'; /* in place of the NUL */
    const int error = write_all(lines->fd, text, bytes);
    free(text);
    if (error) {
        close_file(lines, error);
        return;
    }
    lines->bytes += (int64_t)bytes;
    lines->last_step = step;
}

void ech__step_lines_close(ech__step_lines *lines)
{
    if (lines->fd >= 0)
        close(lines->fd);
    lines->fd = -1;
}
