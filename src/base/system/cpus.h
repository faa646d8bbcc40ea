/* A set of processors, as many as Linux can be built for: cpu_set_t has room for 1024, and the system refuses to
 * fill one that is too small.
 *
 *     ech__cpus mine;
 *     if (ech__cpus_read(&mine)) ... ech__cpus_has(&mine, 5) ... ech__cpus_count(&mine) ...
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { ECH__MAX_CPUS = 8192, ECH__CPU_WORDS = ECH__MAX_CPUS / 64 };

typedef struct ech__cpus {
    uint64_t word[ECH__CPU_WORDS]; /* processor c is bit c % 64 of word c / 64 */
} ech__cpus;

static inline bool ech__cpus_has(const ech__cpus *set, int cpu)
{
    return cpu >= 0 && cpu < ECH__MAX_CPUS && (set->word[cpu / 64] >> cpu % 64 & 1);
}

/* A processor beyond the size of the set is ignored. */
static inline void ech__cpus_add(ech__cpus *set, int cpu)
{
    if (cpu >= 0 && cpu < ECH__MAX_CPUS)
        set->word[cpu / 64] |= (uint64_t)1 << cpu % 64;
}

static inline void ech__cpus_add_all(ech__cpus *set, const ech__cpus *other)
{
    for (int w = 0; w < ECH__CPU_WORDS; w++)
        set->word[w] |= other->word[w];
}

static inline int ech__cpus_count(const ech__cpus *set)
{
    int count = 0;
    for (int w = 0; w < ECH__CPU_WORDS; w++)
        count += __builtin_popcountll(set->word[w]);
    return count;
}

static inline bool ech__cpus_equal(const ech__cpus *a, const ech__cpus *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* What the calling thread may use. Empty, and false with errno, where the system does not say. */
static inline bool ech__cpus_read(ech__cpus *out)
{
    memset(out, 0, sizeof *out);
    return sched_getaffinity(0, sizeof *out, (cpu_set_t *)(void *)out) == 0;
}

/* Binds the calling thread. False with errno where that is refused. */
static inline bool ech__cpus_bind(const ech__cpus *set)
{
    return sched_setaffinity(0, sizeof *set, (const cpu_set_t *)(const void *)set) == 0;
}
