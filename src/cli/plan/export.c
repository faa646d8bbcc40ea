/* echelon plan export: measured costs for use on another machine. */
#include "cli/plan/plan.h"

#include <stdio.h>

typedef struct args {
    const char *file, *costs_file;
} args;

static const ech__option options[] = {
    ECH_ROW(STRING, args, file, "FILE", "File to write, in place of what is in it.", .arg = "FILE",
            .positional = true, .required = true),
    ECH_ROW(STRING, args, costs_file, "costs-file",
            "File that stores costs. Default: $ECHELON_COSTS, or costs.json next to the kernel "
            "timings.",
            .arg = "FILE"),
};

static const ech__option_example examples[] = {
    {"echelon plan export node.json", "Write the costs that were measured on this machine."},
    {"echelon plan --model resnet18 --batch-size 32 --devices 1-64 --link 12GB/s,5us --costs-file "
     "node.json",
     "On another machine: predict with them."},
};

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    char store[4096];
    ech__costs *costs;
    ECH_TRY(ech__plan_costs_file(ctx, a->costs_file, store, sizeof store));
    ECH_TRY(ech__costs_open(ctx, store, NULL, &costs));
    const ech_status status = ech__costs_export(costs, a->file);
    ech__costs_close(costs);
    if (status == ECH_OK)
        printf("costs of this machine: %s\n", a->file);
    return status;
}

const ech__command ech__cli_plan_export = {
    .name = "plan export",
    .brief = "write measured costs for use on another machine",
    .about = "Writes what echelon plan has measured on this machine into a file. On another "
             "machine, echelon plan --costs-file FILE predicts with these costs and measures "
             "nothing.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
};
