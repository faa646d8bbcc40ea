/* The order of a comparison: starts, rounds and looks, on anything that can run a block of steps.
 * compare.c drives processes with it, tests/compare/test_rounds.c a simulated machine.
 *
 * Start after start, all arms are started anew together and run a block each that only warms up; then come rounds,
 * in each of which every arm runs one block, in shuffled order. A round in which the probes saw a disturbance is
 * dropped as a whole and made up for. Probes decide that, never times of arms. A start most of whose rounds are
 * disturbed is set aside, and counts only where most starts are like that; nothing is decided then.
 *
 * Arm 0 is the baseline. The last arm is a copy of it and shows the machine's noise.
 */
#pragma once

#include "base/status.h"
#include "compare/decide.h"

enum { ECH__COMPARE_ARMS = 9 }; /* with the copy */

/* What the probes saw between two blocks. */
typedef struct ech__disturbance {
    double seconds;
    double foreign; /* cores that other programs used */
    double stolen;  /* share that the hypervisor took of the core that it took most from */
    double slow; /* time of the probe's loop on the slowest core, by what it usually takes there */
    /* Time of the loop on all cores at once by that on one core alone, at worst. About 2 where a hypervisor runs
     * two of the cores on one physical core: then two devices have the speed of one. 1 where the system says that
     * cores are hyperthreads. */
    double crowded;
    /* Time of a message between two cores by the shortest one seen, at worst. About 6 where a hypervisor has moved
     * them to different L3 caches: then ranks take longer to exchange anything. */
    double far;
} ech__disturbance;

/* What it takes to call a round disturbed. */
#define ECH__DISTURBED_FOREIGN 0.15
#define ECH__DISTURBED_STOLEN 0.05
#define ECH__DISTURBED_SLOW 1.4
#define ECH__DISTURBED_CROWDED 1.4
#define ECH__DISTURBED_FAR 2.5
bool ech__is_disturbed(const ech__disturbance *d);

typedef struct ech__block {
    double step_s; /* median of its steps without the first */
    int steps;
    double seconds; /* all of the block took */
    ech__disturbance seen;
} ech__block;

typedef struct ech__rounds_ops {
    ech_status (*start)(void *self);
    ech_status (*block)(void *self, int arm, double seconds, ech__block *out);
    void (*end)(void *self);      /* after start, whether it succeeded or not */
    double (*now)(void *self);    /* seconds */
    bool (*is_over)(void *self);  /* the user wants to see what is known so far */
    void (*progress)(void *self); /* something has changed; may be NULL */
} ech__rounds_ops;

typedef struct ech__rounds_options {
    int arms; /* with the copy */
    double budget_s;
    double begin_s;                       /* by now(): when the budget began to run */
    double block_s;                       /* of a block, at least */
    double thresholds[ECH__COMPARE_ARMS]; /* what the ratio of each arm is judged by */
    double half_width;                    /* of intervals that are narrow enough, relative */
    uint64_t seed;                        /* of the order */
} ech__rounds_options;

typedef struct ech__rounds {
    /* [arm][start]: log(time of arm 0 / time of the arm), so that more means that the arm is faster */
    double logs[ECH__COMPARE_ARMS][ECH__COMPARE_STARTS];
    double times[ECH__COMPARE_ARMS][ECH__COMPARE_STARTS]; /* median step time of each start */
    int starts, blocks;
    int planned;              /* rounds of a start */
    int kept, dropped;        /* rounds */
    int disturbed;            /* starts most of whose rounds were disturbed */
    ech__disturbance average; /* over all rounds that count */
    int start, round;         /* now */
    double start_s, round_s;  /* a start and a round take; 0: not known yet */
    double left_s;            /* about; less than 0: not known yet */
    bool is_decided;  /* all intervals are as narrow as asked for, and all arms are decided on */
    bool was_stopped; /* by is_over */
    bool counts_disturbed; /* most starts were disturbed, so that they count too */
    bool lacks_time;       /* the budget is too small for the fewest starts */
    ech_status status;
} ech__rounds;

/* *out holds what is known also where something fails. */
ech_status ech__rounds_run(const ech__rounds_options *options, const ech__rounds_ops *ops,
                           void *self, ech__rounds *out);

/* Of an arm by arm 0. */
ech__ratio ech__rounds_ratio(const ech__rounds *rounds, int arm);
/* Undecided where the starts were disturbed: other programs bias a ratio, they do not only add noise to it. */
ech__decision ech__rounds_decide(const ech__rounds *rounds, int arm, double threshold);
