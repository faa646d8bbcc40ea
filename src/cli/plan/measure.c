/* What echelon plan measures: ranks of this program do it one after the other, and hand it over in a file. */
#include "base/system/available.h"
#include "base/file/dir.h"
#include "cli/plan/plan.h"
#include "cli/train/ranks.h"
#include "device/device.h"
#include "predict/capacity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ech__plan_args args;
typedef ech__plan_counts counts;

/* ---- as ranks ---- */

static ech_status measure(ech__comm *comm, const args *a)
{
    ech__costs *costs;
    const ech__run_config config = ech__plan_config(a);
    ECH_TRY(ech__costs_open(comm->ctx, a->measure_file, NULL, &costs));
    ech_status status = ECH_OK;
    if (a->measure_link)
        status = ech__costs_measure_link(costs, comm);
    if (status == ECH_OK && a->measure_copies)
        status = ech__costs_measure_copies(comm->ctx, costs);
    if (status == ECH_OK && a->measure_batch) {
        const ech__run_config single =
            ech__pricing_single(&config, a->run.parallel, a->measure_batch);
        status = ech__costs_measure(comm->ctx, costs, &single, comm, a->seconds);
    }
    if (status == ECH_OK && comm->rank == 0)
        status = ech__costs_save(costs);
    ech__costs_close(costs);
    return status;
}

int ech__plan_measure_as_rank(ech_ctx *ctx, const ech__command *command, const args *a)
{
    ech__comm *comm;
    ECH_TRY(ech__comm_open(ctx, &(ech__comm_options){.backend = ECH__BACKEND_SHM}, &comm));
    const int code =
        measure(comm, a) < 0 ? ech__cli_fail_rank(comm, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    ech__comm_close(comm);
    return code;
}

/* ---- starting them ---- */

typedef struct work {
    const ech__plan_measuring *m;
    ech__costs *costs;
    char dir[1024], file[1056]; /* private, for what the ranks have measured */
    bool not_kept;              /* and that was said */
} work;

/* At once, so that an interrupt loses little. What cannot be kept is measured again next time. */
static void keep(work *w)
{
    ech_ctx *ctx = w->m->ctx;
    if (w->not_kept || ech__costs_save(w->costs) == ECH_OK)
        return;
    w->not_kept = true;
    ech__log(ctx, "costs are not kept: %s", ctx->error);
    ctx->error[0] = 0;
}

/* The command line of such ranks is that of this command and what they are to measure. */
static int launch(work *w, int ranks, const char *what)
{
    const ech__plan_measuring *m = w->m;
    char *all[ECH_OPTION_MAX_ROWS * 2 + 8], file[1100], job[64];
    size_t n = 0;
    for (; m->argv[n]; n++) {
        if (n + 4 > sizeof all / sizeof *all) {
            ech__fail(m->ctx, ECH_E_LIMIT, "more than %zu arguments", n);
            return ech__cli_fail(m->ctx, m->command, ECH__EXIT_USAGE);
        }
        all[n] = m->argv[n];
    }
    snprintf(file, sizeof file, "--measure-file=%s", w->file);
    snprintf(job, sizeof job, "%s", what);
    all[n++] = file;
    all[n++] = job;
    all[n] = NULL;
    const int code = ech__cli_launch(m->ctx, m->command, ranks, 0, all, true);
    const ech_status status = code ? ECH_OK : ech__costs_add_file(w->costs, w->file);
    unlink(w->file);
    keep(w);
    return status < 0 ? status : code;
}

/* ---- what must be measured ---- */

enum { MOST_BATCHES = 6, CAPACITY = ECH__PLAN_MOST_ROWS + 16 };
static const double MOST_SECONDS = 60; /* of a measurement; what takes longer is computed */

/* The batches per device that are asked about; where they are many, the least, the largest and some between. One
 * that is clearly smaller shows what does not depend on the batch. */
static size_t wanted_batches(const args *a, int64_t *out)
{
    const ech__load *load = &a->load;
    const counts *devices = &a->counts;
    const ech__run_config config = ech__plan_config(a);
    size_t count = 0;
    out[count++] = ech__load_of(load, 1);
    for (size_t i = 0; i < devices->count; i++)
        out[count++] = ech__strategy_batch(a->run.parallel, &config, devices->n[i],
                                           ech__load_of(load, devices->n[i]));
    if (ech__strategy_row_of(a->run.parallel)->first_has_loss)
        out[count++] = ech__load_of(load, devices->n[devices->count - 1]);
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

static bool fits(const work *w, int64_t batch, int copies)
{
    const args *a = w->m->args;
    const ech__run_config config = ech__plan_config(a);
    const ech__run_config single = ech__pricing_single(&config, a->run.parallel, batch);
    ech__capacity capacity;
    ech__need need = {.countable = false};
    if (ech__capacity_init(w->m->ctx, &single, 1, &capacity) < 0 ||
        ech__capacity_need(&capacity, batch, &need) < 0)
        w->m->ctx->error[0] = 0; /* what cannot be planned cannot be measured */
    return need.countable && (double)need.total * copies < 0.9 * (double)ech__machine_available();
}

static bool fits_alone(void *user, int64_t batch)
{
    return fits(user, batch, 1);
}

static int measure_batch(work *w, int64_t batch, int copies)
{
    char what[64];
    fprintf(stderr, "echelon plan: measuring a step of %lld samples on one device%s\n",
            (long long)batch, copies > 1 ? " while other devices run too" : "");
    snprintf(what, sizeof what, "--measure-batch=%lld", (long long)batch);
    return launch(w, copies, what);
}

/* The same batch on all cores at once. */
static int measure_beside(work *w, int64_t batch)
{
    const ech__plan_measuring *m = w->m;
    const ech__step_cost *alone = ech__costs_find(w->costs, m->key, batch, 1);
    if (m->beside < 2 || !alone || ech__costs_find(w->costs, m->key, batch, m->beside) ||
        ech__costs_measuring(m->args->seconds, alone->step_s) > MOST_SECONDS ||
        !fits(w, batch, m->beside))
        return ECH__EXIT_GOOD;
    return measure_batch(w, batch, m->beside);
}

/* The batch itself or, where that takes too long, others on the way to it. */
static int measure_towards(work *w, int64_t batch, ech__costs_budget *budget)
{
    const ech__plan_measuring *m = w->m;
    int code = ECH__EXIT_GOOD;
    int64_t next = 0;
    while (code == ECH__EXIT_GOOD &&
           (next = ech__costs_next_batch(w->costs, m->key, batch, budget)) != 0) {
        code = measure_batch(w, next, 1);
        if (code == ECH__EXIT_GOOD)
            code = measure_beside(w, next);
    }
    return code == ECH__EXIT_GOOD ? measure_beside(w, batch) : code;
}

static int measure_machine(work *w)
{
    const ech__plan_measuring *m = w->m;
    const ech__machine_costs known = *ech__costs_machine(w->costs);
    int code = ECH__EXIT_GOOD;
    if (!m->given_links && (known.allreduce.count == 0 || m->args->measure)) {
        fprintf(stderr, "echelon plan: measuring the exchange between two devices\n");
        code = launch(w, 2, "--measure-link");
    }
    const ech__run_config *t = &m->args->run;
    const bool copies = !ech__strategy_row_of(t->parallel)->has_ranks || t->train.ddp.grad_dtype;
    if (code == ECH__EXIT_GOOD && copies && (known.copy.count == 0 || m->args->measure)) {
        fprintf(stderr, "echelon plan: measuring copies between two devices\n");
        code = launch(w, 1, "--measure-copies");
    }
    return code;
}

static int measure_all(work *w)
{
    const ech__plan_measuring *m = w->m;
    const ech__run_config config = ech__plan_config(m->args);
    ech__costs_budget budget = {
        .seconds = m->args->seconds, .most_s = MOST_SECONDS, .fits = fits_alone, .user = w};
    ECH_TRY(ech__costs_guess(m->ctx, &config, &budget));
    int64_t *batches = malloc(CAPACITY * sizeof *batches);
    if (!batches)
        return ech__no_memory(m->ctx, "%d batches", CAPACITY);
    const size_t count = wanted_batches(m->args, batches);
    if (m->args->measure)
        ech__costs_forget(w->costs, m->key);
    int code = measure_machine(w);
    for (size_t i = 0; i < count && code == ECH__EXIT_GOOD; i++)
        code = measure_towards(w, batches[i], &budget);
    free(batches);
    return code;
}

int ech__plan_measure(const ech__plan_measuring *m, ech__costs *costs)
{
    const char *temp = getenv("TMPDIR");
    work w = {.m = m, .costs = costs};
    const int length =
        snprintf(w.dir, sizeof w.dir, "%s/echelon-plan-XXXXXX", temp && *temp ? temp : "/tmp");
    if ((size_t)length >= sizeof w.dir || !mkdtemp(w.dir))
        return ech__fail(m->ctx, ECH_E_IO, "%.200s: cannot create a directory: %s", w.dir,
                         strerror(errno));
    snprintf(w.file, sizeof w.file, "%s/costs.json", w.dir);
    const int code = measure_all(&w);
    ech__dir_remove(NULL, w.dir);
    return code;
}
