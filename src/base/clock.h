/* Two clocks, both in nanoseconds: what the wall saw, and what this thread's core really did. */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

static inline int64_t ech__clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Monotonic time. */
static inline int64_t ech__clock_wall(void)
{
    return ech__clock_read(CLOCK_MONOTONIC);
}

/* CPU time of the calling thread. */
static inline int64_t ech__clock_cpu(void)
{
    return ech__clock_read(CLOCK_THREAD_CPUTIME_ID);
}

static inline double ech__seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* The shortest there is, between two looks at what another thread may write. */
static inline void ech__clock_pause(void)
{
#ifdef ECH_X86
    __builtin_ia32_pause();
#endif
}

/* Idles until seconds from now, signals or not. */
static inline void ech__clock_sleep(double seconds)
{
    const int64_t until = ech__clock_wall() + (int64_t)(seconds * 1e9);
    const struct timespec deadline = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        ;
}

#endif
