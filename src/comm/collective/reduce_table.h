/* The loops of reduce.c, compiled once for each vector width. All widths give the same bits. */
#ifndef ECH_COMM_COLLECTIVE_REDUCE_TABLE_H
#define ECH_COMM_COLLECTIVE_REDUCE_TABLE_H

#include "comm/collective/reduce.h"

/* A reduction as ech__reduce takes it, checked. */
typedef struct ech__reduce_task {
    ech__reduction reduction;
    ech_dtype dtype;
    int64_t count;
    const void *const *src;
    void *const *dst;
    int nsrc, ndst, divisor;
} ech__reduce_task;

typedef struct ech__reduce_table {
    const char *name;
    void (*run)(const ech__reduce_task *task);
    void (*copy)(void *dst, const void *src, int64_t bytes);
} ech__reduce_table;

extern const ech__reduce_table ech__reduce_generic, ech__reduce_avx2, ech__reduce_avx512;

/* The widest that the level in force allows (device/isa.h). */
const ech__reduce_table *ech__reduce_best(void);

#endif
