/* Two clocks, both in nanoseconds: what the wall saw, and what this thread's core really did. */
#pragma once

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

/* Time spent waiting, which time-outs are compared with. While the whole job is suspended (SIGSTOP,
 * Ctrl-Z, a scheduler's suspend) the clock advances, but this is not waiting. So a waiter reads the
 * clock at least once per slice, and the time between two readings counts as at most two slices:
 * more means that it was not running.
 *
 *     ech__waited waited = ech__waited_start();
 *     while (!ready_within(ech__waited_slice(&waited, limit)) && ech__waited_look(&waited) < limit) {}
 *
 */
enum { ECH__WAIT_SLICE_NS = 100 * 1000 * 1000 };

typedef struct ech__waited {
    int64_t looked_ns, total_ns;
} ech__waited;

static inline ech__waited ech__waited_start(void)
{
    return (ech__waited){.looked_ns = ech__clock_wall()};
}

/* All that was waited until now, in nanoseconds. */
static inline int64_t ech__waited_look(ech__waited *waited)
{
    const int64_t now = ech__clock_wall(), gap = now - waited->looked_ns;
    waited->total_ns += gap < 2 * ECH__WAIT_SLICE_NS ? gap : 2 * ECH__WAIT_SLICE_NS;
    waited->looked_ns = now;
    return waited->total_ns;
}

/* How long to sleep before the next look, of what is left until the limit: at least 1 ns, at most a slice. */
static inline int64_t ech__waited_slice(const ech__waited *waited, int64_t limit_ns)
{
    const int64_t left = limit_ns - waited->total_ns;
    return left < 1 ? 1 : left < ECH__WAIT_SLICE_NS ? left : ECH__WAIT_SLICE_NS;
}
