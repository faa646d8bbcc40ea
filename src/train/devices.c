#include "train/devices.h"
#include "base/clock.h"

void ech__devices_add(ech__devices *d, const ech_trainer *trainer, double step_s)
{
    if (!trainer->dp)
        return;
    const ech__span *phases = ech__dp_phases(trainer->dp);
    d->steps++;
    d->step_s += step_s;
    for (int p = 0; p < ECH__DP_PHASES; p++)
        d->phase_s[p] += ech__seconds(phases[p].end_ns - phases[p].start_ns);
    for (int i = 0; i < ech__dp_devices(trainer->dp); i++)
        d->busy_s[i] += ech__seconds(ech__dp_work_of(trainer->dp, i)->busy_ns);
}

double ech__devices_busy(const ech__devices *d, int device)
{
    return d->step_s > 0 ? d->busy_s[device] / d->step_s : 0;
}

ech_json *ech__devices_memory_json(const ech_trainer *trainer)
{
    ech_json *array = ech__json_array();
    for (int i = 0; i < ech__dp_devices(trainer->dp); i++) {
        int64_t memory[ECH__MEMORY_COUNT];
        ech_json *kinds = ech__json_object();
        ech__dp_memory(trainer->dp, i, memory);
        for (int k = 0; k < ECH__MEMORY_COUNT; k++)
            ech__json_set_int(&kinds, ech__memory_name((ech__memory_kind)k), memory[k]);
        ech__json_append(&array, kinds);
    }
    return array;
}

ech_json *ech__devices_json(const ech__devices *d, const ech_trainer *trainer)
{
    ech_json *json = ech__json_object(), *phases = ech__json_object(), *array = ech__json_array();
    const double steps = d->steps ? (double)d->steps : 1;
    for (int p = 0; p < ECH__DP_PHASES; p++)
        ech__json_set_real(&phases, ech__dp_phase_name((ech__dp_phase)p), d->phase_s[p] / steps);
    for (int i = 0; i < ech__dp_devices(trainer->dp); i++) {
        const ech__dp_work *work = ech__dp_work_of(trainer->dp, i);
        ech_json *one = ech__json_object();
        ech__json_set_int(&one, "samples", work->samples);
        ech__json_set_int(&one, "bytes_in", work->bytes_in);
        ech__json_set_int(&one, "bytes_out", work->bytes_out);
        ech__json_set_real(&one, "busy_s", d->busy_s[i] / steps);
        ech__json_append(&array, one);
    }
    ech__json_set(&json, "phases_s", phases);
    ech__json_set(&json, "devices", array);
    return json;
}
