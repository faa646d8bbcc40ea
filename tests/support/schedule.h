/* All-reduces as lists of messages, the long way round: what the closed prices of
 * price/collective.h are counted against, and what the skeleton in tools/simgrid sends.
 *
 * Messages of a step go at the same time; a device begins its next step when its own messages of this one are done.
 */
#ifndef ECH_TESTS_SCHEDULE_H
#define ECH_TESTS_SCHEDULE_H

#include "price/collective.h"

typedef struct schedule_message {
    int64_t step; /* from 0 on, never less than that of the message before */
    int64_t src, dst;
    double bytes;
} schedule_message;

typedef struct schedule {
    ech__algorithm algorithm; /* not BEST */
    int64_t devices, per_node;
    double bytes;
    void (*visit)(void *user, const schedule_message *message);
    void *user;
} schedule;

/* Calls visit for every message. Returns the number of steps. */
int64_t schedule_run(const schedule *s);

#endif
