/* Where @images of a study come from: CIFAR-10 if it can be had, else synthetic images of the same shape. */
#pragma once

#include "lab/lab.h"

typedef struct ech__lab_images {
    enum {
        ECH__LAB_IMAGES_UNASKED, /* no study wanted any yet */
        ECH__LAB_IMAGES_REAL,
        ECH__LAB_IMAGES_SYNTHETIC,
    } kind;
    const char *dir; /* of the real ones */
    const char *
        text; /* for the report: "CIFAR-10", or why they are synthetic; NULL while nobody has asked. Under the mutex. */
} ech__lab_images;

/* Whether a directory holds the six files, by their sizes. */
bool ech__images_are_in(const char *dir);
/* Looks in --data-dir, in $ECH_CIFAR and in OUT/cifar10, and fetches them to there; the first call
 * decides for the whole lab. */
ech_status ech__lab_find_images(ech__lab *lab);
