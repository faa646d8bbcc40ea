#include "train/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define COLUMN_RECORD(key, when) .field = key, .recorded = ECH__WHEN_##when
#define COLUMN_UNRECORDED .field = NULL
#define COLUMN_AGREE .agree = ECH__AGREE
#define COLUMN_GIVEN .agree = ECH__GIVEN
#define COLUMN_DIFFER .agree = ECH__DIFFER
#define COLUMN_SAME(when) .same = ECH__WHEN_##when
#define COLUMN_SAME_OR_OFF .same = ECH__WHEN_ALWAYS, .or_off = true
#define COLUMN_CHANGE .same = ECH__WHEN_NEVER
/* clang-format on */

static const ech__run_option rows[] = {
#define OPTION(train, bench, plan, graph, kind_, member, name_, group_, record, agree, resume,     \
               help_, ...)                                                                         \
    {.option = {.name = name_,                                                                     \
                ECH_OPTION(kind_, ech__run_config, member),                                        \
                .group = group_,                                                                   \
                .help = help_,                                                                     \
                __VA_ARGS__},                                                                      \
     COLUMN_##record,                                                                              \
     COLUMN_##agree,                                                                               \
     COLUMN_##resume},
#include "train/options.inc"
};

ech__run_config ech__run_defaults(void)
{
    ech__run_config config = {.model = {.kind = ECH__MODEL_LINEAR, .dim = 1024, .depth = 2},
                              .shuffle = true,
                              .augment = true,
                              .steps = 35,
                              .warmup = 5};
    config.train = ech_train_defaults();
    config.train.batch = 0;
    config.schedule.gamma = 0.1;
    config.lr_warmup_from = -1;
    config.emulation.cluster = ech__cluster_defaults();
    config.emulation.algorithm = ECH__ALGORITHM_DIRECT; /* the memory of this machine */
    return config;
}

const ech__run_option *ech__run_options(size_t *count)
{
    *count = sizeof rows / sizeof *rows;
    return rows;
}

static bool counts(ech__when when, const ech__run_config *c, int world)
{
    const bool is[] = {
#define CONDITION(id, condition) condition,
        ECH__WHEN_LIST(CONDITION)
#undef CONDITION
    };
    return is[when];
}

static void set_choice(ech_json **json, const char *key, const ech__option *row, int value)
{
    char text[64] = "";
    size_t length;
    const char *word = ech__option_choice(row, value, &length);
    if (word && length < sizeof text)
        memcpy(text, word, length);
    ech__json_set_string(json, key, text);
}

/* Sets key to the value that the row has. A record has the member itself; terms have it as on the
 * command line: a flag that unsets its member, and a size in MiB. */
static void set_value(ech_json **json, const char *key, const ech__option *row, const void *value,
                      bool is_record)
{
    switch (row->kind) {
    case ECH_OPTION_FLAG:
    case ECH_OPTION_SWITCH:
        ech__json_set_bool(json, key, *(const bool *)value);
        break;
    case ECH_OPTION_UNSET:
        ech__json_set_bool(json, key, *(const bool *)value == is_record);
        break;
    case ECH_OPTION_MIB:
        if (!is_record) {
            ech__json_set_real(json, key, (double)*(const int64_t *)value / (1 << 20));
            break;
        }
        /* fall through */
    case ECH_OPTION_INT:
    case ECH_OPTION_BYTES:
        ech__json_set_int(json, key, *(const int64_t *)value);
        break;
    case ECH_OPTION_COUNT:
        ech__json_set_int(json, key, *(const int *)value);
        break;
    case ECH_OPTION_REAL:
        ech__json_set_real(json, key, *(const double *)value);
        break;
    case ECH_OPTION_STRING:
        ech__json_set_string(json, key, *(const char *const *)value);
        break;
    case ECH_OPTION_CHOICE:
        set_choice(json, key, row, *(const int *)value);
        break;
    case ECH_OPTION_WORDS:
    case ECH_OPTION_REST:
        break;
    }
}

/* With what stands for a value that was not given. */
static ech__run_config resolved(const ech__run_config *config)
{
    ech__run_config c = *config;
    ech_pipeline_options *pipeline = &c.train.pipeline;
    c.data = c.data ? c.data : "synthetic";
    c.train.amp.loss_scale = ech__loss_scale(&c.train);
    c.lr_warmup_from = c.schedule.warmup_from;
    pipeline->placement = pipeline->placement ? pipeline->placement : "even";
    pipeline->micro_batches = pipeline->micro_batches ? pipeline->micro_batches : 1;
    return c;
}

void ech__options_record(const ech__run_config *config, ech_json **json)
{
    const ech__run_config c = resolved(config);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ech__run_option *row = &rows[i];
        if (row->field && counts(row->recorded, &c, 1))
            set_value(json, row->field, &row->option, (const char *)&c + row->option.offset, true);
    }
}

/* "off", or the number in the digits that give it back. */
static void set_or_off(ech_json **json, const char *key, double value)
{
    char text[32] = "off";
    if (value > 0)
        snprintf(text, sizeof text, "%.9g", value);
    ech__json_set_string(json, key, text);
}

static bool is_of_trainer(const ech__option *row)
{
    const size_t first = offsetof(ech__run_config, train);
    return row->offset >= first && row->offset < first + sizeof(ech_train_options);
}

static void set_term(ech_json **json, const ech__run_option *row, const void *value)
{
    const char *name = row->option.name;
    if (row->agree == ECH__GIVEN)
        ech__json_set_bool(json, name, *(const char *const *)value != NULL);
    else if (row->or_off)
        set_or_off(json, name, *(const double *)value);
    else
        set_value(json, name, &row->option, value, false);
}

void ech__options_terms(const ech__run_config *config, int world, ech__terms terms, ech_json **json)
{
    const size_t count = sizeof rows / sizeof *rows;
    const ech__run_config c = resolved(config);
    /* Texts come last: the hash of the data follows from other options, which say more about a
     * difference. */
    for (size_t i = 0; i < 2 * count; i++) {
        const ech__run_option *row = &rows[i % count];
        const bool kept = counts(row->same, &c, world), agreed = row->agree != ECH__DIFFER;
        const bool wanted = terms == ECH__TERMS_RESUME    ? kept
                            : terms == ECH__TERMS_TRAINER ? agreed && is_of_trainer(&row->option)
                                                          : kept || agreed;
        if (wanted && (row->option.kind == ECH_OPTION_STRING) == (i >= count))
            set_term(json, row, (const char *)&c + row->option.offset);
    }
}

void ech__options_print(ech_ctx *ctx, const ech_json *terms, const char *prefix, FILE *out)
{
    for (ech__json_iter it = ech__json_begin(terms); it.key; ech__json_next(&it)) {
        char *value = NULL;
        if (ech__json_dump(ctx, it.value, ECH_JSON_LINE, &value, NULL) == ECH_OK)
            fprintf(out, "%s%s: %s\n", prefix, it.key, value);
        free(value);
    }
}
