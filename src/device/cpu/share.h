/* How kernels cut work into pieces and share them out to threads. */
#pragma once

#include <omp.h>
#include <stdint.h>

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* [first, end) */
typedef struct range {
    int64_t first, end;
} range;

/* The calling thread's share of count things, inside a parallel region. */
static inline range share_of(int64_t count)
{
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    return (range){count * me / threads, count * (me + 1) / threads};
}
