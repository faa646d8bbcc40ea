#include "lab/lab.h"
#include "base/file/dir.h"
#include "base/system/clock.h"
#include "lab/internal.h"
#include "lab/sheet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- life ---- */

char *ech__lab_keep(ech__lab *lab, const char *text)
{
    if (!text)
        return NULL;
    const size_t bytes = strlen(text) + 1;
    char *copy = ech__arena_alloc(&lab->arena, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static void set_date(ech__lab *lab)
{
    const time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(lab->date, sizeof lab->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

ech_status ech__lab_create(ech_ctx *ctx, const ech__lab_options *options, ech__lab **out)
{
    ech__lab *lab = *out = ech__new(ctx, sizeof *lab);
    if (!lab)
        return ech__no_memory(ctx, "a lab");
    lab->ctx = ctx;
    ech__arena_init(&lab->arena, ctx->alloc);
    pthread_mutex_init(&lab->mutex, NULL);
    set_date(lab);
    lab->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const ech_status status =
        lab->stop_fd < 0
            ? ech__fail(ctx, ECH_E_IO, "no descriptor to stop a lab by: %s", strerror(errno))
            : ech__lab_setup(lab, options);
    if (status < 0) {
        ech__lab_destroy(lab);
        *out = NULL;
    }
    return status;
}

void ech__lab_destroy(ech__lab *lab)
{
    if (!lab)
        return;
    if (lab->stop_fd >= 0)
        close(lab->stop_fd);
    ech__claim_release(&lab->claim);
    pthread_mutex_destroy(&lab->mutex);
    ech__arena_fini(&lab->arena);
    ech__delete(lab->ctx, lab, sizeof *lab);
}

void ech__lab_stop(ech__lab *lab)
{
    const int error = errno;
    const uint64_t one = 1;
    atomic_store(&lab->stopped, true);
    /* Once it can be read from it stays so, and a second write changes nothing. */
    const ssize_t written = write(lab->stop_fd, &one, sizeof one);
    (void)written;
    errno = error;
}

bool ech__lab_is_stopped(const ech__lab *lab)
{
    return atomic_load(&lab->stopped);
}

size_t ech__lab_studies(const ech__lab *lab)
{
    return lab->study_count;
}

size_t ech__lab_failures(const ech__lab *lab)
{
    return lab->failures;
}

/* ---- time ---- */

double ech__lab_elapsed(const ech__lab *lab)
{
    if (!lab->began_ns)
        return 0;
    return ech__seconds((lab->ended_ns ? lab->ended_ns : ech__clock_wall()) - lab->began_ns);
}

static double expected(const ech__lab *lab, const ech__lab_study *study)
{
    return lab->options.quick ? study->card->quick_seconds : study->card->full_seconds;
}

double ech__lab_left(const ech__lab *lab)
{
    double planned = 0, took = 0, left = 0;
    for (size_t i = 0; i < lab->study_count; i++) {
        const ech__lab_study *study = &lab->studies[i];
        if (study->stage != ECH__STUDY_TOLD)
            continue;
        planned += expected(lab, study);
        took += study->seconds;
    }
    if (lab->ended_ns)
        return 0;
    /* A machine that is slower for some studies will be so for the others. */
    const double scale = planned > 0 && took > 0 ? took / planned : 1;
    for (size_t i = 0; i < lab->study_count; i++) {
        const ech__lab_study *study = &lab->studies[i];
        const double whole = scale * expected(lab, study);
        if (expected(lab, study) <= 0)
            return -1;
        if (study->stage == ECH__STUDY_WAITING) {
            left += whole;
        } else if (study->stage == ECH__STUDY_RUNNING) {
            const double now = ech__seconds(ech__clock_wall() - study->began_ns);
            left += now < whole ? whole - now : 0;
        }
    }
    return left;
}

/* ---- events ---- */

const char *ech__lab_task_state(const ech__lab_task *task)
{
    static const char *const over[] = {[ECH__LAB_DONE] = "done",
                                       [ECH__LAB_REUSED] = "reused",
                                       [ECH__LAB_FAILED] = "failed",
                                       [ECH__LAB_SKIPPED] = "skipped"};
    return task->stage == ECH__LAB_WAITING   ? "waiting"
           : task->stage == ECH__LAB_RUNNING ? "running"
                                             : over[task->state];
}

void ech__lab_show(ech__lab *lab, int kind, const ech__lab_study *study, const ech__lab_task *task,
                   const char *reason)
{
    if (!lab->options.show)
        return;
    ech__lab_event event = {.studies = lab->study_count,
                            .reason = reason,
                            .elapsed_s = ech__lab_elapsed(lab),
                            .left_s = ech__lab_left(lab)};
    event.kind = kind;
    if (study && study->card) {
        event.card = study->card;
        event.study = (size_t)(study - lab->studies);
    }
    if (study && task) {
        event.run = task->id;
        event.run_number = (size_t)(task - study->tasks);
        event.run_count = study->count;
        event.state = ech__lab_task_state(task);
        event.run_s = task->seconds;
    }
    lab->options.show(&event, lab->options.user);
}

/* ---- studies ---- */

static int64_t param_of(const void *user, const char *name)
{
    const ech__lab_study *study = user;
    int64_t value = -1;
    ech__lab_param_value(study->lab, study->card, name, &value);
    return value;
}

static ech_status save_study(ech__lab *lab, const ech__lab_study *study, const ech_json *json)
{
    const char *path =
        ech__arena_printf(&lab->arena, "%s/studies/%s.json", lab->options.out, study->card->id);
    return path ? ech__json_save(lab->ctx, path, json, ECH_JSON_INDENT)
                : ech__no_memory(lab->ctx, "the path of a study");
}

static ech_status tell(ech__lab *lab, ech__lab_study *study)
{
    ech_json *json;
    const ech__sheet_options sheet = {
        .card = study->card,
        .command = ech__lab_study_command(lab, study->card),
        .results = ech__lab_results(study),
        .count = study->count,
        .noise = lab->figures.spread,
        .quick = lab->options.quick,
        .real_images = lab->images.kind != ECH__LAB_IMAGES_SYNTHETIC,
        .devices = lab->options.devices,
        .device_count = lab->options.device_count,
        .cores = lab->cores,
        .param = param_of,
        .user = study,
    };
    if (!sheet.command || !sheet.results)
        return ech__no_memory(lab->ctx, "what the study tells");
    ECH_TRY(ech__sheet_tell(lab->ctx, &sheet, &json));
    const ech_status status = save_study(lab, study, json);
    ech__json_destroy(json);
    return status;
}

/* Runs what the study asks for, and asks again, until it wants nothing new or the lab is stopped. */
static ech_status run_study(ech__lab *lab, ech__lab_study *study)
{
    for (int round = 0; round < ECH__LAB_ROUNDS; round++) {
        size_t added;
        ECH_TRY(ech__lab_ask(study, &added));
        if (added == 0)
            break;
        for (size_t i = study->count - added; i < study->count; i++) {
            if (ech__lab_is_stopped(lab))
                return ECH_OK;
            ECH_TRY(ech__lab_perform(study, &study->tasks[i]));
        }
    }
    return ech__lab_is_stopped(lab) ? ECH_OK : tell(lab, study);
}

static void set_stage(ech__lab *lab, ech__lab_study *study, int stage)
{
    pthread_mutex_lock(&lab->mutex);
    study->stage = stage;
    study->began_ns = stage == ECH__STUDY_RUNNING ? ech__clock_wall() : study->began_ns;
    lab->current.study = NULL;
    pthread_mutex_unlock(&lab->mutex);
}

ech_status ech__lab_do_study(ech__lab_study *study)
{
    ech__lab *lab = study->lab;
    set_stage(lab, study, ECH__STUDY_RUNNING);
    ech__lab_show(lab, ECH__LAB_EVENT_STUDY, study, NULL, NULL);
    ech_status status = run_study(lab, study);
    if (status < 0) {
        status = ech__fail_in(lab->ctx, status, "study %s", study->card->id);
        set_stage(lab, study, ECH__STUDY_BROKEN);
        ech__lab_show(lab, ECH__LAB_EVENT_TOLD, study, NULL, ech_ctx_error(lab->ctx));
        return status;
    }
    if (ech__lab_is_stopped(lab)) {
        set_stage(lab, study, ECH__STUDY_WAITING);
        return ECH_OK;
    }
    set_stage(lab, study, ECH__STUDY_TOLD);
    ECH_TRY(ech__lab_save(lab));
    ech__lab_show(lab, ECH__LAB_EVENT_TOLD, study, NULL, NULL);
    return ECH_OK;
}

static ech_status make_places(ech__lab *lab)
{
    static const char *const below[] = {"", "/studies", "/runs"};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        const char *path = ech__arena_printf(&lab->arena, "%s%s", lab->options.out, below[i]);
        if (!path)
            return ech__no_memory(lab->ctx, "the places of a lab");
        ECH_TRY(ech__dir_make(lab->ctx, "directory of the lab", path));
    }
    return ECH_OK;
}

static void set_time(ech__lab *lab, int64_t *at)
{
    pthread_mutex_lock(&lab->mutex);
    *at = ech__clock_wall();
    lab->current.study = NULL;
    pthread_mutex_unlock(&lab->mutex);
}

/* Intervals of the first studies, by what has become known of the noise since. */
static ech_status tell_again(ech__lab *lab)
{
    size_t told = 0;
    for (size_t i = 0; i < lab->study_count; i++) {
        if (lab->studies[i].stage != ECH__STUDY_TOLD)
            continue;
        ECH_TRY(tell(lab, &lab->studies[i]));
        told++;
    }
    return told ? ech__lab_save(lab) : ECH_OK;
}

/* A study that cannot be told keeps the others from nothing; the sentence of the first such is that of the lab. */
static ech_status do_all(ech__lab *lab)
{
    char sentence[sizeof lab->ctx->error] = "";
    ech_status first = ECH_OK;
    ECH_TRY(make_places(lab));
    ECH_TRY(ech__lab_measure_noise(lab));
    for (size_t i = 0; i < lab->study_count && !ech__lab_is_stopped(lab); i++) {
        if (i > 0)
            ECH_TRY(ech__lab_measure_again(lab));
        const ech_status status = ech__lab_do_study(&lab->studies[i]);
        if (status < 0 && first == ECH_OK) {
            first = status;
            snprintf(sentence, sizeof sentence, "%s", ech_ctx_error(lab->ctx));
        }
    }
    if (!ech__lab_is_stopped(lab))
        ECH_TRY(tell_again(lab));
    return first < 0 ? ech__fail(lab->ctx, first, "%s", sentence) : ECH_OK;
}

ech_status ech__lab_execute(ech__lab *lab)
{
    set_time(lab, &lab->began_ns);
    const ech_status status = do_all(lab);
    set_time(lab, &lab->ended_ns);
    return status;
}
