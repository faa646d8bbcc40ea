/* What a lab is doing, for another thread. */
#include "base/system/clock.h"
#include "lab/internal.h"

static ech_json *task_json(const ech__lab *lab, const ech__lab_task *task)
{
    ech_json *json = ech__json_object();
    const bool runs = lab->current.study && lab->current.task == task;
    ech__json_set_string(&json, "id", task->id);
    ech__json_set_string(&json, "state", ech__lab_task_state(task));
    ech__json_set_string(&json, "reason", task->reason);
    if (task->name) {
        char dir[64];
        snprintf(dir, sizeof dir, "runs/%s", task->name);
        ech__json_set_string(&json, "dir", dir);
    }
    ech__json_set_real(&json, "seconds",
                       runs ? ech__seconds(ech__clock_wall() - lab->current.began_ns)
                            : task->seconds);
    return json;
}

static const char *stage_name(const ech__lab_study *study)
{
    switch (study->stage) {
    case ECH__STUDY_WAITING:
        return "waiting";
    case ECH__STUDY_RUNNING:
        return "running";
    case ECH__STUDY_TOLD:
        return "told";
    case ECH__STUDY_BROKEN:
        break;
    }
    return "failed";
}

static ech_json *study_json(const ech__lab *lab, const ech__lab_study *study)
{
    const char group[2] = {study->card->group, '\0'};
    ech_json *json = ech__json_object(), *runs = ech__json_array();
    for (size_t i = 0; i < study->count; i++)
        ech__json_append(&runs, task_json(lab, &study->tasks[i]));
    ech__json_set_string(&json, "id", study->card->id);
    ech__json_set_string(&json, "group", group);
    ech__json_set_string(&json, "title", study->card->title);
    ech__json_set_string(&json, "state", stage_name(study));
    ech__json_set(&json, "runs", runs);
    return json;
}

static ech_json *current_json(const ech__lab *lab)
{
    ech_json *json = ech__json_object();
    const ech__study_card *card = lab->current.study->card;
    ech__json_set_string(&json, "study", card ? card->id : "noise");
    ech__json_set_string(&json, "run", lab->current.task->id);
    ech__json_set_string(&json, "command", lab->current.task->command);
    ech__json_set_string(&json, "dir", lab->current.dir);
    ech__json_set_int(&json, "pid", lab->current.pid);
    ech__json_set_real(&json, "seconds", ech__seconds(ech__clock_wall() - lab->current.began_ns));
    return json;
}

static ech_json *snapshot(const ech__lab *lab)
{
    ech_json *json = ech__json_object(), *studies = ech__json_array();
    for (size_t i = 0; i < lab->study_count; i++)
        ech__json_append(&studies, study_json(lab, &lab->studies[i]));
    ech__json_set_string(&json, "title", ECH__LAB_TITLE);
    ech__json_set_string(&json, "profile", lab->options.quick ? "quick" : "full");
    ech__json_set_real(&json, "elapsed_s", ech__lab_elapsed(lab));
    ech__json_set_real(&json, "left_s", ech__lab_left(lab));
    ech__json_set_bool(&json, "finished", lab->ended_ns != 0);
    ech__json_set(&json, "machine", ech__lab_machine_json(lab));
    ech__json_set(&json, "studies", studies);
    if (lab->current.study)
        ech__json_set(&json, "current", current_json(lab));
    else
        ech__json_set_string(&json, "current", NULL);
    return json;
}

ech_status ech__lab_snapshot(ech__lab *lab, ech_ctx *ctx, ech_json **out)
{
    pthread_mutex_lock(&lab->mutex);
    *out = snapshot(lab);
    pthread_mutex_unlock(&lab->mutex);
    return *out ? ECH_OK : ech__no_memory(ctx, "the state of a lab");
}
