/* The program: tables of options, and a function for each command. */
#ifndef ECH_CLI_CLI_H
#define ECH_CLI_CLI_H

#include "base/option/option.h"
#include "device/isa.h"

/* Exit codes, as in the man page. */
enum { ECH__EXIT_GOOD = 0, ECH__EXIT_FAILED = 1, ECH__EXIT_USAGE = 2 };

/* A command's table and what it does with arguments behind its name. Returns the exit code. */
typedef int (*ech__command_fn)(ech_ctx *ctx, const ech__command *command, char **argv);

extern const ech__command ech__cli_info, ech__cli_train, ech__cli_run, ech__cli_bench_step,
    ech__cli_bench_comm, ech__cli_plan, ech__cli_plan_fit, ech__cli_quantize, ech__cli_data_cifar10,
    ech__cli_report, ech__cli_compare, ech__cli_graph, ech__cli_lab, ech__cli_lab_list,
    ech__cli_lab_run, ech__cli_lab_all;

int ech__command_info(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_train(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_run(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_bench_step(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_bench_comm(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_plan(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_plan_fit(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_quantize(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_data_cifar10(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_report(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_compare(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_graph(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_lab(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_lab_list(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_lab_run(ech_ctx *ctx, const ech__command *command, char **argv);
int ech__command_lab_all(ech_ctx *ctx, const ech__command *command, char **argv);

/* ---- --isa (isa.c) ---- */

/* The row of every command that computes. ech__cli_parse acts on it. */
#define ECH__ROW_ISA(args, field)                                                                  \
    .name = "isa", ECH_OPTION(STRING, args, field), .choices = ECH__ISA_CHOICES, .arg = "LEVEL",   \
    .help = ECH__ISA_HELP

/* What echelon info --strategies prints (strategies.c). */
void ech__cli_strategies(void);

/* ---- helpers of every command (main.c) ---- */

/* Parses argv into args. False when the command is over: *code is then its exit code, and the help or the
 * error has been printed. */
bool ech__cli_parse(ech_ctx *ctx, const ech__command *command, char **argv, void *args,
                    ech__option_result *result, int *code);
/* Prints "echelon COMMAND: sentence" on stderr and returns code. */
int ech__cli_fail(const ech_ctx *ctx, const ech__command *command, int code);
/* The command line as it was typed, quoted where needed; lives as long as the program. */
const char *ech__cli_command_line(void);

#endif
