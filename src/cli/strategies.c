/* echelon info --strategies: which options each strategy supports, as a table in Markdown, and the
 * reasons. docs/architecture.md holds what it prints. */
#include "parallel/strategy.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

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

void ech__cli_strategies(void)
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
