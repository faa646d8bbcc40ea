#include "base/system/turns.h"
#include "base/system/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, LINE = 64, LEAST_STEPS = 2 };

struct ech__turns {
    ech_ctx *ctx;
    int fd;
    const char *clock;
    bool ready; /* has been said */
    int64_t begin_ns, block_ns, steps;
    size_t used;
    char buffer
        [BUFFER]; /* not sent yet: nothing is between the steps of a block unless it is full */
};

static const char *path_of(void)
{
    const char *path = getenv(ECH__TURNS_NAME);
    return path && *path ? path : NULL;
}

bool ech__turns_wanted(void)
{
    return path_of() != NULL;
}

ech_status ech__turns_open(ech_ctx *ctx, const char *clock, ech__turns **out)
{
    const char *path = path_of();
    *out = NULL;
    if (!path)
        return ECH_OK;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return ech__fail(ctx, ECH_E_INVALID, ECH__TURNS_NAME " is a path of %zu bytes; at most %zu",
                         strlen(path), sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path));
    ech__turns *turns = ech__new(ctx, sizeof *turns);
    if (!turns)
        return ech__no_memory(ctx, "the turns of a comparison");
    turns->ctx = ctx;
    turns->clock = clock;
    turns->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (turns->fd < 0 || connect(turns->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        const int error = errno;
        ech__turns_close(turns);
        /* A second trainer of the same program: the first one is compared. */
        return error == ECONNREFUSED || error == ENOENT
                   ? ECH_OK
                   : ech__fail(ctx, ECH_E_IO, ECH__TURNS_NAME "=%s: %s", path, strerror(error));
    }
    *out = turns;
    return ECH_OK;
}

void ech__turns_close(ech__turns *turns)
{
    if (!turns)
        return;
    if (turns->fd >= 0)
        close(turns->fd);
    ech__delete(turns->ctx, turns, sizeof *turns);
}

static ech_status is_over(const ech__turns *turns)
{
    return ech__fail(turns->ctx, ECH_E_IO, "the comparison that this run is an arm of is over");
}

static ech_status flush(ech__turns *turns)
{
    for (size_t sent = 0; sent < turns->used;) {
        const ssize_t got = send(turns->fd, turns->buffer + sent, turns->used - sent, MSG_NOSIGNAL);
        if (got < 0 && errno != EINTR)
            return is_over(turns);
        sent += got > 0 ? (size_t)got : 0;
    }
    turns->used = 0;
    return ECH_OK;
}

static ech_status put(ech__turns *turns, const char *line)
{
    if (turns->used + strlen(line) > BUFFER)
        ECH_TRY(flush(turns));
    memcpy(turns->buffer + turns->used, line, strlen(line));
    turns->used += strlen(line);
    return ECH_OK;
}

/* Waits for "run MS". */
static ech_status wait_for_turn(ech__turns *turns)
{
    char line[LINE];
    size_t used = 0;
    ECH_TRY(flush(turns));
    while (!used || line[used - 1] != '\n') {
        const ssize_t got = used < LINE - 1 ? recv(turns->fd, line + used, 1, 0) : 0;
        if (got == 0 || (got < 0 && errno != EINTR))
            return is_over(turns);
        used += got > 0 ? (size_t)got : 0;
    }
    line[used] = '\0';
    char *end = line;
    const double ms = strncmp(line, "run ", 4) ? -1 : strtod(line + 4, &end);
    if (*end != '\n' || !(ms >= 0 && ms < 1e9))
        return is_over(turns);
    turns->steps = 0;
    turns->block_ns = (int64_t)(ms * 1e6);
    turns->begin_ns = ech__clock_wall();
    return ECH_OK;
}

ech_status ech__turns_step(ech__turns *turns, double seconds)
{
    char line[LINE];
    if (!turns)
        return ECH_OK;
    if (!turns->ready) { /* the step before the first block warmed up */
        turns->ready = true;
        snprintf(line, sizeof line, "ready Echelon %s, %s\n", ech_version(), turns->clock);
        ECH_TRY(put(turns, line));
        return wait_for_turn(turns);
    }
    snprintf(line, sizeof line, "%.9g\n", seconds);
    ECH_TRY(put(turns, line));
    turns->steps++;
    if (turns->steps < LEAST_STEPS || ech__clock_wall() - turns->begin_ns < turns->block_ns)
        return ECH_OK;
    ECH_TRY(put(turns, "done\n"));
    return wait_for_turn(turns);
}
