#include "lab/epochs.h"
#include "lab/shared.h"

#include <stdio.h>

const char *ech__epoch_model(bool quick)
{
    return quick ? "resnet8" : "resnet18";
}

int64_t ech__lab_batch(ech__lab_runs *lab, size_t index)
{
    return ech__lab_param_of(lab, "batch") << 2 * index;
}

int64_t ech__tell_batch(ech__sheet *sheet, size_t index)
{
    return ech__tell_param(sheet, "batch") << 2 * index;
}

ech__lab_id ech__epoch_run(int64_t batch, int64_t devices)
{
    return ech__lab_name("b%" PRId64 "n%" PRId64, batch, devices);
}

int64_t ech__epoch_steps(int64_t images, int64_t batch, int64_t devices)
{
    return (images + batch * devices - 1) / (batch * devices);
}

/* ---- running ---- */

void ech__lab_epoch(ech__lab_runs *lab, int64_t batch, int64_t devices)
{
    const int64_t images = ech__lab_param_of(lab, "images");
    if (batch * devices > images) {
        ech__lab_skip(lab, ech__epoch_run(batch, devices).s,
                      "an epoch of %" PRId64 " images has no step of %" PRId64, images,
                      batch * devices);
        return;
    }
    ech__lab_run(lab, ech__epoch_run(batch, devices).s,
                 "train --model %s @images --limit %" PRId64 " --epochs 2 --warmup %" PRId64
                 " --batch-size %" PRId64 " --devices %" PRId64 " --lr 0.1 " ECH__EPOCH_SGD
                 " --device-memory %" PRId64 "MB",
                 ech__epoch_model(ech__lab_quick(lab)), images,
                 ech__epoch_steps(images, batch, devices), batch, devices,
                 ech__lab_param_of(lab, "memory_mb"));
}

void ech__lab_epochs(ech__lab_runs *lab)
{
    char devices[256];
    ech__lab_list_devices(lab, devices, sizeof devices);
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        const int64_t batch = ech__lab_batch(lab, k);
        const ech__lab_id id = ech__lab_name("plan_b%" PRId64, batch);
        if (ech__lab_quick(lab) && k + 1 == ECH__EPOCH_BATCHES)
            ech__lab_skip(lab, id.s,
                          "measuring what it would be predicted from takes as long as "
                          "the runs: only the full lab does");
        else
            ech__lab_run(lab, id.s,
                         "plan --model %s --batch-size %" PRId64 " --devices %s " ECH__EPOCH_SGD
                         " --measure-seconds %s",
                         ech__epoch_model(ech__lab_quick(lab)), batch, devices,
                         ech__lab_quick(lab) ? "0.3" : "1.5");
    }
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 0; i < ech__lab_devices(lab); i++)
            ech__lab_epoch(lab, ech__lab_batch(lab, k), ech__lab_device(lab, i));
    }
}

/* ---- telling ---- */

void ech__tell_epochs(ech__sheet *s)
{
    const int64_t images = ech__tell_param(s, "images");
    ech__tell_let(s, "images", "integer", "%" PRId64, images);
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_let(s, ech__lab_name("n%" PRId64, n).s, "integer", "%" PRId64, n);
    }
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        const int64_t b = ech__tell_batch(s, k);
        ech__tell_let(s, ech__lab_name("b%" PRId64, b).s, "integer", "%" PRId64, b);
        for (size_t i = 0; i < ech__tell_devices(s); i++) {
            const int64_t n = ech__tell_device(s, i);
            ech__tell_let(s, ech__lab_name("steps_%s", ech__epoch_run(b, n).s).s, "integer",
                          "%" PRId64, ech__epoch_steps(images, b, n));
        }
    }
}

void ech__tell_say_network(ech__sheet *s)
{
    ech__tell_sayf(s, "%s, {images} images of %s an epoch.",
                   ech__tell_quick(s)
                       ? "The network is resnet8: the blocks of ResNet-18, one a stage and narrow"
                       : "The network is ResNet-18",
                   ech__tell_real_images(s) ? "CIFAR-10" : "a synthetic set");
}
