#include "train/record/trace.h"
#include "base/file/json.h"
#include "train/record/totals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE, EXCHANGE = 1000 }; /* threads of a process: its devices, and what is between them */

struct ech__trace {
    ech_ctx *ctx;
    char *path;   /* NULL: rank 0 writes */
    FILE *file;   /* NULL likewise */
    FILE *events; /* of the step in progress, one a line, into text */
    char *text;
    size_t bytes;
    ech_status status; /* first failure of the step in progress */
    int64_t origin_ns; /* time 0, by rank 0's clock; 0: not known yet */
    int64_t offset_ns; /* of this rank's clock */
    int rank;
    int arrows; /* so far */
    bool named, has_event;
    int error; /* errno of the first write that failed */
};

ech_status ech__trace_open(ech_ctx *ctx, const char *path, ech__trace **out)
{
    ech__trace *t = *out = ech__new(ctx, sizeof *t);
    if (!t)
        return ech__no_memory(ctx, "a trace");
    t->ctx = ctx;
    if (!path)
        return ECH_OK;
    t->path = strdup(path);
    t->file = t->path ? fopen(path, "we") : NULL;
    if (t->file)
        return ECH_OK;
    const ech_status status =
        ech__fail(ctx, ECH_E_IO, "%s cannot be written: %s", path, strerror(errno));
    ech__trace_close(t);
    *out = NULL;
    return status;
}

/* ---- one event ---- */

static void add_event(ech__trace *t, ech_json *event)
{
    char *line = NULL;
    if (t->status == ECH_OK)
        t->status = ech__json_dump(t->ctx, event, ECH_JSON_LINE, &line, NULL);
    ech__json_destroy(event);
    if (line)
        fprintf(t->events, "%s\n", line);
    free(line);
}

static ech_json *new_event(const ech__trace *t, const char *name, const char *kind, int thread)
{
    return ECH__JSON(ech__string("name", name), ech__string("ph", kind), ech__int("pid", t->rank),
                     ech__int("tid", thread));
}

static void add_name(ech__trace *t, const char *what, int thread, const char *name)
{
    ech_json *args = ech__json_object(), *event = new_event(t, what, "M", thread);
    ech__json_set_string(&args, "name", name);
    ech__json_set(&event, "args", args);
    add_event(t, event);
}

/* A bar from start to end, by rank 0's clock. Takes args over, which may be NULL. */
static void add_span(ech__trace *t, const char *name, const char *category, int thread,
                     ech__span span, ech_json *args)
{
    ech_json *event = new_event(t, name, "X", thread);
    ECH__JSON_SET(&event, ech__string("cat", category),
                  ech__real("ts", (double)(span.start_ns - t->origin_ns) * 1e-3),
                  ech__real("dur", (double)(span.end_ns - span.start_ns) * 1e-3));
    if (args)
        ech__json_set(&event, "args", args);
    add_event(t, event);
}

/* ---- a step ---- */

static bool begin(ech__trace *t, const ech_trainer *trainer)
{
    if (t->events)
        return true;
    t->rank = ech__trainer_rank(trainer);
    const ech__comm *comm = ech__trainer_all_ranks(trainer);
    t->offset_ns = comm ? comm->clock_offset_ns : 0;
    if (!t->origin_ns) /* near enough to rank 0's: all begin their first step together */
        t->origin_ns = trainer->report.start_ns + t->offset_ns;
    t->events = open_memstream(&t->text, &t->bytes);
    if (!t->events) {
        t->status = ech__no_memory(t->ctx, "the trace of a step");
        return false;
    }
    if (t->named)
        return true;
    char name[32];
    snprintf(name, sizeof name, "rank %d", t->rank);
    add_name(t, "process_name", DEVICE, name);
    const int devices = ech__trainer_devices(trainer);
    const bool one_model = ech__trainer_model_group(trainer) != NULL; /* of all ranks together */
    const int first = one_model ? 0 : t->rank * devices;
    for (int d = 0; d < devices; d++) {
        if (one_model && d != t->rank)
            continue;
        snprintf(name, sizeof name, "device %d", first + d);
        add_name(t, "thread_name", DEVICE + d, name);
    }
    if (trainer->ranks)
        add_name(t, "thread_name", EXCHANGE, "gradients under way");
    t->named = true;
    return true;
}

void ech__trace_bar(ech__trace *t, const char *name, const char *category, int device,
                    ech__span span, ech_json *args)
{
    add_span(t, name, category, DEVICE + device,
             (ech__span){span.start_ns + t->offset_ns, span.end_ns + t->offset_ns}, args);
}

void ech__trace_arrow(ech__trace *t, const char *name, int from, int64_t from_ns, int to,
                      int64_t to_ns)
{
    t->arrows++;
    for (int end = 0; end < 2; end++) {
        ech_json *arrow = new_event(t, name, end ? "f" : "s", DEVICE + (end ? to : from));
        const int64_t at = (end ? to_ns : from_ns) + t->offset_ns;
        ECH__JSON_SET(&arrow, ech__string("cat", name), ech__int("id", t->arrows),
                      ech__real("ts", (double)(at - t->origin_ns) * 1e-3));
        if (end)
            ech__json_set_string(&arrow, "bp", "e");
        add_event(t, arrow);
    }
}

void ech__trace_plan(ech__trace *t, const ech_trainer *trainer, const ech__plan *plan,
                     const ech__exec *exec, int device)
{
    const ech__span *spans = ech__exec_spans(exec);
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        /* What a micro-step leaves to the last one has the times of an earlier step. */
        if (ech__plan_is_idle(plan, instr) || spans[n].start_ns < trainer->report.start_ns)
            continue;
        char name[128];
        ech_json *args = ECH__JSON(ech__string("kernel", instr->choice.name));
        snprintf(name, sizeof name, "%s %s", ech__op_name(instr->node->op), instr->node->name);
        ech__trace_bar(t, name, ech__phase_name(instr->node->phase), device, spans[n], args);
    }
}

void ech__trace_ops(ech__trace *t, const ech_trainer *trainer, const ech__variant *variant)
{
    if (t && begin(t, trainer))
        ech__totals_of(trainer)->trace(t, trainer, variant);
}

/* On its way a bucket waits until it is ready everywhere, and then is reduced. */
static void add_buckets(ech__trace *t, const ech_trainer *trainer)
{
    for (int b = 0; trainer->ranks && b < trainer->reports.nbuckets; b++) {
        const ech__coll_times *times = ech__reports_bucket(&trainer->reports, t->rank, b);
        char name[48];
        ech_json *args = ECH__JSON(ech__int("bytes", trainer->ranks->buckets[b].bytes));
        snprintf(name, sizeof name, "bucket %d waits", b);
        if (times->start_ns > times->ready_ns)
            add_span(t, name, "wait", EXCHANGE, (ech__span){times->ready_ns, times->start_ns},
                     NULL);
        snprintf(name, sizeof name, "bucket %d allreduce", b);
        add_span(t, name, "allreduce", EXCHANGE, (ech__span){times->start_ns, times->done_ns},
                 args);
    }
}

/* Lines become elements of the array. */
static void write_lines(ech__trace *t, char *text)
{
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (fprintf(t->file, "%s%s", t->has_event ? ",\n" : "[\n", line) < 0 && !t->error)
            t->error = errno;
        t->has_event = true;
    }
}

static ech_status write_step(ech__trace *t, const ech_trainer *trainer)
{
    ech__comm *comm = ech__trainer_all_ranks(trainer);
    if (!comm) {
        write_lines(t, t->text);
        return ECH_OK;
    }
    const int world = comm->world;
    char **texts = calloc((size_t)world, sizeof *texts);
    if (!texts)
        return ech__no_memory(t->ctx, "the traces of %d ranks", world);
    const ech_status status = ech__comm_gather_texts(comm, t->text, texts);
    for (int rank = 0; rank < world; rank++) {
        if (status == ECH_OK && t->file && texts[rank])
            write_lines(t, texts[rank]);
        free(texts[rank]);
    }
    free(texts);
    return status;
}

ech_status ech__trace_step(ech__trace *t, const ech_trainer *trainer, const ech__run_step *step)
{
    if (!t)
        return ECH_OK;
    char name[32];
    const int64_t start = trainer->report.start_ns + t->offset_ns;
    if (begin(t, trainer)) {
        ech_json *args = ECH__JSON(ech__real("loss", step->result.loss), ech__real("lr", step->lr));
        snprintf(name, sizeof name, "step %lld", (long long)step->step);
        add_span(t, name, "step", DEVICE,
                 (ech__span){start, start + (int64_t)(step->result.time_s * 1e9)}, args);
        add_buckets(t, trainer);
        if (fclose(t->events) != 0 && t->status == ECH_OK)
            t->status = ech__no_memory(t->ctx, "the trace of a step");
        t->events = NULL;
    }
    if (t->status == ECH_OK)
        t->status = write_step(t, trainer);
    free(t->text);
    t->text = NULL;
    return t->status;
}

ech_status ech__trace_close(ech__trace *t)
{
    if (!t)
        return ECH_OK;
    ech_status status = ECH_OK;
    if (t->events)
        fclose(t->events);
    free(t->text);
    if (t->file) {
        if (t->has_event && fputs("\n]\n", t->file) < 0 && !t->error)
            t->error = errno;
        if (fclose(t->file) != 0 && !t->error)
            t->error = errno;
        if (t->error)
            status = ech__fail(t->ctx, ECH_E_IO, "%s cannot be written: %s", t->path,
                               strerror(t->error));
    }
    free(t->path);
    ech__delete(t->ctx, t, sizeof *t);
    return status;
}
