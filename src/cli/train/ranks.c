#include "cli/train/ranks.h"
#include "base/system/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the ranks' standard error stands. */
typedef struct forward {
    const char *command;
    bool open; /* in a line of rank 0's that has no end yet */
    bool hush; /* the next line of the launcher, which says where ranks run, is left out */
} forward;

static void end_line(forward *f)
{
    if (f->open)
        fputc('\n', stderr);
    f->open = false;
}

static void output(void *user, int rank, const char *text, size_t bytes)
{
    forward *f = user;
    if (rank == 0) {
        fwrite(text, 1, bytes, stderr);
        /* A line that was taken back with '\r' leaves nothing that another could be written into. */
        f->open = bytes && text[bytes - 1] != '\n' && text[bytes - 1] != '\r';
        return;
    }
    end_line(f);
    fprintf(stderr, "[rank %d] %.*s", rank, (int)bytes, text);
}

static void say(void *user, const char *line)
{
    forward *f = user;
    if (f->hush) {
        f->hush = false;
        return;
    }
    end_line(f);
    fprintf(stderr, "echelon %s: %s\n", f->command, line);
}

/* Of such a rank, between it and the launcher; any that no program is likely to have. */
enum { EXIT_SETTLED = 79 };
/* Set for ranks whose launcher is this program, training: it knows EXIT_SETTLED. */
static const char SETTLES[] = "ECHELON_SETTLES";

int ech__cli_launch_program(ech_ctx *ctx, const ech__command *command,
                            const ech__launch_options *options, bool hush)
{
    forward f = {.command = command->name, .hush = hush};
    ech__launch_options all = *options;
    all.output = output;
    all.say = say;
    all.user = &f;
    ech__launch_result result;
    fflush(stdout);
    if (all.settled_code)
        setenv(SETTLES, "1", 1);
    else
        unsetenv(SETTLES);
    const ech_status status = ech__launch(ctx, &all, &result);
    end_line(&f);
    return status < 0 ? ech__cli_fail(ctx, command, result.code) : result.code;
}

int ech__cli_settled(void)
{
    return ech__cli_is_rank() && getenv(SETTLES) ? EXIT_SETTLED : ECH__EXIT_FAILED;
}

bool ech__cli_is_rank(void)
{
    return getenv("ECHELON_COMM_FD") != NULL;
}

/* A launcher names the rank that is the first to end, and then ends the others: those that fail because of it leave it
 * this time, in seconds, to go. */
static const double AFTER_YOU = 1;

int ech__cli_fail_rank(ech__comm *comm, const ech__command *command, int code)
{
    if (ech__comm_abort(comm))
        return ech__cli_fail(comm->ctx, command, code);
    ech__clock_sleep(AFTER_YOU);
    return code;
}

/* This program's file, by its real name where it still has one, so that ps shows it. */
static const char *own_path(char *path, size_t size)
{
    const ssize_t got = readlink("/proc/self/exe", path, size - 1);
    if (got > 0 && (size_t)got < size - 1) {
        path[got] = '\0';
        if (access(path, X_OK) == 0)
            return path;
    }
    return "/proc/self/exe";
}

int ech__cli_launch(ech_ctx *ctx, const ech__command *command, int ranks, int max_restarts,
                    char **argv, bool hush)
{
    char path[4096], name[64];
    size_t count = 0, n = 0;
    double timeout_s;
    ECH_TRY(ech__comm_timeout(ctx, &timeout_s));
    while (argv[count])
        count++;
    char **all = calloc(count + 8, sizeof *all);
    if (!all)
        return ech__no_memory(ctx, "%zu arguments", count);
    all[n++] = (char *)"echelon";
    snprintf(name, sizeof name, "%s", command->name);
    char *rest = name;
    for (char *word; n < 7 && (word = strsep(&rest, " "));)
        all[n++] = word;
    memcpy(all + n, argv, count * sizeof *argv);
    ech__launch_options options = ech__launch_defaults();
    options.ranks = ranks;
    options.max_restarts = max_restarts;
    options.tells_begin = true;
    options.argv = all;
    options.path = own_path(path, sizeof path);
    options.quiet_others = true;
    options.settled_code = EXIT_SETTLED;
    const int code = ech__cli_launch_program(ctx, command, &options, hush);
    free(all);
    return code;
}
