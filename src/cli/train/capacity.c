#include "cli/train/capacity.h"
#include "base/format.h"
#include "cli/cli.h"
#include "cli/plan/plan.h"
#include "cli/train/show.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what is shown ---- */

void ech__show_need(const ech__need *need)
{
    printf("Planned memory for a batch of %lld:\n\n", (long long)need->batch);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        printf("  %-12s  %10s  %16lld bytes\n", ech__memory_name((ech__memory_kind)k),
               ech__format_bytes(need->memory[k]).s, (long long)need->memory[k]);
    printf("  %-12s  %10s  %16lld bytes\n", "total", ech__format_bytes(need->total).s,
           (long long)need->total);
}

void ech__show_largest(int64_t limit, int64_t largest)
{
    if (largest)
        printf("The largest batch that fits in %s is %lld.\n", ech__format_bytes(limit).s,
               (long long)largest);
    else
        printf("Not even a batch of 1 fits in %s.\n", ech__format_bytes(limit).s);
}

static void show_rows(const ech__capacity *c, const ech__need *needs, size_t count, int64_t largest)
{
    char model[64];
    printf("%s, %s, recompute %s: planned memory per device by kind\n\n%9s",
           ech__plan_model(&c->config, model, sizeof model),
           ech__optimizer_name(c->config.train.optimizer.kind),
           c->config.train.recompute ? "bn" : "off", "batch");
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        printf(" %11s", ech__memory_name((ech__memory_kind)k));
    printf(" %11s %9s\n", "total", "of limit");
    for (size_t i = 0; i < count; i++) {
        const ech__need *n = &needs[i];
        printf("%9lld", (long long)n->batch);
        if (!n->countable) {
            printf(" does not fit: its size overflows 64 bits\n");
            continue;
        }
        for (int k = 0; k < ECH__MEMORY_COUNT; k++)
            printf(" %11s", ech__format_bytes(n->memory[k]).s);
        printf(" %11s %7.1f %%  %s\n", ech__format_bytes(n->total).s,
               100 * (double)n->total / (double)c->limit, n->fits ? "fits" : "does not fit");
    }
    putchar('\n');
    ech__show_largest(c->limit, largest);
}

/* ---- JSON ---- */

void ech__need_json(ech_json **json, const ech__need *need)
{
    ECH__JSON_SET(json, ech__int("batch", need->batch), ech__bool("fits", need->fits));
    if (!need->countable)
        return;
    ech_json *kinds = ech__json_object();
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        ech__json_set_int(&kinds, ech__memory_name((ech__memory_kind)k), need->memory[k]);
    ECH__JSON_SET(json, ech__int("planned_memory_bytes", need->total),
                  ech__member("memory_by_kind", kinds));
}

static ech_status print_json(const ech__capacity *c, const ech__need *needs, size_t count,
                             int64_t largest)
{
    char model[64];
    ech_json *rows = ech__json_array();
    for (size_t i = 0; i < count; i++) {
        ech_json *row = ech__json_object();
        ech__need_json(&row, &needs[i]);
        ech__json_append(&rows, row);
    }
    ech_json *json = ECH__JSON(
        ech__string("model", ech__plan_model(&c->config, model, sizeof model)),
        ech__string("optimizer", ech__optimizer_name(c->config.train.optimizer.kind)),
        ech__bool("recompute", c->config.train.recompute), ech__int("device_memory", c->limit),
        ech__int("largest_batch", largest), ech__member("rows", rows));
    return ech__cli_json(c->ctx, json);
}

/* ---- echelon train --memory ---- */

static ech_status too_large(const ech__capacity *c, const ech__need *need)
{
    if (!need->countable)
        return ech__fail(c->ctx, ECH_E_LIMIT,
                         "a batch of %lld does not fit in %s: its size overflows 64 bits",
                         (long long)need->batch, ech__format_bytes(c->limit).s);
    return ech__fail(c->ctx, ECH_E_LIMIT,
                     "a batch of %lld needs %lld bytes; the device's limit is %lld bytes",
                     (long long)need->batch, (long long)need->total, (long long)c->limit);
}

/* With layers on several devices, the table above is for the device that needs the most. */
static ech_status show_devices(const ech__capacity *c)
{
    ech_trainer *trainer;
    ECH_TRY(ech__capacity_plan(c, c->batch, &trainer));
    puts("\nThis is the device that needs the most. All devices:\n");
    ech__show_memory_of_devices(trainer);
    ech_trainer_destroy(trainer);
    return ECH_OK;
}

ech_status ech__cli_memory(ech_ctx *ctx, const ech__run_config *config, int devices)
{
    ech__capacity c;
    ech__need need;
    int64_t largest;
    ECH_TRY(ech__capacity_init(ctx, config, devices, &c));
    ECH_TRY(ech__capacity_need(&c, c.batch, &need));
    ECH_TRY(ech__capacity_largest(&c, &largest));
    if (config->json) {
        ECH_TRY(print_json(&c, &need, 1, largest));
    } else {
        if (need.countable)
            ech__show_need(&need);
        if (need.countable && config->train.pipeline.devices)
            ECH_TRY(show_devices(&c));
        putchar('\n');
        ech__show_largest(c.limit, largest);
        if (config->train.dp.devices)
            puts("This is device 0, which also computes the loss of the whole batch and runs the "
                 "optimizer.");
    }
    return need.fits ? ECH_OK : too_large(&c, &need);
}

/* ---- echelon plan --memory LIST ---- */

enum { MOST_BATCHES = 64, LARGEST_BATCH = 1 << 30 };

int ech__cli_memory_list(ech_ctx *ctx, const ech__command *command, const ech__run_config *config,
                         const char *list, bool json)
{
    static const ech__option_numbers option = {"memory", LARGEST_BATCH, MOST_BATCHES};
    ech__capacity c;
    ech__need needs[MOST_BATCHES];
    int64_t largest, batches[MOST_BATCHES];
    size_t count;
    if (ech__option_read_numbers(ctx, &option, list, batches, &count) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    ECH_TRY(ech__capacity_init(ctx, config, 1, &c));
    for (size_t i = 0; i < count; i++)
        ECH_TRY(ech__capacity_need(&c, batches[i], &needs[i]));
    ECH_TRY(ech__capacity_largest(&c, &largest));
    if (json)
        return print_json(&c, needs, count, largest);
    show_rows(&c, needs, count, largest);
    return ECH_OK;
}
