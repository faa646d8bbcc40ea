/* A task of a study becomes a run: found again, known not to work, or started and judged. */
#include "base/system/clock.h"
#include "base/file/file.h"
#include "lab/internal.h"
#include "lab/keep.h"
#include "lab/runner.h"
#include "lab/words.h"

#include <stdio.h>
#include <string.h>

enum { REASON = 240 };

static const double QUICK_LIMIT = 600, FULL_LIMIT = 4 * 3600; /* seconds of a run */

/* ---- the state that others see ---- */

typedef struct performance {
    ech__lab *lab;
    ech__lab_study *study;
    ech__lab_task *task;
    ech__lab_line line;
} performance;

static void finish(performance *p, ech__lab_state state, const char *reason, double seconds)
{
    ech__lab *lab = p->lab;
    const char *failed =
        state == ECH__LAB_FAILED
            ? ech__arena_printf(&lab->arena, "%s%s", p->line.name, ECH__LAB_KEEP_FAILED)
            : NULL;
    pthread_mutex_lock(&lab->mutex);
    if (state == ECH__LAB_FAILED)
        p->task->name = failed;
    p->task->stage = ECH__LAB_OVER;
    p->task->state = state;
    p->task->reason = reason;
    p->task->seconds = seconds;
    p->study->seconds += seconds;
    lab->current.study = NULL;
    pthread_mutex_unlock(&lab->mutex);
    lab->failures += state == ECH__LAB_FAILED;
    ech__lab_show(lab, ECH__LAB_EVENT_RUN_END, p->study, p->task, reason);
}

static void begin(performance *p)
{
    ech__lab *lab = p->lab;
    pthread_mutex_lock(&lab->mutex);
    p->task->stage = ECH__LAB_RUNNING;
    lab->current.study = p->study;
    lab->current.task = p->task;
    lab->current.dir = p->line.made_in;
    lab->current.pid = 0;
    lab->current.began_ns = ech__clock_wall();
    pthread_mutex_unlock(&lab->mutex);
    ech__lab_show(lab, ECH__LAB_EVENT_RUN, p->study, p->task, NULL);
}

static void tick(void *user, pid_t pid, double seconds)
{
    performance *p = user;
    (void)seconds;
    pthread_mutex_lock(&p->lab->mutex);
    p->lab->current.pid = pid;
    pthread_mutex_unlock(&p->lab->mutex);
    ech__lab_show(p->lab, ECH__LAB_EVENT_TICK, p->study, p->task, NULL);
}

/* ---- runs that need not be started ---- */

static const ech__lab_known_run *find_known(const ech__lab *lab, const char *key)
{
    for (size_t i = 0; i < lab->known_count; i++) {
        if (!strcmp(lab->known[i].key, key))
            return &lab->known[i];
    }
    return NULL;
}

static ech_status remember(performance *p)
{
    ech__lab *lab = p->lab;
    if (!ech__arena_grow(&lab->arena, (void **)&lab->known, lab->known_count, &lab->known_capacity,
                         sizeof *lab->known))
        return ech__no_memory(lab->ctx, "the runs that are over");
    lab->known[lab->known_count++] =
        (ech__lab_known_run){p->line.key, p->task->state, p->task->reason, p->task->seconds};
    return ECH_OK;
}

/* Whether the same words were run before: in this lab, or in one before it. */
static ech_status find_again(performance *p, bool *found)
{
    const ech__lab_known_run *known = find_known(p->lab, p->line.key);
    double seconds = 0;
    *found = true;
    if (known) {
        const bool failed = known->state == ECH__LAB_FAILED;
        finish(p, failed ? ECH__LAB_FAILED : ECH__LAB_REUSED, known->reason, known->seconds);
        return ECH_OK;
    }
    *found = !p->lab->options.force &&
             ech__lab_keep_find(p->lab->ctx, p->line.dir, p->line.key, &seconds);
    if (!*found)
        return ECH_OK;
    finish(p, ECH__LAB_REUSED, NULL, seconds);
    return remember(p);
}

/* ---- a process ---- */

typedef struct paths {
    const char *out, *err, *result;
} paths;

static ech_status make_paths(performance *p, paths *out)
{
    ech__arena *arena = &p->lab->arena;
    out->out = ech__arena_printf(arena, "%s/%s", p->line.made_in,
                                 p->line.prints ? "result.json.part" : "output.txt");
    out->err = ech__arena_printf(arena, "%s/errors.txt", p->line.made_in);
    out->result = ech__arena_printf(arena, "%s/result.json", p->line.made_in);
    return out->out && out->err && out->result ? ECH_OK
                                               : ech__no_memory(p->lab->ctx, "the paths of a run");
}

/* What a command has printed becomes its record, if it is one. Its sentence goes to reason where it is none. */
static bool take_result(performance *p, const paths *at, char reason[REASON])
{
    ech_ctx *ctx = p->lab->ctx;
    ech_json *json;
    if (ech__json_load(ctx, at->out, ECH_JSON_MAX_BYTES, &json) < 0) {
        snprintf(reason, REASON, "%s", ech_ctx_error(ctx));
        return false;
    }
    ech__json_destroy(json);
    if (rename(at->out, at->result) == 0)
        return true;
    snprintf(reason, REASON, "its record cannot be put into place");
    return false;
}

/* Starts the run and waits for it. *reason is empty where it succeeded. */
static ech_status execute(performance *p, ech__runner_end *end, char reason[REASON])
{
    const ech__lab_options *o = &p->lab->options;
    paths at;
    ECH_TRY(ech__lab_keep_begin(p->lab->ctx, p->line.dir));
    ECH_TRY(make_paths(p, &at));
    const ech__runner_job job = {.program = o->program,
                                 .argv = p->line.argv,
                                 .env = p->lab->env,
                                 .out = at.out,
                                 .err = at.err,
                                 .limit_s = o->run_limit_s > 0 ? o->run_limit_s
                                            : o->quick         ? QUICK_LIMIT
                                                               : FULL_LIMIT,
                                 .stop_fd = p->lab->stop_fd,
                                 .tick = tick,
                                 .user = p};
    ECH_TRY(ech__runner_run(p->lab->ctx, &job, end));
    *reason = '\0';
    if (end->how != ECH__RUNNER_EXITED || end->code != 0)
        ech__runner_reason(end, at.err, reason, REASON);
    else if (p->line.prints)
        take_result(p, &at, reason);
    return ECH_OK;
}

/* ---- a task ---- */

static ech_status run_it(performance *p)
{
    ech__runner_end end;
    char reason[REASON];
    begin(p);
    ECH_TRY(execute(p, &end, reason));
    const char *why = *reason ? ech__lab_keep(p->lab, reason) : NULL;
    if (*reason && !why)
        return ech__no_memory(p->lab->ctx, "the reason why a run failed");
    const ech__lab_kept kept = {.words = p->line.key,
                                .good = !why,
                                .code = end.how == ECH__RUNNER_EXITED ? end.code : 128 + end.code,
                                .seconds = end.seconds,
                                .reason = why};
    const bool stopped = end.how == ECH__RUNNER_STOPPED; /* it says nothing about the run */
    ECH_TRY(stopped ? ech__lab_keep_drop(p->lab->ctx, p->line.dir)
                    : ech__lab_keep_save(p->lab->ctx, p->line.dir, &kept));
    finish(p, why ? ECH__LAB_FAILED : ECH__LAB_DONE, why, end.seconds);
    return stopped ? ECH_OK : remember(p);
}

static ech_status perform(performance *p)
{
    bool found;
    ECH_TRY(ech__lab_line_make(p->study, p->task->words, &p->line));
    if (ech__lab_is_stopped(p->lab))
        return ECH_OK;
    pthread_mutex_lock(&p->lab->mutex);
    p->task->command = p->line.command;
    p->task->name = p->line.missing ? NULL : p->line.name;
    pthread_mutex_unlock(&p->lab->mutex);
    if (p->line.missing) {
        const char *reason =
            ech__arena_printf(&p->lab->arena, "it needs run %s, which %s", p->line.missing->id,
                              p->line.missing->state == ECH__LAB_FAILED ? "failed" : "was skipped");
        if (!reason)
            return ech__no_memory(p->lab->ctx, "the reason why a run is skipped");
        finish(p, ECH__LAB_SKIPPED, reason, 0);
        return ECH_OK;
    }
    ECH_TRY(find_again(p, &found));
    return found ? ECH_OK : run_it(p);
}

ech_status ech__lab_perform(ech__lab_study *study, ech__lab_task *task)
{
    performance p = {.lab = study->lab, .study = study, .task = task};
    if (!task->words) {
        finish(&p, ECH__LAB_SKIPPED, task->reason, 0);
        return ECH_OK;
    }
    const ech_status status = perform(&p);
    return status < 0 ? ech__fail_in(p.lab->ctx, status, "run %s", task->id) : ECH_OK;
}
