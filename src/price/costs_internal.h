/* The inside a store of costs, for costs.c and costs_file.c. */
#pragma once

#include "base/arena.h"
#include "base/file/json.h"
#include "price/costs.h"

typedef struct ech__cost_entry {
    const char *machine, *key;
    ech__step_cost cost;
    bool fresh; /* not in the file yet */
} ech__cost_entry;

typedef struct ech__machine_row {
    const char *name;
    ech__machine_costs costs;
    ech__machine_costs kept; /* as the file has them */
} ech__machine_row;

struct ech__costs {
    ech_ctx *ctx;
    ech__arena arena;
    const char *path;    /* NULL: in memory only */
    const char *machine; /* this one, or the one that exported the file */
    bool exported;
    ech__cost_entry *entries;
    size_t count, cap;
    ech__machine_row *machines;
    size_t nmachines, cap_machines;
};

/* NULL where there is none. */
ech__cost_entry *ech__costs_look_up(const ech__costs *costs, const char *machine, const char *key,
                                    int64_t batch, int beside);
/* Copies it, in place of what was known; it is not fresh. */
ech_status ech__costs_store(ech__costs *costs, const char *machine, const char *key,
                            const ech__step_cost *cost);
/* The row of a machine, made where there is none; NULL: no memory. */
ech__machine_row *ech__costs_row(ech__costs *costs, const char *name);
/* What a file may say: times that are numbers, and a step that takes some. */
ech_status ech__costs_check(ech_ctx *ctx, const ech__step_cost *cost);
/* Adds what the file at costs->path holds; one that is not there holds nothing. */
ech_status ech__costs_read(ech__costs *costs);
