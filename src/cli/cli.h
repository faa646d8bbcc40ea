/* The program: tables of options, and a function for each command. */
#pragma once

#include "base/file/json.h"
#include "base/option/option.h"
#include "device/isa.h"

/* Exit codes, as in the man page. */
enum { ECH__EXIT_GOOD = 0, ECH__EXIT_FAILED = 1, ECH__EXIT_USAGE = 2 };

/* The commands, in the order of the help. Each file that has one defines its table, ech__cli_NAME. */
#define ECH__COMMAND_LIST(X)                                                                       \
    X(info)                                                                                        \
    X(train)                                                                                       \
    X(run)                                                                                         \
    X(bench_step)                                                                                  \
    X(bench_comm)                                                                                  \
    X(plan)                                                                                        \
    X(plan_fit)                                                                                    \
    X(plan_export)                                                                                 \
    X(quantize)                                                                                    \
    X(data_cifar10)                                                                                \
    X(lab_list)                                                                                    \
    X(lab_run)                                                                                     \
    X(lab_all)                                                                                     \
    X(lab)                                                                                         \
    X(report)                                                                                      \
    X(compare)                                                                                     \
    X(graph)

#define ECH__COMMAND_TABLE(name) extern const ech__command ech__cli_##name;
ECH__COMMAND_LIST(ECH__COMMAND_TABLE)
#undef ECH__COMMAND_TABLE

/* .args_bytes and .run of a command. */
#define ECH__CLI_RUN(type, function) .args_bytes = sizeof(type), .run = (function)

/* The row of every command that computes; main acts on it. */
#define ECH__ROW_ISA(args, field)                                                                  \
    ECH_ROW(STRING, args, field, "isa", ECH__ISA_HELP, .choices = ECH__ISA_CHOICES, .arg = "LEVEL")

/* ---- helpers of every command (main.c) ---- */

/* Prints "echelon COMMAND: error message" on stderr and returns code. */
int ech__cli_fail(const ech_ctx *ctx, const ech__command *command, int code);
/* Prints json on stdout and destroys it. */
ech_status ech__cli_json(ech_ctx *ctx, ech_json *json);
/* The command line as it was typed, quoted where needed; lives as long as the program. */
const char *ech__cli_command_line(void);
