#include "base/system/threads.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

static void *wait_for(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

ech_status ech__threads_check(ech_ctx *ctx, const char *what, int count)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[ECH__THREADS_MOST];
    int started = 0, error = 0;
    assert(count <= ECH__THREADS_MOST);
    pthread_mutex_lock(&gate); /* so that none is over before the last one has begun */
    while (started < count && !error) {
        error = pthread_create(&threads[started], NULL, wait_for, &gate);
        started += !error;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return error ? ech__fail(ctx, ECH_E_LIMIT,
                             "%s needs %d thread%s, of which %d can be started: %s; see ulimit -u",
                             what, count, count == 1 ? "" : "s", started, strerror(error))
                 : ECH_OK;
}
