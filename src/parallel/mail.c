#include "parallel/mail.h"
#include "base/system/clock.h"

ech_status ech__bell_init(ech_ctx *ctx, ech__bell *bell)
{
    const int lock = pthread_mutex_init(&bell->lock, NULL);
    const int rung = lock ? lock : pthread_cond_init(&bell->rung, NULL);
    if (!lock && rung)
        pthread_mutex_destroy(&bell->lock);
    bell->made = !lock && !rung;
    return bell->made ? ECH_OK
                      : ech__fail(ctx, ECH_E_NOMEM, "the system gave no lock for a device");
}

void ech__bell_fini(ech__bell *bell)
{
    if (!bell->made)
        return;
    pthread_cond_destroy(&bell->rung);
    pthread_mutex_destroy(&bell->lock);
    bell->made = false;
}

void ech__bell_ring(ech__bell *bell)
{
    pthread_mutex_lock(&bell->lock); /* so that nobody is between looking and sleeping */
    pthread_cond_broadcast(&bell->rung);
    pthread_mutex_unlock(&bell->lock);
}

static bool is_over(_Atomic uint64_t *counter, uint64_t number, _Atomic int *failed)
{
    return atomic_load_explicit(counter, memory_order_acquire) >= number || atomic_load(failed);
}

bool ech__mail_await(ech__bell *bell, _Atomic uint64_t *counter, uint64_t number,
                     _Atomic int *failed, int64_t spin_ns)
{
    const int64_t until = spin_ns ? ech__clock_wall() + spin_ns : 0;
    while (spin_ns && !is_over(counter, number, failed) && ech__clock_wall() < until)
        ;
    if (!is_over(counter, number, failed)) {
        pthread_mutex_lock(&bell->lock);
        while (!is_over(counter, number, failed))
            pthread_cond_wait(&bell->rung, &bell->lock);
        pthread_mutex_unlock(&bell->lock);
    }
    return !atomic_load(failed);
}
