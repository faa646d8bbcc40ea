/* Epochs of a ResNet on CIFAR-10 on one and on several devices: runs that several studies look at,
 * each in its own way.
 *
 *     static const ech__lab_param params[] = {ECH__LAB_EPOCHS_PARAMS, {0}};
 *
 *     static void runs(ech__lab_runs *lab)
 *     {
 *         ech__lab_epochs(lab);               plan_b32, b32n1, b32n2, ..., b512n4
 *     }
 *
 *     static void tell(ech__sheet *s)
 *     {
 *         ech__tell_epochs(s);                figures images, b32, n2, steps_b32n2, ...
 *         ...
 *         ech__tell_cell(s, "total[%s comm_exposed_s]", ech__epoch_run(32, 2).s);
 *     }
 *
 * A run has two epochs, of which the first is the warm-up: statistics of its steps are of the
 * second epoch. The full lab trains ResNet-18 on all images, the quick one resnet8, which has the
 * same blocks with fewer channels, on some of them.
 */
#pragma once

#include "lab/sheet.h"

/* Sizes as rows of a card's params. Studies that keep them share their runs. */
/* clang-format off */
#define ECH__LAB_EPOCHS_PARAMS                                                          \
    {"images", 3072, 50000, 1, 50000, "training images of an epoch"},                   \
    {"batch", 32, 32, 1, 65536, "smallest batch of a device; the next are 4 times it"}, \
    {"memory_mb", 512, 16000, 1, 1000000, "memory of a device in MB"}
/* clang-format on */

/* Of the optimizer, also where only its memory counts; and the network of the profile. */
#define ECH__EPOCH_SGD "--momentum 0.9 --weight-decay 5e-4"
const char *ech__epoch_model(bool quick);

/* ---- running ---- */

/* Batches of a device, each four times the one before. */
enum { ECH__EPOCH_BATCHES = 3 };
int64_t ech__lab_batch(ech__lab_runs *lab, size_t index);
int64_t ech__tell_batch(ech__sheet *sheet, size_t index);
/* "b32n2": also what figures of the run are named by. */
ech__lab_id ech__epoch_run(int64_t batch, int64_t devices);
/* Of an epoch. */
int64_t ech__epoch_steps(int64_t images, int64_t batch, int64_t devices);
/* One run, or why there is none: a step has at most the images of an epoch. */
void ech__lab_epoch(ech__lab_runs *lab, int64_t batch, int64_t devices);
/* A run for each batch and number of devices, and before them the prediction for each batch,
 * plan_b32, which also measures the exchange that emulated runs price. */
void ech__lab_epochs(ech__lab_runs *lab);

/* ---- telling ---- */

/* Names what the study was set up with: images, bN for batches, nN for numbers of devices; and of each run that
 * was asked for by ech__lab_epochs, steps_RUN. */
void ech__tell_epochs(ech__sheet *sheet);
/* Says which network was trained on how many images, in the answer that has been begun. */
void ech__tell_say_network(ech__sheet *sheet);
