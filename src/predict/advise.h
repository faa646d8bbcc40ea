/* Questions that prices answer: from where on communication is half of a step, and what to run. */
#pragma once

#include "predict/pricing.h"

/* Samples of a step: so many on each device, or so many over all. One of them is 0. */
typedef struct ech__load {
    int64_t batch, global;
} ech__load;

int64_t ech__load_of(const ech__load *load, int64_t devices);

/* Prices on N devices beside that of one device with the same load. */
typedef struct ech__scaled {
    ech__price price;
    int64_t memory;    /* of the device that needs most */
    double speedup;    /* samples per second by those of one device */
    double efficiency; /* speedup / N */
} ech__scaled;

ech_status ech__scale(ech__pricing *pricing, const ech__load *load, int64_t devices,
                      ech__scaled *out);

typedef struct ech__break_even {
    /* The least number of devices, 2 or more, from which exposed communication takes half of the
     * step or more; 0: it never does. */
    int64_t devices;
    /* The largest batch per device for which it does so on two devices; 0: not even for one sample. */
    int64_t batch;
} ech__break_even;

ech_status ech__find_break_even(ech__pricing *pricing, const ech__load *load, ech__break_even *out);

/* Where something changes as devices are added. */
typedef struct ech__crossing {
    int64_t devices;
    char what[64]; /* "communication is half", "tree is cheapest", "96 samples do not divide" */
} ech__crossing;

enum { ECH__MOST_CROSSINGS = 11 };

/* Up to `most` devices: from where on communication takes half of the step (half->devices), and, among
 * the powers of two, where another algorithm has the least price for the largest bucket, and the first
 * that does not divide a given global batch. Returns in *count how many there are, by devices. */
ech_status ech__find_crossings(ech__pricing *pricing, const ech__load *load,
                               const ech__break_even *half, int64_t most, ech__crossing *out,
                               int *count);

typedef struct ech__advice {
    bool possible; /* some number of devices above 1 reaches the efficiency */
    /* The most samples per second among devices and batches that do. */
    ech__scaled best;
    /* With the load as it was given. */
    int64_t devices; /* the most that do; 1: none do */
} ech__advice;

/* Over powers of two and the numbers given, up to `most` devices; batches are those whose costs are
 * known. memory: most bytes of a device; 0: no limit. */
ech_status ech__advise(ech__pricing *pricing, const ech__load *load, int64_t most,
                       double efficiency, int64_t memory, ech__advice *out);
