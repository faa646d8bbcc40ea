/* How busy the devices of a running run are, seen from outside: the processor time that their
 * threads took between two looks, as a share of the time that has passed.
 *
 *     ech__busy busy = {0};
 *     ech__busy_look(&busy, pid);             now and then
 *     ech_json *devices = ech__busy_json(&busy);
 *
 * Ranks are children of the process that was started, and a device's threads carry its name
 * (device/device.c). A process without devices, as that of a benchmark of messages, counts as a
 * whole. Waiting is not busy: ranks sleep when they wait. On a system that does not say who a
 * process's children are only the process itself is seen.
 */
#pragma once

#include "base/file/json.h"

enum { ECH__BUSY_LANES = 64, ECH__BUSY_PROCESSES = 64 };

/* Clocks of processes tick every hundredth of a second: a shorter time between looks would tell nothing. */
#define ECH__BUSY_LEAST_S 0.4

typedef struct ech__busy_lane {
    int64_t pid;
    char name[16]; /* of its threads; "" for a whole process */
    int64_t ticks; /* of processor time so far */
    int threads;
    double share; /* 0 to 1 of its threads; NaN until it was seen twice */
} ech__busy_lane;

typedef struct ech__busy {
    int64_t pid;
    int64_t seen_ns; /* 0: never */
    size_t count;
    ech__busy_lane lanes[ECH__BUSY_LANES];
} ech__busy;

/* A look that follows the last one too closely leaves things as they are; pid 0: nothing runs. */
void ech__busy_look(ech__busy *busy, int64_t pid);
/* [{"name": "device 0", "busy": 0.97}, ...]; null: not known yet. */
ech_json *ech__busy_json(const ech__busy *busy);
