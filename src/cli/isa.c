#include "cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

#define OPENBLAS_VARIABLE "OPENBLAS_CORETYPE"

ech_status ech__cli_hold_isa(ech_ctx *ctx, const char *level, char **program_argv)
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
