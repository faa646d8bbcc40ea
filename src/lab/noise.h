/* How much equal things differ on this machine, measured before anything is compared.
 *
 * Two figures: a fixed loop of about a millisecond, over and over on one thread, tells how quiet
 * the machine is while nothing else of the lab runs; a short training, repeated in processes of its
 * own, tells by how much equal runs differ. It is run once more before each further study: machines
 * that are shared move more in minutes than in seconds.
 */
#pragma once

#include "lab/lab.h"

enum { ECH__NOISE_MOST = 128 }; /* equal runs that count */

typedef struct ech__lab_noise {
    double idle_s;                   /* median time of the loop */
    double idle_spread;              /* its 95th percentile over its median */
    size_t runs;                     /* equal ones that finished */
    double medians[ECH__NOISE_MOST]; /* of their step times */
    double spread; /* standard deviation of the medians' logarithm; 0: fewer than two finished */
} ech__lab_noise;

/* The loop alone, for about so many seconds. */
ech_status ech__noise_idle(ech_ctx *ctx, double seconds, ech__lab_noise *out);
/* Of positive times; 0 of fewer than two. */
double ech__noise_spread(const double *times, size_t count);

/* Both, with the equal runs among the lab's own. */
ech_status ech__lab_measure_noise(ech__lab *lab);
/* One more of the equal runs. */
ech_status ech__lab_measure_again(ech__lab *lab);
/* The figures of lab.json's "noise"; the caller owns them. */
ech_json *ech__lab_noise_json(const ech__lab_noise *noise);
