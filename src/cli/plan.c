/* echelon plan: measures what a step costs on one device where that is not known yet, and prices it on others. */
#include "cli/capacity.h"
#include "cli/plan_options.h"
#include "cli/ranks.h"
#include "device/device.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ech__plan_args args;
typedef ech__plan_counts counts;

/* ---- measuring, as ranks ---- */

static ech_status measure(ech__comm *comm, const args *a)
{
    ech__costs *costs;
    const ech__run_config config = ech__training_config(&a->training);
    ECH_TRY(ech__costs_open(comm->ctx, a->costs_file, NULL, &costs));
    ech_status status = ECH_OK;
    if (a->measure_link)
        status = ech__costs_measure_link(costs, comm);
    if (status == ECH_OK && a->measure_copies)
        status = ech__costs_measure_copies(comm->ctx, costs);
    if (status == ECH_OK && a->measure_batch) {
        const ech__run_config single =
            ech__pricing_single(&config, a->training.parallel, a->measure_batch);
        status = ech__costs_measure(comm->ctx, costs, &single, comm, a->seconds);
    }
    if (status == ECH_OK && comm->rank == 0)
        status = ech__costs_save(costs);
    ech__costs_close(costs);
    return status;
}

static int measure_as_rank(ech_ctx *ctx, const ech__command *command, const args *a)
{
    ech__comm *comm;
    if (ech__comm_open(ctx, &(ech__comm_options){.backend = ECH__BACKEND_SHM}, &comm) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    const int code =
        measure(comm, a) < 0 ? ech__cli_fail_rank(comm, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    ech__comm_close(comm);
    return code;
}

/* The command line of such ranks: that of this command and what they are to measure. */
static int launch(ech_ctx *ctx, const ech__command *command, char **argv, const char *costs_file,
                  int ranks, const char *what)
{
    char *all[ECH_OPTION_MAX_ROWS * 2 + 8], file[4200], job[64];
    size_t n = 0;
    for (; argv[n]; n++) {
        if (n + 4 > sizeof all / sizeof *all) {
            ech__fail(ctx, ECH_E_LIMIT, "more than %zu arguments", n);
            return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        }
        all[n] = argv[n];
    }
    snprintf(file, sizeof file, "--costs-file=%s", costs_file);
    snprintf(job, sizeof job, "%s", what);
    all[n++] = file;
    all[n++] = job;
    all[n] = NULL;
    return ech__cli_launch_helpers(ctx, command, ranks, all);
}

/* ---- what must be measured ---- */

enum { MOST_BATCHES = 6, ROOM = ECH__PLAN_MOST_ROWS + 16 };
static const double LONGEST_STEP_S =
    3; /* that is still worth measuring; longer ones are computed */

typedef struct work {
    ech_ctx *ctx;
    const ech__command *command;
    char **argv;
    const args *a;
    const char *file;
    ech__costs_key key;
    int beside;
} work;

/* The batches per device that are asked about; where they are many, the least, the largest and some between. One that is
 * clearly smaller shows what does not depend on the batch. */
static size_t wanted_batches(const args *a, const ech__load *load, const counts *devices,
                             int64_t *out)
{
    const ech__run_config config = ech__training_config(&a->training);
    size_t count = 0;
    out[count++] = ech__load_of(load, 1);
    for (size_t i = 0; i < devices->count; i++)
        out[count++] = ech__strategy_batch(a->training.parallel, &config, devices->n[i],
                                           ech__load_of(load, devices->n[i]));
    if (a->advise && load->batch) {
        out[count++] = load->batch * 2;
        out[count++] = load->batch * 4;
        out[count++] = load->batch / 2 > 0 ? load->batch / 2 : 1;
    }
    count = ech__plan_distinct(out, count);
    if (count < MOST_BATCHES)
        out[count++] = out[0] / 8 > 0 ? out[0] / 8 : 1;
    count = ech__plan_distinct(out, count);
    if (count <= MOST_BATCHES)
        return count;
    for (size_t i = 0; i < MOST_BATCHES; i++)
        out[i] = out[i * (count - 1) / (MOST_BATCHES - 1)];
    return ech__plan_distinct(out, MOST_BATCHES);
}

/* Costs that are there already, or a guess from them whether the next batch is too much. */
static bool too_much(const ech__costs *costs, const work *w, int64_t batch, int copies)
{
    int64_t known[64];
    const int count = ech__costs_batches(costs, w->key.s, 1, known, 64);
    const ech__step_cost *below = NULL;
    for (int i = 0; i < count && known[i] <= batch; i++)
        below = ech__costs_find(costs, w->key.s, known[i], 1);
    if (!below)
        return false;
    const double factor = (double)batch / (double)below->batch;
    double bytes = 0;
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        bytes += (double)below->memory[k];
    if (below->step_s * factor > LONGEST_STEP_S && below->batch != batch)
        return true;
    return bytes * factor * copies > 0.9 * (double)ech__machine_available();
}

static int measure_batch(const work *w, int64_t batch, int copies)
{
    char what[64];
    ech__costs *costs;
    if (ech__costs_open(w->ctx, w->file, NULL, &costs) < 0)
        return ech__cli_fail(w->ctx, w->command, ECH__EXIT_FAILED);
    const bool known = ech__costs_find(costs, w->key.s, batch, copies) != NULL;
    const bool skip = (known && !w->a->measure) || too_much(costs, w, batch, copies);
    ech__costs_close(costs);
    if (skip)
        return ECH__EXIT_GOOD;
    fprintf(stderr, "echelon plan: measuring a step of %lld samples on one device%s\n",
            (long long)batch, copies > 1 ? ", beside others" : "");
    snprintf(what, sizeof what, "--measure-batch=%lld", (long long)batch);
    return launch(w->ctx, w->command, w->argv, w->file, copies, what);
}

static int measure_machine(const work *w, bool given_links)
{
    ech__costs *costs;
    if (ech__costs_open(w->ctx, w->file, NULL, &costs) < 0)
        return ech__cli_fail(w->ctx, w->command, ECH__EXIT_FAILED);
    const ech__machine_costs m = *ech__costs_machine(costs);
    ech__costs_close(costs);
    int code = ECH__EXIT_GOOD;
    if (!given_links && (m.allreduce.count == 0 || w->a->measure)) {
        fprintf(stderr, "echelon plan: measuring the exchange between two devices\n");
        code = launch(w->ctx, w->command, w->argv, w->file, 2, "--measure-link");
    }
    const ech__training_args *t = &w->a->training;
    const bool copies = t->parallel != ECH__STRATEGY_DDP || t->accum > 1 || t->grad_dtype;
    if (code == ECH__EXIT_GOOD && copies && (m.copy.count == 0 || w->a->measure)) {
        fprintf(stderr, "echelon plan: measuring copies between two devices\n");
        code = launch(w->ctx, w->command, w->argv, w->file, 1, "--measure-copies");
    }
    return code;
}

static int measure_all(const work *w, const ech__load *load, const counts *devices,
                       bool given_links)
{
    int64_t *batches = malloc(ROOM * sizeof *batches);
    if (!batches) {
        ech__fail(w->ctx, ECH_E_NOMEM, "no memory for %d batches", ROOM);
        return ech__cli_fail(w->ctx, w->command, ECH__EXIT_FAILED);
    }
    const size_t count = wanted_batches(w->a, load, devices, batches);
    int code = measure_machine(w, given_links);
    for (size_t i = 0; i < count && code == ECH__EXIT_GOOD; i++) {
        code = measure_batch(w, batches[i], 1);
        if (code == ECH__EXIT_GOOD && w->beside > 1)
            code = measure_batch(w, batches[i], w->beside);
    }
    free(batches);
    return code;
}

/* ---- prices ---- */

static ech_status price_all(ech_ctx *ctx, const args *a, const counts *devices, ech__plan_result *r)
{
    int64_t most = 1;
    r->rows = calloc(devices->count + 1, sizeof *r->rows);
    if (!r->rows)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for %zu prices", devices->count);
    r->count = devices->count;
    for (size_t i = 0; i < devices->count; i++) {
        ECH_TRY(ech__scale(r->pricing, &r->load, devices->n[i], &r->rows[i]));
        most = devices->n[i] > most ? devices->n[i] : most;
    }
    if (!ech__strategy_cuts_model(r->strategy))
        ECH_TRY(ech__find_break_even(r->pricing, &r->load, &r->half));
    if (a->advise)
        ECH_TRY(ech__advise(r->pricing, &r->load, most, a->efficiency, a->training.device_memory,
                            &r->advice));
    return ECH_OK;
}

static ech_status show(ech_ctx *ctx, const args *a, const ech__plan_result *r)
{
    if (a->plot)
        ECH_TRY(ech__plan_plot(ctx, r, a->plot));
    if (!a->json) {
        ech__plan_show(r);
        return ECH_OK;
    }
    ech_json *json = ech__plan_json(r);
    const ech_status status = ech__json_print(ctx, json, ECH_JSON_INDENT, stdout);
    ech__json_destroy(json);
    return status;
}

/* From the plan alone: what one device needs, and the most that it could take. */
static ech_status find_capacity(ech_ctx *ctx, const args *a, int64_t batch, ech__plan_result *r)
{
    ech__capacity capacity;
    ech__run_config config = ech__training_config(&a->training);
    config.train.device_memory = a->training.device_memory;
    ECH_TRY(ech__capacity_init(ctx, &config, 1, &capacity));
    r->limit = capacity.limit;
    ECH_TRY(ech__capacity_need(&capacity, batch, &r->need));
    return ech__capacity_largest(&capacity, &r->largest);
}

static ech_status price(ech_ctx *ctx, const work *w, const ech__load *load, const counts *devices,
                        const ech__cluster *cluster)
{
    const args *a = w->a;
    const ech__run_config config = ech__training_config(&a->training);
    ech__costs *costs;
    ECH_TRY(ech__costs_open(ctx, w->file, NULL, &costs));
    ech__plan_result r = {.config = &config,
                          .strategy = a->training.parallel,
                          .load = *load,
                          .given_links = cluster != NULL,
                          .links = a->training.cluster ? a->training.cluster : a->training.link,
                          .costs = w->file,
                          .advised = a->advise,
                          .efficiency = a->efficiency};
    const ech__pricing_options o = {.config = &config,
                                    .strategy = r.strategy,
                                    .costs = costs,
                                    .cluster = cluster,
                                    .algorithm = a->training.algorithm,
                                    .beside = w->beside};
    ech_status status = ech__pricing_create(ctx, &o, &r.pricing);
    if (status == ECH_OK && r.strategy == ECH__STRATEGY_DDP)
        status = find_capacity(ctx, a, ech__load_of(load, 1), &r);
    if (status == ECH_OK) {
        r.beside = ech__pricing_beside(r.pricing);
        status = price_all(ctx, a, devices, &r);
    }
    if (status == ECH_OK)
        status = show(ctx, a, &r);
    free(r.rows);
    ech__pricing_destroy(r.pricing);
    ech__costs_close(costs);
    return status;
}

/* ---- the command ---- */

/* Ranks hand their costs over in a file; without a cache directory it is one for this run only. */
static ech_status find_file(ech_ctx *ctx, const args *a, char *out, size_t bytes, bool *temporary)
{
    *temporary = false;
    if (a->costs_file) {
        if ((size_t)snprintf(out, bytes, "%s", a->costs_file) >= bytes)
            return ech__fail(ctx, ECH_E_INVALID, "--costs-file: the path is too long");
        return ECH_OK;
    }
    ECH_TRY(ech__costs_default_path(ctx, out, bytes));
    if (*out)
        return ECH_OK;
    snprintf(out, bytes, "/tmp/echelon-costs-XXXXXX");
    const int fd = mkstemp(out);
    if (fd < 0)
        return ech__fail(ctx, ECH_E_IO, "there is no place to keep costs: give --costs-file");
    close(fd);
    unlink(out); /* an empty file is no file of costs */
    *temporary = true;
    return ECH_OK;
}

static int plan(ech_ctx *ctx, const ech__command *command, char **argv, const args *a,
                const counts *devices)
{
    const ech__training_args *t = &a->training;
    /* Of a micro-step: the price is of as many as the step has. */
    ech__load load = {.batch = t->global_batch ? 0
                               : t->batch      ? t->batch
                                               : 64,
                      .global = t->global_batch / t->accum};
    if (ech__strategy_cuts_model(t->parallel)) /* the batch is that of all devices */
        load = (ech__load){.global = t->global_batch ? t->global_batch : load.batch};
    ech__cluster cluster;
    if (ech__plan_check(ctx, a, &load, devices) < 0 ||
        ech__plan_links(ctx, a, devices, &cluster) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    char file[4096];
    bool temporary;
    if (find_file(ctx, a, file, sizeof file, &temporary) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    const bool given = t->link || t->cluster;
    const ech__run_config config = ech__training_config(t);
    const ech__run_config single = ech__pricing_single(&config, t->parallel, 1);
    const int cores = ech__device_cores() / (int)t->threads;
    const work w = {.ctx = ctx,
                    .command = command,
                    .argv = argv,
                    .a = a,
                    .file = file,
                    .key = ech__costs_key_of(&single),
                    .beside = given || cores < 2 ? 1 : cores};
    int code = measure_all(&w, &load, devices, given);
    if (code == ECH__EXIT_GOOD && price(ctx, &w, &load, devices, given ? &cluster : NULL) < 0)
        code = ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    if (temporary)
        unlink(file);
    return code;
}

static int fit(ech_ctx *ctx, const ech__command *command, const args *a)
{
    const ech__training_args *t = &a->training;
    ech__run_config config = ech__training_config(t);
    config.train.device_memory = t->device_memory;
    const bool other = t->batch || t->global_batch || a->advise || a->plot || a->measure;
    if (other || t->parallel != ECH__STRATEGY_DDP) {
        ech__fail(ctx, ECH_E_INVALID, "--fit has the batches and measures nothing: %s",
                  other
                      ? "--batch-size, --global-batch, --advise, --plot and --measure have nothing "
                        "to do"
                      : "ask echelon train --parallel dp --fit about the devices of DataParallel");
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    }
    return ech__cli_fit_list(ctx, command, &config, a->fit, a->json);
}

int ech__run_plan(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a = {0};
    ech__option_result result;
    int code;
    if (!ech__cli_parse(ctx, command, argv, &a, &result, &code))
        return code;
    if (a.measure_batch || a.measure_link || a.measure_copies)
        return measure_as_rank(ctx, command, &a);
    if (a.fit)
        return fit(ctx, command, &a);
    counts *devices = malloc(sizeof *devices);
    if (!devices) {
        ech__fail(ctx, ECH_E_NOMEM, "no memory for the numbers of devices");
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    }
    if (ech__plan_devices(ctx, a.devices, devices) < 0)
        code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    else
        code = plan(ctx, command, argv, &a, devices);
    free(devices);
    return code;
}
