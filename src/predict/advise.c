#include "predict/advise.h"

#include <stdio.h>
#include <string.h>

int64_t ech__load_of(const ech__load *load, int64_t devices)
{
    return load->global ? load->global : load->batch * devices;
}

ech_status ech__scale(ech__pricing *pricing, const ech__load *load, int64_t devices,
                      ech__scaled *out)
{
    ech__price one;
    ECH_TRY(ech__pricing_at(pricing, 1, ech__load_of(load, 1), &one));
    ECH_TRY(ech__pricing_at(pricing, devices, ech__load_of(load, devices), &out->price));
    ECH_TRY(ech__pricing_memory(pricing, devices, ech__load_of(load, devices), &out->memory));
    out->speedup = out->price.samples_per_s / one.samples_per_s;
    out->efficiency = out->speedup / (double)devices;
    return ECH_OK;
}

/* ---- break-even ---- */

static ech_status is_half(ech__pricing *pricing, int64_t devices, int64_t global, bool *out)
{
    ech__price price;
    ECH_TRY(ech__pricing_at(pricing, devices, global, &price));
    *out = price.step.exposed_s >= price.step.step_s / 2;
    return ECH_OK;
}

/* Doubles until it is, and then halves the gap. */
static ech_status find_devices(ech__pricing *pricing, const ech__load *load, int64_t most,
                               int64_t *out)
{
    int64_t below = 1, above = 2;
    bool half = false;
    *out = 0;
    for (; above <= most; below = above, above *= 2) {
        ECH_TRY(is_half(pricing, above, ech__load_of(load, above), &half));
        if (half)
            break;
    }
    if (!half)
        return ECH_OK;
    while (above - below > 1) {
        const int64_t middle = below + (above - below) / 2;
        ECH_TRY(is_half(pricing, middle, ech__load_of(load, middle), &half));
        *(half ? &above : &below) = middle;
    }
    *out = above;
    return ECH_OK;
}

enum { LARGEST_BATCH = 1 << 24 };

static ech_status find_batch(ech__pricing *pricing, int64_t *out)
{
    int64_t below = 0, above = 1;
    bool half = true;
    while (half && above <= LARGEST_BATCH) {
        ECH_TRY(is_half(pricing, 2, 2 * above, &half));
        if (half) {
            below = above;
            above *= 2;
        }
    }
    while (above - below > 1) {
        const int64_t middle = below + (above - below) / 2;
        ECH_TRY(is_half(pricing, 2, 2 * middle, &half));
        *(half ? &below : &above) = middle;
    }
    *out = below;
    return ECH_OK;
}

ech_status ech__find_break_even(ech__pricing *pricing, const ech__load *load, ech__break_even *out)
{
    int64_t most = ech__pricing_most(pricing);
    if (load->global && load->global < most)
        most = load->global;
    ECH_TRY(find_devices(pricing, load, most, &out->devices));
    return find_batch(pricing, &out->batch);
}

/* ---- crossings ---- */

static void add_crossing(ech__crossing *out, int *count, int64_t devices, const char *what)
{
    if (*count == ECH__MOST_CROSSINGS)
        return;
    int at = (*count)++;
    for (; at > 0 && out[at - 1].devices > devices; at--)
        out[at] = out[at - 1];
    out[at].devices = devices;
    snprintf(out[at].what, sizeof out[at].what, "%s", what);
}

ech_status ech__find_crossings(ech__pricing *pricing, const ech__load *load,
                               const ech__break_even *half, int64_t most, ech__crossing *out,
                               int *count)
{
    ech__algorithm before = ECH__ALGORITHM_BEST;
    bool divides = true;
    char what[64];
    *count = 0;
    if (half->devices && half->devices <= most)
        add_crossing(out, count, half->devices, "communication is half");
    for (int64_t devices = 2; devices <= most && devices <= ech__load_of(load, devices);
         devices *= 2) {
        ech__price price;
        ECH_TRY(ech__pricing_at(pricing, devices, ech__load_of(load, devices), &price));
        snprintf(what, sizeof what, "%s is cheapest", ech__algorithm_name(price.algorithm));
        if (before != ECH__ALGORITHM_BEST && price.algorithm != before)
            add_crossing(out, count, devices, what);
        before = price.algorithm;
        snprintf(what, sizeof what, "%lld samples do not divide", (long long)load->global);
        if (divides && load->global % devices)
            add_crossing(out, count, devices, what);
        divides = divides && load->global % devices == 0;
    }
    return ECH_OK;
}

/* ---- advice ---- */

static void consider(ech__advice *advice, const ech__scaled *s, double efficiency, int64_t memory,
                     bool own)
{
    if (s->efficiency < efficiency || (memory && s->memory > memory))
        return;
    if (own && s->price.devices > advice->devices)
        advice->devices = s->price.devices;
    if (s->price.devices > 1)
        advice->possible = true;
    if (s->price.samples_per_s > advice->best.price.samples_per_s)
        advice->best = *s;
}

static ech_status try_load(ech__pricing *pricing, const ech__load *load, int64_t most,
                           double efficiency, int64_t memory, bool own, ech__advice *out)
{
    for (int64_t devices = 1; devices <= most; devices *= 2) {
        ech__scaled s;
        if (ech__load_of(load, devices) < devices)
            break;
        ECH_TRY(ech__scale(pricing, load, devices, &s));
        consider(out, &s, efficiency, memory, own);
        if (devices < most && devices * 2 > most)
            devices = (most + 1) / 2; /* the last one is `most` itself */
    }
    return ECH_OK;
}

ech_status ech__advise(ech__pricing *pricing, const ech__load *load, int64_t most,
                       double efficiency, int64_t memory, ech__advice *out)
{
    int64_t batches[64];
    const int count = ech__pricing_batches(pricing, batches, 64);
    memset(out, 0, sizeof *out);
    out->devices = 1;
    ECH_TRY(try_load(pricing, load, most, efficiency, memory, true, out));
    if (load->global) /* the step is given: only the devices are open */
        return ECH_OK;
    for (int i = 0; i < count; i++) {
        const ech__load other = {.batch = batches[i]};
        ECH_TRY(try_load(pricing, &other, most, efficiency, memory, false, out));
    }
    return ECH_OK;
}
