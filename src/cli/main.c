#include "cli/cli.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char about[] =
    "Echelon trains neural networks on one or many devices, measures what each step costs (time by "
    "phase and by kernel, memory by kind), and predicts it for other numbers of devices.";

static const ech__option_section sections[] = {
    {"EXIT STATUS", "0 on success, 1 on failure, 2 on wrong usage. If a rank fails: its exit code, "
                    "or 128 plus its signal."},
    {"ENVIRONMENT",
     "ECHELON_TUNING: path of the file with kernel timings. Default: echelon/tuning.json in "
     "XDG_CACHE_HOME or ~/.cache.\n\nECHELON_COSTS: path of the file with the costs of training "
     "steps. Default: costs.json in the same directory.\n\nECHELON_ISA: the highest instruction "
     "set that kernels, oneDNN and OpenBLAS may use: generic, avx2, avx512, avx512_vnni or "
     "avx512_bf16. --isa sets it for one command and its child processes. Start a program of your "
     "own that links libechelon with OPENBLAS_CORETYPE set too (echelon run does it); otherwise "
     "OpenBLAS is not used if it has chosen a higher one.\n\nECHELON_CLOCK, ECHELON_LINK: the "
     "values of echelon run --clock and --link, for programs that use the library.\n\nNO_COLOR: "
     "honoured; no colour is used."},
    {"FILES",
     "A run directory holds run.json (configuration, machine, summary), steps.jsonl (one object a "
     "step) and, with --trace, trace.json (opens in Perfetto or chrome://tracing).\n\nOnly one run "
     "at a time can write to a directory: it locks a hidden file there (.run.lock, "
     ".checkpoints.lock, .lab.lock, .quantize.lock or .fetch.lock), and a second run is refused. A "
     "run that was killed leaves the file, but not the lock."},
};

static const ech__command *const tables[] = {
#define TABLE(name) &ech__cli_##name,
    ECH__COMMAND_LIST(TABLE)
#undef TABLE
};

#define ONE_MORE(name) +1
enum { COMMAND_COUNT = 0 ECH__COMMAND_LIST(ONE_MORE) };
#undef ONE_MORE

static const ech__program program = {.name = "echelon",
                                     .version = ECH_VERSION,
                                     .brief =
                                         "parallel deep learning in C: train, measure, predict",
                                     .about = about,
                                     .commands = tables,
                                     .count = COMMAND_COUNT,
                                     .sections = sections,
                                     .section_count = sizeof sections / sizeof *sections};

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        return size.ws_col < 110 ? size.ws_col : 110;
    return 80;
}

/* Results that could not be written are a failure. */
static int flushed(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "echelon: cannot write standard output\n");
    return code ? code : ECH__EXIT_FAILED;
}

int ech__cli_fail(const ech_ctx *ctx, const ech__command *command, int code)
{
    fflush(stdout);
    fprintf(stderr, "echelon%s%s: %s\n", command ? " " : "", command ? command->name : "",
            ech_ctx_error(ctx));
    return code;
}

static char **program_argv;

#define OPENBLAS_VARIABLE "OPENBLAS_CORETYPE"

/* Holds this process and those that it starts to the level of --isa (NULL: not given) or of ECHELON_ISA. Where
 * OpenBLAS has taken more than that when it was loaded, the program starts itself again. */
static ech_status hold_level(ech_ctx *ctx, const char *level)
{
    if (level) {
        ECH_TRY(ech__isa_possible(ctx, "--isa", level));
        setenv(ECH__ISA_VARIABLE, level, 1);
    }
    ECH_TRY(ech__isa_check(ctx));
    const char *core = ech__isa_openblas_core();
    if (core && !getenv(OPENBLAS_VARIABLE)) {
        setenv(OPENBLAS_VARIABLE, core, 1);
        execv("/proc/self/exe", program_argv);
        /* Where that is not possible, OpenBLAS offers no kernels. */
    }
    return ECH_OK;
}

/* Of a command that has the option --isa. */
static ech_status hold_isa(ech_ctx *ctx, const ech__command *command, const void *args)
{
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *option = &command->options[i];
        if (!strcmp(option->name, "isa"))
            return hold_level(ctx, *(const char *const *)((const char *)args + option->offset));
    }
    return ECH_OK;
}

ech_status ech__cli_json(ech_ctx *ctx, ech_json *json)
{
    const ech_status status = ech__json_print(ctx, json, ECH_JSON_INDENT, stdout);
    ech__json_destroy(json);
    return status;
}

static int run(ech_ctx *ctx, const ech__command *command, char **argv, void *args)
{
    ech__option_result given;
    if (command->defaults)
        command->defaults(args);
    ech_status status = ech__option_parse(ctx, command, argv, args, &given);
    if (status == ECH_OK && given.help) {
        ech__option_help(stdout, &program, command, terminal_width());
        return ECH__EXIT_GOOD;
    }
    if (status == ECH_OK)
        status = hold_isa(ctx, command, args);
    if (status == ECH_OK && command->check)
        status = command->check(ctx, &given);
    if (status < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    const int code = command->run(ctx, &given);
    return code < 0 ? ech__cli_fail(ctx, command, ECH__EXIT_FAILED) : code;
}

static int call(ech_ctx *ctx, const ech__command *command, char **argv)
{
    void *args = calloc(1, command->args_bytes);
    if (!args) {
        ech__no_memory(ctx, "the options");
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    }
    const int code = run(ctx, command, argv, args);
    free(args);
    return code;
}

/* ---- the command line, for records ---- */

static char command_line[8192];

const char *ech__cli_command_line(void)
{
    return command_line;
}

static void keep_command_line(char **argv)
{
    size_t used = 0;
    for (; *argv && used < sizeof command_line - 8; argv++) {
        const bool plain = **argv && !(*argv)[strcspn(*argv, " \t\n'\"\\$`*?[]{}()<>|&;#~!")];
        const char *quote = plain ? "" : "'";
        const int length = snprintf(command_line + used, sizeof command_line - used, "%s%s%s%s",
                                    used ? " " : "", quote, *argv, quote);
        used += (size_t)length;
    }
}

/* ---- pages ---- */

/* Commands without a table: they make pages from the tables. */
static bool print_page(char **argv)
{
    if (argv[0] && !strcmp(argv[0], "--version"))
        printf("echelon %s\n", program.version);
    else if (argv[0] && !strcmp(argv[0], "man") && !argv[1])
        ech__option_man(stdout, &program);
    else if (argv[0] && argv[1] && !argv[2] && !strcmp(argv[0], "completion") &&
             !strcmp(argv[1], "bash"))
        ech__option_bash(stdout, &program);
    else
        return false;
    return true;
}

static void log_line(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "echelon: %s\n", line);
}

int main(int argc, char **argv)
{
    (void)argc;
    /* A write beyond the limit of file sizes (ulimit -f) then fails with an error that can be reported. Ranks and runs
     * of a lab inherit it. */
    signal(SIGXFSZ, SIG_IGN);
    setlocale(LC_CTYPE, "");
    keep_command_line(argv);
    program_argv = argv;
    ech_ctx *ctx;
    if (ech_ctx_create(&(ech_ctx_options){.log = log_line}, &ctx) < 0) {
        fprintf(stderr, "echelon: out of memory\n");
        return ECH__EXIT_FAILED;
    }
    const ech__command *command;
    char **rest = argv + 1;
    int code = ECH__EXIT_GOOD;
    if (print_page(rest))
        code = ECH__EXIT_GOOD;
    else if (ech__command_find(ctx, &program, &rest, &command) < 0)
        code = ech__cli_fail(ctx, NULL, ECH__EXIT_USAGE);
    else if (!command)
        ech__option_help(stdout, &program, NULL, terminal_width());
    else
        code = call(ctx, command, rest);
    ech_ctx_destroy(ctx);
    return flushed(code);
}
