/* What one device leaves for another: where it lies, and whether it has been fetched. A mail
 * belongs to one transfer of one micro-batch and is used again in every step.
 *
 * The sender may not touch what it sent until it was taken; it rings the receiver's bell, and the
 * receiver its own sender's. A bell is waited for by one thread, its device's worker, and rung by
 * any. */
#ifndef ECH_PARALLEL_MAIL_H
#define ECH_PARALLEL_MAIL_H

#include "plan/kernel.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ech__bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    bool made;
} ech__bell;

ech_status ech__bell_init(ech_ctx *ctx, ech__bell *bell);
void ech__bell_fini(ech__bell *bell);
/* Wakes who waits. What it waits for was stored before. */
void ech__bell_ring(ech__bell *bell);

typedef struct ech__mail {
    _Atomic uint64_t sent, taken; /* times; equal: nothing is under way */
    const void *src;
    int64_t clock_ns; /* of the sender's virtual clock when it was sent */
    /* of the last time, by the clock that the devices run by */
    int64_t sent_ns, fetch_ns, taken_ns;
    int64_t bytes;
    int from, to;
} ech__mail;

/* Waits until a counter has reached a number, or until *failed is no longer 0: false then. Looks for spin_ns before it
 * sleeps. */
bool ech__mail_await(ech__bell *bell, _Atomic uint64_t *counter, uint64_t number,
                     _Atomic int *failed, int64_t spin_ns);

#endif
