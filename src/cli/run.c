/* echelon run: a user's own program as several ranks. */
#include "cli/ranks.h"

typedef struct args {
    int64_t ranks, max_restarts;
    ech__option_rest program;
} args;

static const ech__option options[] = {
    {.name = "ranks",
     .letter = 'n',
     ECH_OPTION(INT, args, ranks),
     .arg = "N",
     .required = true,
     .min = 1,
     .max = 256,
     .help = "How many ranks to start on this machine."},
    {.name = "max-restarts",
     ECH_OPTION(INT, args, max_restarts),
     .arg = "R",
     .initial = "0",
     .max = 1000000,
     .help = "How often all ranks are started again after one has failed."},
    {.name = "-- PROG",
     ECH_OPTION(REST, args, program),
     .positional = true,
     .required = true,
     .help = "The program, looked up in PATH, and its arguments."},
};

static const ech__option_example examples[] = {
    {"echelon run -n 2 -- ./train_mine --lr 0.1", "two ranks of a program of your own"},
    {"echelon run -n 4 --max-restarts 3 -- ./train_mine --resume saved",
     "starts all again when one fails, up to three times"},
    {"echelon run -n 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'", "shows who is who"},
};

const ech__command ech__cli_run = {
    .name = "run",
    .brief = "start a program as several ranks on this machine",
    .about =
        "Starts N processes of a program that uses libechelon, each bound to cores of its own, and "
        "looks after them. They find RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, "
        "MASTER_PORT and TORCHELASTIC_RESTART_COUNT in their environment, as with torchrun, and "
        "OMP_NUM_THREADS is the number of a rank's cores where it is not set.\n\nThe first rank "
        "that "
        "fails is named, the others get SIGTERM and 3 s later SIGKILL, and its exit code, or 128 "
        "and "
        "its signal, is the command's own. Ranks die with the launcher. SIGINT, SIGTERM and SIGHUP "
        "are handed on to all ranks. Lines that ranks behind the first write to standard error "
        "begin with their number.",
    .options = options,
    .count = sizeof options / sizeof *options,
    .examples = examples,
    .example_count = sizeof examples / sizeof *examples,
};

int ech__run_run(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a = {0};
    ech__option_result result;
    int code;
    if (!ech__cli_parse(ctx, command, argv, &a, &result, &code))
        return code;
    if (!*a.program.word[0]) {
        ech__fail(ctx, ECH_E_INVALID, "the program's name is empty");
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    }
    ech__launch_options launch = ech__launch_defaults();
    launch.ranks = (int)a.ranks;
    launch.max_restarts = (int)a.max_restarts;
    launch.argv = a.program.word;
    return ech__cli_launch_program(ctx, command, &launch);
}
