#include "comm/helper.h"

#include "base/system/clock.h"
#include "base/system/cpus.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Sleep between two looks, growing while nothing comes. The system's sockets take in what arrives
 * meanwhile. */
static const double SHORTEST_S = 20e-6, LONGEST_S = 500e-6;

struct ech__helper {
    ech__comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    _Atomic int callers; /* that want the lock: the helper leaves it to them */
    _Atomic int status;  /* of the helper's failure */
    bool stop;
    char error[1024];
};

/* One chunk, with the lock held. */
static void work(ech__helper *h, bool *moved, bool *busy)
{
    const ech_status status = h->comm->ops->step(h->comm, moved, busy);
    if (status >= 0)
        return;
    snprintf(h->error, sizeof h->error, "%s", h->comm->ctx->error);
    atomic_store(&h->status, (int)status);
    *busy = false;
}

static void *run(void *arg)
{
    ech__helper *h = arg;
    double pause_s = SHORTEST_S;
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        bool moved = false, busy = false;
        if (!atomic_load(&h->status))
            work(h, &moved, &busy);
        if (!busy) {
            pthread_cond_wait(&h->work, &h->lock);
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        pause_s = moved ? SHORTEST_S : pause_s * 2 < LONGEST_S ? pause_s * 2 : LONGEST_S;
        if (!moved)
            ech__clock_sleep(pause_s);
        while (atomic_load(&h->callers))
            sched_yield();
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

ech_status ech__helper_start(ech__comm *comm)
{
    ech__helper *h = ech__new(comm->ctx, sizeof *h);
    sigset_t all, before;
    if (!h)
        return ech__no_memory(comm->ctx, "the thread that exchanges gradients");
    h->comm = comm;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    sigfillset(&all); /* signals are for the threads that know them */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        ech__delete(comm->ctx, h, sizeof *h);
        return ech__fail(comm->ctx, ECH_E_IO, "no thread to exchange gradients: %s",
                         strerror(error));
    }
    comm->helper = h;
    return ECH_OK;
}

ech_status ech__helper_start_if(ech__comm *comm, ech__help help, int threads)
{
    ech__cpus own;
    if (comm->nodes == 1 || help == ECH__HELP_OFF)
        return ECH_OK;
    /* Cores of this rank, which others may have too where ranks are not bound. */
    const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
    const bool spare = threads > 0 && cores >= (int64_t)comm->local_world * (threads + 1) &&
                       ech__cpus_read(&own) && ech__cpus_count(&own) > threads;
    return help == ECH__HELP_ON || spare ? ech__helper_start(comm) : ECH_OK;
}

void ech__helper_stop(ech__helper *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->work);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->work);
    pthread_mutex_destroy(&h->lock);
    ech__delete(h->comm->ctx, h, sizeof *h);
}

ech_status ech__helper_status(ech__comm *comm)
{
    const ech_status status = (ech_status)atomic_load(&comm->helper->status);
    return status < 0 ? ech__fail(comm->ctx, status, "%s", comm->helper->error) : ECH_OK;
}

ech_status ech__helper_enter(ech__comm *comm)
{
    ech__helper *h = comm->helper;
    atomic_fetch_add(&h->callers, 1);
    pthread_mutex_lock(&h->lock);
    atomic_fetch_sub(&h->callers, 1);
    const ech_status status = ech__helper_status(comm);
    if (status < 0)
        pthread_mutex_unlock(&h->lock);
    return status;
}

void ech__helper_leave(ech__comm *comm)
{
    pthread_cond_signal(&comm->helper->work);
    pthread_mutex_unlock(&comm->helper->lock);
}
