#include "parallel/pipe/order.h"
#include "base/names.h"

#include <assert.h>

ECH__NAMES(ech__pipeline_name, ech_pipeline, ECH_PIPELINE_LIST)

/* Forward passes before the first backward pass, without the one that it follows. */
static int warm_up(ech_pipeline order, int device, int devices, int micros)
{
    const int behind = order == ECH_PIPELINE_GPIPE ? micros - 1 : devices - 1 - device;
    return behind < micros ? behind : micros - 1;
}

void ech__pipe_tasks(ech_pipeline order, int device, int devices, int micros, ech__task *out)
{
    const int ahead = warm_up(order, device, devices, micros);
    for (int m = 0; m < ahead; m++)
        *out++ = (ech__task){ECH__TASK_FORWARD, m};
    for (int m = ahead; m < micros; m++) {
        *out++ = (ech__task){ECH__TASK_FORWARD, m};
        *out++ = (ech__task){ECH__TASK_BACKWARD, m - ahead};
    }
    for (int m = micros - ahead; m < micros; m++)
        *out++ = (ech__task){ECH__TASK_BACKWARD, m};
}

int ech__pipe_slots(ech_pipeline order, int device, int devices, int micros)
{
    return warm_up(order, device, devices, micros) + 1;
}

int ech__pipe_default_micros(int64_t batch, int devices)
{
    int64_t micros = 4 * (int64_t)devices < batch ? 4 * (int64_t)devices : batch;
    while (micros > 1 && batch % micros)
        micros--;
    return micros > 0 ? (int)micros : 1;
}

double ech__pipe_bubble(int devices, int micros)
{
    return (double)(devices - 1) / (double)(micros + devices - 1);
}

/* ---- a timeline ---- */

typedef struct timeline {
    int devices, micros;
    const ech__stage_time *stages;
    ech__task *tasks; /* [devices][2 * micros] */
    /* [devices][2][micros]: when the results of a task are where they are needed; -1: not yet. */
    double *arrived;
    int next[ECH__MAX_STAGES];
    double free_s[ECH__MAX_STAGES];
} timeline;

static double *arrival(const timeline *t, int device, ech__task task)
{
    return &t->arrived[(2 * device + (int)task.kind) * t->micros + task.micro];
}

/* When a task may begin; negative: not known yet. */
static double ready(const timeline *t, int device, ech__task task)
{
    const int before = task.kind == ECH__TASK_FORWARD ? device - 1 : device + 1;
    if (before < 0 || before == t->devices) /* samples are there; so is the loss, by the order */
        return 0;
    return *arrival(t, before, task);
}

static bool advance(timeline *t, int device, ech__pipe_times *out)
{
    if (t->next[device] == 2 * t->micros)
        return false;
    const ech__task task = t->tasks[2 * t->micros * device + t->next[device]];
    const ech__stage_time *s = &t->stages[device];
    const bool forward = task.kind == ECH__TASK_FORWARD;
    const double from = ready(t, device, task), takes = forward ? s->forward_s : s->backward_s;
    double *free_s = &t->free_s[device];
    if (from < 0)
        return false;
    *free_s = (from > *free_s ? from : *free_s) + takes;
    out->busy_s[device] += takes;
    *arrival(t, device, task) = *free_s + (forward ? s->send_s : s->send_back_s);
    t->next[device]++;
    return true;
}

static void simulate(timeline *t, ech__pipe_times *out)
{
    double busy = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int d = 0; d < t->devices; d++) {
            while (advance(t, d, out))
                moved = true;
        }
    }
    for (int d = 0; d < t->devices; d++) {
        const double end = t->free_s[d], updated = end + t->stages[d].update_s;
        assert(t->next[d] == 2 * t->micros);
        busy += out->busy_s[d];
        out->busy_s[d] += t->stages[d].update_s;
        out->flush_s = end > out->flush_s ? end : out->flush_s;
        out->step_s = updated > out->step_s ? updated : out->step_s;
    }
    out->bubble = out->flush_s > 0 ? 1 - busy / (t->devices * out->flush_s) : 0;
}

static ech_status begin(ech_ctx *ctx, ech_pipeline order, int devices, int micros, timeline *t)
{
    const size_t count = 2 * (size_t)devices * (size_t)micros;
    assert(devices >= 1 && devices <= ECH__MAX_STAGES && micros >= 1);
    *t = (timeline){.devices = devices,
                    .micros = micros,
                    .tasks = ech__new(ctx, count * sizeof *t->tasks),
                    .arrived = ech__new(ctx, count * sizeof *t->arrived)};
    if (!t->tasks || !t->arrived)
        return ech__no_memory(ctx, "the timeline of %d micro-batches", micros);
    for (size_t i = 0; i < count; i++)
        t->arrived[i] = -1;
    for (int d = 0; d < devices; d++)
        ech__pipe_tasks(order, d, devices, micros, t->tasks + (ptrdiff_t)2 * micros * d);
    return ECH_OK;
}

static void end(ech_ctx *ctx, timeline *t)
{
    const size_t count = 2 * (size_t)t->devices * (size_t)t->micros;
    ech__delete(ctx, t->arrived, count * sizeof *t->arrived);
    ech__delete(ctx, t->tasks, count * sizeof *t->tasks);
}

ech_status ech__pipe_simulate(ech_ctx *ctx, ech_pipeline order, int devices, int micros,
                              const ech__stage_time *stages, ech__pipe_times *out)
{
    timeline t;
    *out = (ech__pipe_times){0};
    const ech_status status = begin(ctx, order, devices, micros, &t);
    t.stages = stages;
    if (status == ECH_OK)
        simulate(&t, out);
    end(ctx, &t);
    return status;
}

ech_status ech__pipe_starts(ech_ctx *ctx, ech_pipeline order, int devices, int micros, double *out)
{
    timeline t;
    ech__stage_time alike[ECH__MAX_STAGES];
    ech__pipe_times times = {0};
    for (int d = 0; d < devices; d++)
        alike[d] = (ech__stage_time){.forward_s = 1, .backward_s = 1};
    const ech_status status = begin(ctx, order, devices, micros, &t);
    t.stages = alike;
    if (status == ECH_OK)
        simulate(&t, &times);
    for (int i = 0; status == ECH_OK && i < 2 * devices * micros; i++)
        out[i] = *arrival(&t, i / (2 * micros), t.tasks[i]) - 1;
    end(ctx, &t);
    return status;
}
