/* echelon run: a user's own program as several ranks. */
#include "cli/train/ranks.h"
#include "device/device.h"
#include "train/step/clock.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct args {
    int64_t ranks, max_restarts;
    const char *isa;
    int clock;
    const char *link;
    ech__option_rest program;
} args;

static const ech__option options[] = {
    ECH_ROW(INT, args, ranks, "ranks", "How many ranks to start on this machine.", .letter = 'n',
            .arg = "N", .required = true, .min = 1, .max = 256),
    ECH_ROW(
        INT, args, max_restarts, "max-restarts",
        "How often all ranks are restarted after one fails. Exit code 2, 126 or 127 (wrong usage, "
        "not executable, not found) ends the job at once.",
        .arg = "R", .initial = "0", .max = 1000000),
    ECH__ROW_ISA(args, isa),
    ECH_ROW(CHOICE, args, clock, "clock",
            "Clock of the step times that the library reports. virtual: CPU time of each rank's "
            "thread plus the predicted time of the exchange, as if every rank had its own core; "
            "such times are marked as emulated. auto: virtual if there are more ranks than "
            "cores.",
            .choices = ECH__CLOCK_LIST(ECH_OPTION_WORD), .initial = "auto"),
    ECH_ROW(STRING, args, link, "link",
            "Links between ranks for the virtual clock, such as 12GB/s,5us. Default: the memory "
            "of this machine.",
            .arg = "BANDWIDTH,LATENCY"),
    ECH_ROW(REST, args, program, "-- PROG", "The program, looked up in PATH, and its arguments.",
            .positional = true, .required = true),
};

static const ech__option_example examples[] = {
    {"echelon run -n 2 -- ./train_mine --lr 0.1", "two ranks of a program of your own"},
    {"echelon run -n 4 --max-restarts 3 -- ./train_mine --resume saved",
     "restart all ranks when one fails, up to three times"},
    {"echelon run -n 8 --clock virtual --link 12GB/s,5us -- ./train_mine",
     "emulate the step times of eight devices with these links, on any number of cores"},
    {"echelon run -n 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'",
     "print the environment of the ranks"},
};

/* And sets the clock, which the library reads where the program makes a trainer. */
static ech_status check(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    ech__link link;
    if (!*a->program.word[0])
        return ech__fail(ctx, ECH_E_INVALID, "the program's name is empty");
    if (a->link && a->clock == ECH__CLOCK_REAL)
        return ech__fail(ctx, ECH_E_INVALID, "--link requires --clock virtual");
    if (a->link)
        ECH_TRY(ech__link_parse(ctx, a->link, &link));
    setenv("ECHELON_CLOCK", ech__clock_kind_name((ech__clock_kind)a->clock), 1);
    if (a->link)
        setenv("ECHELON_LINK", a->link, 1);
    return ECH_OK;
}

/* Warns the reader of the program's times that ranks share cores. */
static void say_whose_times(const ech__command *command, const args *a)
{
    const int ranks = (int)a->ranks, cores = ech__device_cores();
    if (ranks <= cores)
        return;
    fprintf(stderr, "echelon %s: %d ranks share %d core%s: %s\n", command->name, ranks, cores,
            cores == 1 ? "" : "s",
            a->clock == ECH__CLOCK_REAL
                ? "times are not those of ranks with dedicated cores (--clock virtual emulates "
                  "those)"
                : "step times that the library reports are emulated; other times are not those of "
                  "ranks with dedicated cores");
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    say_whose_times(given->command, a);
    ech__launch_options launch = ech__launch_defaults();
    launch.ranks = (int)a->ranks;
    launch.max_restarts = (int)a->max_restarts;
    launch.argv = a->program.word;
    return ech__cli_launch_program(ctx, given->command, &launch, false);
}

const ech__command ech__cli_run = {
    .name = "run",
    .brief = "start a program as several ranks on this machine",
    .about =
        "Starts N processes of a program that uses libechelon, each bound to its own cores, and "
        "supervises them. Their environment has RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, "
        "MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RESTART_COUNT, as with torchrun. "
        "OMP_NUM_THREADS is set to the number of cores of a rank if it is not set.\n\nIf a rank "
        "fails, it is named and the others get SIGTERM, and SIGKILL 3 s later. The exit code is "
        "that of the failed rank, or 128 plus its signal. Ranks end with the launcher, together "
        "with all processes that they started (those with their ECHELON_JOB in the environment). "
        "SIGINT, SIGTERM and SIGHUP are forwarded to all ranks. Lines on standard error from ranks "
        "other than rank 0 begin with the rank number.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
    .check = check,
};
