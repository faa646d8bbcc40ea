/* echelon info: the machine, and what this build has. */
#include "base/format.h"
#include "cli/build_parts.h"
#include "cli/cli.h"
#include "device/device.h"
#include "device/machine.h"
#include "parallel/strategy.h"

#include <stdio.h>
#include <string.h>

typedef struct args {
    bool json, strategies;
    const char *isa;
} args;

static const ech__option options[] = {
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object."),
    ECH_ROW(FLAG, args, strategies, "strategies",
            "Print which options each strategy of --parallel supports, and why not."),
    ECH__ROW_ISA(args, isa),
};

/* ---- the machine ---- */

static void print(const ech__machine *m, ech__device_kind kind)
{
    printf("echelon      %s\n", ech_version());
    printf("processor    %s, %d cores, %d threads, %d usable here\n", m->processor, m->cores,
           m->threads, m->usable);
    printf("vectors      %s\n", *m->vectors ? m->vectors : "none used by the kernels");
    printf("isa          %s%s", ech__isa_name(m->isa), ech__isa_is_set() ? ", set by " : "");
    if (ech__isa_is_set())
        printf(ECH__ISA_VARIABLE "; the processor supports %s", ech__isa_name(m->best_isa));
    printf("\n");
    printf("caches       L1 %s, L2 %s, L3 %s\n", ech__format_bytes(m->cache_bytes[0]).s,
           ech__format_bytes(m->cache_bytes[1]).s, ech__format_bytes(m->cache_bytes[2]).s);
    printf("memory       %s\n", ech__format_bytes(m->memory_bytes).s);
    printf("system       %s\n", m->system);
    printf("libraries    %s; %s\n", m->onednn, m->openblas);
    printf("devices      %s: up to %d with one thread each%s\n", ech__device_name(kind), m->usable,
           kind ? ", set by " ECH__DEVICE_VARIABLE ", a testing aid" : "");
    for (size_t i = 0; i < ech__build_part_count; i++) {
        const ech__build_part *part = &ech__build_parts[i];
        if (!part->is_here)
            printf("left out     %s (Debian: %s): %s\n", part->name, part->package, part->cost);
    }
}

/* The optional libraries that this build lacks, and what that costs. */
static ech_json *left_out(void)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < ech__build_part_count; i++) {
        if (ech__build_parts[i].is_here)
            continue;
        const ech__build_part *part = &ech__build_parts[i];
        ech__json_append(&list, ECH__JSON(ech__string("part", part->name),
                                          ech__string("package", part->package),
                                          ech__string("cost", part->cost)));
    }
    return list;
}

static ech_status print_json(ech_ctx *ctx, const ech__machine *m, ech__device_kind kind)
{
    ech_json *devices = ech__json_array();
    ech__json_append(&devices, ECH__JSON(ech__string("kind", ech__device_name(kind)),
                                         ech__int("count", m->usable)));
    ech_json *json = ECH__JSON(
        ech__string("version", ech_version()), ech__member("machine", ech__machine_json(m)),
        ech__member("devices", devices), ech__member("left_out", left_out()));
    return ech__cli_json(ctx, json);
}

/* ---- --strategies: which options each strategy supports, as a table in Markdown, and the reasons.
 * docs/architecture.md holds what it prints ---- */

typedef struct column {
    ech__spread_by by;
    char name[32];
} column;

enum { MOST_COLUMNS = 2 * ECH__STRATEGY_COUNT };

static int find_columns(column *out)
{
    int count = 0;
    for (int in_ranks = 0; in_ranks < 2; in_ranks++) {
        for (int s = 0; s < ECH__STRATEGY_COUNT; s++) {
            const ech__strategy strategy = (ech__strategy)s;
            if (in_ranks && !ech__strategy_row_of(strategy)->refused_in_ranks)
                continue;
            column *c = &out[count++];
            c->by = (ech__spread_by){.strategy = strategy, .in_ranks = in_ranks};
            snprintf(c->name, sizeof c->name, "%s%s", ech__strategy_name(strategy),
                     in_ranks ? " in ranks" : "");
        }
    }
    return count;
}

/* Without the words that an error message adds to it. */
static int flag_length(ech__feature f)
{
    return (int)strcspn(ech__feature_flag(f), ",");
}

static void print_table(const column *columns, int count)
{
    printf("| option |");
    for (int i = 0; i < count; i++)
        printf(" %s |", columns[i].name);
    printf("\n|---|");
    for (int i = 0; i < count; i++)
        printf("---|");
    for (ech__feature f = (ech__feature)0; f < ECH__FEATURE_COUNT; f++) {
        printf("\n| `%.*s` |", flag_length(f), ech__feature_flag(f));
        for (int i = 0; i < count; i++)
            printf(" %s |", ech__strategy_refusal(columns[i].by, f) ? "no" : "yes");
    }
    printf("\n\n");
}

/* Of the column itself: a strategy in ranks has the reasons of the strategy too. */
static const char *own_reason(const column *c, ech__feature f)
{
    const ech__spread_by plain = {.strategy = c->by.strategy};
    return c->by.in_ranks && ech__strategy_refusal(plain, f) ? NULL
                                                             : ech__strategy_refusal(c->by, f);
}

/* One line for each reason, with all options that it is of. */
static void print_reasons(const column *c)
{
    bool told[ECH__FEATURE_COUNT] = {false};
    for (int f = 0; f < ECH__FEATURE_COUNT; f++) {
        const char *reason = own_reason(c, (ech__feature)f);
        if (!reason || told[f])
            continue;
        printf("- %s:", c->name);
        for (int g = f; g < ECH__FEATURE_COUNT; g++) {
            const char *other = own_reason(c, (ech__feature)g);
            if (!other || strcmp(other, reason) != 0)
                continue;
            told[g] = true;
            printf("%s `%.*s`", g == f ? "" : ",", flag_length((ech__feature)g),
                   ech__feature_flag((ech__feature)g));
        }
        printf(": %s.\n", reason);
    }
}

static void print_strategies(void)
{
    column columns[MOST_COLUMNS];
    const int count = find_columns(columns);
    for (int s = 0; s < ECH__STRATEGY_COUNT; s++) {
        const ech__strategy_row *row = ech__strategy_row_of((ech__strategy)s);
        printf("- `%s`, %s: %s.\n", ech__strategy_name((ech__strategy)s), row->title, row->about);
    }
    putchar('\n');
    print_table(columns, count);
    for (int i = 0; i < count; i++)
        print_reasons(&columns[i]);
}

/* ---- the command ---- */

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    if (a->strategies) {
        print_strategies();
        return ECH__EXIT_GOOD;
    }
    ech__machine machine;
    ech__device_kind kind;
    ECH_TRY(ech__device_asked(ctx, &kind));
    ECH_TRY(ech__machine_read(ctx, &machine));
    if (a->json)
        return print_json(ctx, &machine, kind);
    print(&machine, kind);
    return ECH__EXIT_GOOD;
}

const ech__command ech__cli_info = {
    .name = "info",
    .brief = "show the machine, its devices and what this build has",
    ECH_OPTION_ROWS(options),
    ECH__CLI_RUN(args, run),
};
