/* What a card's runs calls: it asks for runs, and adds them to its study. */
#include "lab/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct ech__lab_runs {
    ech__lab_study *study;
    ech__lab *lab;
    size_t added;
    ech_status status; /* the first error; its message is in the lab's context */
    ech__lab_facts
        *facts; /* of runs that were over when this round began; made when first asked for */
    size_t facts_count; /* tasks that it was made of */
    /* An expression that could not be computed. It may name a run that is asked for later, so this
     * is an error only in a round in which nothing new is asked for. */
    const char *doubt;
};

enum { WORDS = 4096, EXPRESSION = ECH__LAB_EXPR_MAX + 1 };

/* ---- tasks ---- */

ech__lab_task *ech__lab_add_task(ech__lab_study *study, const char *id, const char *words)
{
    ech__lab *lab = study->lab;
    const ech__lab_task task = {.id = ech__lab_keep(lab, id),
                                .words = ech__lab_keep(lab, words),
                                .command = ech__lab_keep(lab, words)};
    if (!task.id || (words && !task.command))
        return NULL;
    pthread_mutex_lock(&lab->mutex);
    const bool grown = ech__arena_grow(&lab->arena, (void **)&study->tasks, study->count,
                                       &study->capacity, sizeof task);
    ech__lab_task *place = grown ? &study->tasks[study->count++] : NULL;
    if (place)
        *place = task;
    pthread_mutex_unlock(&lab->mutex);
    return place;
}

ech__lab_result *ech__lab_results(ech__lab_study *study)
{
    ech__lab *lab = study->lab;
    ech__lab_result *results = ech__arena_array(&lab->arena, study->count + 1, sizeof *results);
    for (size_t i = 0; results && i < study->count; i++) {
        const ech__lab_task *task = &study->tasks[i];
        const bool over = task->stage == ECH__LAB_OVER;
        results[i] = (ech__lab_result){.id = task->id,
                                       .command = task->command,
                                       .state = over ? task->state : ECH__LAB_SKIPPED,
                                       .reason = over ? task->reason : "it has not been run yet"};
        if (!over || !task->name)
            continue;
        results[i].dir = ech__arena_printf(&lab->arena, "%s/runs/%s", lab->options.out, task->name);
        results[i].record = ech__arena_printf(&lab->arena, "runs/%s", task->name);
        if (!results[i].dir || !results[i].record)
            return NULL;
    }
    return results;
}

/* ---- asking ---- */

ech__lab_id ech__lab_name(const char *format, ...)
{
    ech__lab_id id;
    va_list args;
    va_start(args, format);
    vsnprintf(id.s, sizeof id.s, format, args);
    va_end(args);
    return id;
}

static const char *study_id(const ech__lab_runs *runs)
{
    return runs->study->card ? runs->study->card->id : "noise";
}

bool ech__lab_quick(const ech__lab_runs *runs)
{
    return runs->lab->options.quick;
}

int64_t ech__lab_param_of(ech__lab_runs *runs, const char *name)
{
    int64_t value = 0;
    if (!ech__lab_param_value(runs->lab, runs->study->card, name, &value) && runs->status == ECH_OK)
        runs->status = ech__fail(runs->lab->ctx, ECH_E_INVALID, "the study has no size %s", name);
    return value;
}

size_t ech__lab_devices(const ech__lab_runs *runs)
{
    return runs->lab->options.device_count;
}

int64_t ech__lab_device(const ech__lab_runs *runs, size_t index)
{
    return index < runs->lab->options.device_count ? runs->lab->options.devices[index] : 0;
}

int64_t ech__lab_cores(const ech__lab_runs *runs)
{
    return runs->lab->cores;
}

/* An id as records have it. */
static ech_status check_id(const ech__lab_runs *runs, const char *id)
{
    const size_t length = strlen(id);
    bool good = length > 0 && length < sizeof((ech__lab_id){""}.s);
    for (const char *c = id; *c; c++)
        good &= isascii(*c) && (isalnum((unsigned char)*c) || strchr("-_.", *c));
    return good ? ECH_OK
                : ech__fail(runs->lab->ctx, ECH_E_INVALID,
                            "run '%.80s': a name has 1 to %zu letters, digits, '-', '_' and '.'",
                            id, sizeof((ech__lab_id){""}.s) - 1);
}

/* Whether the study has asked for it before. One name for different words is an error. */
static ech_status asked_before(const ech__lab_runs *runs, const char *id, const char *words,
                               bool *out)
{
    *out = false;
    for (size_t i = 0; i < runs->study->count; i++) {
        const ech__lab_task *task = &runs->study->tasks[i];
        if (strcmp(task->id, id) != 0)
            continue;
        *out = true;
        if (words && task->words && strcmp(task->words, words) != 0)
            return ech__fail(runs->lab->ctx, ECH_E_INVALID,
                             "run %s is asked for as '%s' and as '%s'", id, task->words, words);
    }
    return ECH_OK;
}

static ech_status ask_for(ech__lab_runs *runs, const char *id, const char *words,
                          const char *reason)
{
    bool before;
    ECH_TRY(check_id(runs, id));
    ECH_TRY(asked_before(runs, id, words, &before));
    if (before)
        return ECH_OK;
    if (runs->study->count == ECH__LAB_MAX_RUNS)
        return ech__fail(runs->lab->ctx, ECH_E_LIMIT, "more than %d runs", ECH__LAB_MAX_RUNS);
    const char *why = ech__lab_keep(runs->lab, reason);
    ech__lab_task *task = ech__lab_add_task(runs->study, id, words);
    if (!task || (reason && !why))
        return ech__no_memory(runs->lab->ctx, "run %s", id);
    pthread_mutex_lock(&runs->lab->mutex);
    task->reason = why;
    pthread_mutex_unlock(&runs->lab->mutex);
    runs->added++;
    return ECH_OK;
}

void ech__lab_run(ech__lab_runs *runs, const char *id, const char *words, ...)
{
    char line[WORDS];
    va_list args;
    if (runs->status < 0 || ech__lab_is_stopped(runs->lab))
        return;
    va_start(args, words);
    const int length = vsnprintf(line, sizeof line, words, args);
    va_end(args);
    runs->status = length < 0 || length >= (int)sizeof line
                       ? ech__fail(runs->lab->ctx, ECH_E_LIMIT,
                                   "run %s: its words have more than %d bytes", id, WORDS - 1)
                       : ask_for(runs, id, line, NULL);
}

void ech__lab_skip(ech__lab_runs *runs, const char *id, const char *reason, ...)
{
    char line[256];
    va_list args;
    if (runs->status < 0)
        return;
    va_start(args, reason);
    vsnprintf(line, sizeof line, reason, args);
    va_end(args);
    runs->status = ask_for(runs, id, NULL, line);
}

/* ---- results ---- */

/* Facts of the tasks that there are by now. */
static ech_status need_facts(ech__lab_runs *runs)
{
    if (runs->facts && runs->facts_count == runs->study->count)
        return ECH_OK;
    ech__lab_facts_destroy(runs->facts);
    runs->facts = NULL;
    runs->facts_count = runs->study->count;
    const ech__lab_result *results = ech__lab_results(runs->study);
    if (!results)
        return ech__no_memory(runs->lab->ctx, "the results of %s", study_id(runs));
    return ech__lab_facts_create(runs->lab->ctx, results, runs->facts_count,
                                 runs->lab->figures.spread, &runs->facts);
}

bool ech__lab_known(ech__lab_runs *runs, double *out, const char *expr, ...)
{
    char text[EXPRESSION];
    va_list args;
    ech__lab_figure figure;
    if (runs->status < 0)
        return false;
    va_start(args, expr);
    const int length = vsnprintf(text, sizeof text, expr, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof text) {
        runs->status = ech__fail(runs->lab->ctx, ECH_E_LIMIT,
                                 "'%.60s...' has more than %d characters", expr, EXPRESSION - 1);
        return false;
    }
    runs->status = need_facts(runs);
    if (runs->status < 0)
        return false;
    if (ech__lab_eval(runs->facts, text, &figure) < 0) {
        if (!runs->doubt)
            runs->doubt = ech__lab_keep(runs->lab, ech_ctx_error(runs->lab->ctx));
        return false;
    }
    if (figure.known)
        *out = figure.value;
    return figure.known;
}

ech_status ech__lab_ask(ech__lab_study *study, size_t *added)
{
    ech__lab_runs runs = {.study = study, .lab = study->lab};
    study->card->runs(&runs);
    ech__lab_facts_destroy(runs.facts);
    *added = runs.added;
    if (runs.status == ECH_OK && runs.added == 0 && runs.doubt)
        return ech__fail(study->lab->ctx, ECH_E_INVALID, "%s", runs.doubt);
    return runs.status;
}
