/* Commands that run as several ranks. */
#pragma once

#include "cli/cli.h"
#include "comm/comm.h"
#include "comm/launch/launch.h"

/* Whether this process is a rank that a launcher has started, and must not start ranks itself. */
bool ech__cli_is_rank(void);
/* The exit code of a rank that has said why the job has failed, where another try would end alike. */
int ech__cli_settled(void);
/* Starts this program again as that many ranks, with argv after the command's name, forwards what they write, and
 * returns the exit code when all have ended. Only the standard output of rank 0 is let through. Nothing may have run
 * on a device before. hush: where the ranks run is not printed. */
int ech__cli_launch(ech_ctx *ctx, const ech__command *command, int ranks, int max_restarts,
                    char **argv, bool hush);
/* The same for any program: ranks, argv and the rest of options are set, its functions are put in here. */
int ech__cli_launch_program(ech_ctx *ctx, const ech__command *command,
                            const ech__launch_options *options, bool hush);
/* As ech__cli_fail, for a rank: tells the others, and prints nothing where one of them has printed the error
 * message. */
int ech__cli_fail_rank(ech__comm *comm, const ech__command *command, int code);
