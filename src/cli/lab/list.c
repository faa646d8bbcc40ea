/* echelon lab list: the studies, and what single ones are about. */
#include "cli/cli.h"
#include "cli/lab/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct args {
    ech__option_words studies;
    bool json;
} args;

static const ech__option options[] = {
    ECH_ROW(WORDS, args, studies, "STUDY",
            "Show what these are about, and their sizes. Default: a table of all.",
            .positional = true),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object."),
};

static const ech__option_example examples[] = {
    {"echelon lab list", "every study, and about how long it takes"},
    {"echelon lab list strong-scaling", "one study, and the sizes that --set can change"},
};

/* The cards that are asked for, in the order of the report; all where none is named. */
static ech_status choose(ech_ctx *ctx, const args *a, const ech__study_card **out, size_t *count)
{
    const ech__study_card *all[ECH__LAB_MAX_STUDIES];
    if (ech__lab_card_count > ECH__LAB_MAX_STUDIES)
        return ech__fail(ctx, ECH_E_LIMIT, "%zu studies: at most %d are possible",
                         ech__lab_card_count, ECH__LAB_MAX_STUDIES);
    for (size_t i = 0; i < ech__lab_card_count; i++)
        all[i] = ech__lab_cards[i];
    ech__lab_sort(all, ech__lab_card_count);
    *count = 0;
    for (size_t i = 0; a->studies.count == 0 && i < ech__lab_card_count; i++)
        out[(*count)++] = all[i];
    for (int k = 0; k < a->studies.count; k++) {
        ECH_TRY(
            ech__lab_find_card(ctx, all, ech__lab_card_count, a->studies.word[k], &out[*count]));
        (*count)++;
    }
    return ECH_OK;
}

static ech_status print(ech_ctx *ctx, const args *a, const ech__study_card *const *cards,
                        size_t count)
{
    if (a->json)
        return ech__cli_json(ctx, ech__lab_list_json(cards, count));
    if (!a->studies.count)
        ech__lab_show_list(cards, count);
    for (size_t i = 0; a->studies.count && i < count; i++) {
        if (i)
            putchar('\n');
        ech__lab_show_card(cards[i]);
    }
    return ECH_OK;
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    const ech__study_card *cards[ECH__LAB_MAX_STUDIES];
    size_t count = 0;
    if (choose(ctx, a, cards, &count) < 0)
        return ech__cli_fail(ctx, given->command, ECH__EXIT_USAGE);
    return print(ctx, a, cards, count);
}

const ech__command ech__cli_lab_list = {
    .name = "lab list",
    .brief = "list the studies",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
};
