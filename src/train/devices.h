/* What the devices of DataParallel did over the timed steps of a run. Without DataParallel it stays empty. */
#ifndef ECH_TRAIN_DEVICES_H
#define ECH_TRAIN_DEVICES_H

#include "base/json.h"
#include "train/trainer.h"

typedef struct ech__devices {
    int64_t steps;
    /* Sums over the steps. */
    double step_s;
    double phase_s[ECH__DP_PHASES];
    double busy_s[ECH__DP_MAX_DEVICES];
} ech__devices;

/* Adds the trainer's last step. */
void ech__devices_add(ech__devices *devices, const ech_trainer *trainer, double step_s);
/* Share of the time of the steps that a device was busy. */
double ech__devices_busy(const ech__devices *devices, int device);
/* Bytes by kind, as run.json has them for every plan. */
ech_json *ech__devices_memory_json(const ech_trainer *trainer);
/* Mean times of the phases, and for each device its samples, bytes, and busy time of a step. */
ech_json *ech__devices_json(const ech__devices *devices, const ech_trainer *trainer);

#endif
