/* Commands that run as several ranks. */
#pragma once

#include "cli/cli.h"
#include "comm/comm.h"
#include "comm/launch/launch.h"

/* Whether this process is a rank that a launcher has started, and must not start ranks itself. */
bool ech__cli_is_rank(void);
/* The exit code of a rank that has said why the job has failed, where another try would end alike. */
int ech__cli_settled(void);
/* Starts this very program again as that many ranks, with argv behind the command's name, forwards
 * what they write, and returns the exit code when all are gone. Only rank 0's standard output is
 * let through. Nothing may have run on a device before. */
int ech__cli_launch(ech_ctx *ctx, const ech__command *command, int ranks, int max_restarts,
                    char **argv);
/* The same for ranks that only help the command: where they run is not said. */
int ech__cli_launch_helpers(ech_ctx *ctx, const ech__command *command, int ranks, char **argv);
/* The same for any program: ranks, argv and the rest of options are set, its functions are put in here. */
int ech__cli_launch_program(ech_ctx *ctx, const ech__command *command,
                            const ech__launch_options *options);
/* As ech__cli_fail, for a rank: tells the others, and prints nothing where one of them has printed the error message. */
int ech__cli_fail_rank(ech__comm *comm, const ech__command *command, int code);
