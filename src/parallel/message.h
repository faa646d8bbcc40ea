/* What one device sends to another: its address, and whether the receiver has fetched it. A message
 * belongs to one transfer of one micro-batch and is reused in every step.
 *
 * The sender does not overwrite what it sent until the receiver has fetched it. The sender notifies
 * the receiver's condition, and the receiver notifies the sender's. One thread waits for a
 * condition, the worker of its device; any thread may notify it. */
#pragma once

#include "plan/kernel.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ech__condition {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool made;
} ech__condition;

ech_status ech__condition_init(ech_ctx *ctx, ech__condition *condition);
void ech__condition_fini(ech__condition *condition);
/* Wakes the thread that waits. The caller has stored what that thread waits for. */
void ech__condition_notify(ech__condition *condition);

typedef struct ech__message {
    _Atomic uint64_t sent, taken; /* how often; equal: nothing is in flight */
    const void *src;
    int64_t clock_ns; /* of the sender's virtual clock when it was sent */
    /* of the last time, by the clock that the devices run by */
    int64_t sent_ns, fetch_ns, taken_ns;
    int64_t bytes;
    int from, to;
} ech__message;

/* Waits until a counter has reached a number, and returns true, or until *failed is no longer 0.
 * Spins for spin_ns before it sleeps. */
bool ech__message_await(ech__condition *condition, _Atomic uint64_t *counter, uint64_t number,
                        _Atomic int *failed, int64_t spin_ns);
