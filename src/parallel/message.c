#include "parallel/message.h"
#include "base/system/clock.h"

ech_status ech__condition_init(ech_ctx *ctx, ech__condition *condition)
{
    const int lock = pthread_mutex_init(&condition->lock, NULL);
    const int changed = lock ? lock : pthread_cond_init(&condition->changed, NULL);
    if (!lock && changed)
        pthread_mutex_destroy(&condition->lock);
    condition->made = !lock && !changed;
    return condition->made ? ECH_OK : ech__no_memory(ctx, "the lock of a device");
}

void ech__condition_fini(ech__condition *condition)
{
    if (!condition->made)
        return;
    pthread_cond_destroy(&condition->changed);
    pthread_mutex_destroy(&condition->lock);
    condition->made = false;
}

void ech__condition_notify(ech__condition *condition)
{
    pthread_mutex_lock(&condition->lock); /* so that no thread is between the test and the wait */
    pthread_cond_broadcast(&condition->changed);
    pthread_mutex_unlock(&condition->lock);
}

static bool is_over(_Atomic uint64_t *counter, uint64_t number, _Atomic int *failed)
{
    return atomic_load_explicit(counter, memory_order_acquire) >= number || atomic_load(failed);
}

bool ech__message_await(ech__condition *condition, _Atomic uint64_t *counter, uint64_t number,
                        _Atomic int *failed, int64_t spin_ns)
{
    const int64_t until = spin_ns ? ech__clock_wall() + spin_ns : 0;
    while (spin_ns && !is_over(counter, number, failed) && ech__clock_wall() < until)
        ;
    if (!is_over(counter, number, failed)) {
        pthread_mutex_lock(&condition->lock);
        while (!is_over(counter, number, failed))
            pthread_cond_wait(&condition->changed, &condition->lock);
        pthread_mutex_unlock(&condition->lock);
    }
    return !atomic_load(failed);
}
