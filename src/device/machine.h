/* What this machine is: for `echelon info` and for the head of every record. */
#pragma once

#include "base/file/json.h"
#include "base/system/cpus.h"
#include "device/isa.h"

typedef struct ech__machine {
    char processor[96];
    char vectors[96];  /* "avx2 fma", as far as kernels care */
    ech__isa isa;      /* the level in force */
    ech__isa best_isa; /* that of the processor */
    char system[160];  /* kernel and release */
    char onednn[48], openblas[48];
    int cores;              /* physical */
    int threads;            /* hardware threads */
    int usable;             /* hardware threads this process may use */
    int64_t cache_bytes[3]; /* L1 data, L2, L3 of the first core; 0: none */
    int64_t memory_bytes;
} ech__machine;

ech_status ech__machine_read(ech_ctx *ctx, ech__machine *out);
/* The same as an object, for records. */
ech_json *ech__machine_json(const ech__machine *machine);

enum { ECH__MAX_HWTHREADS = ECH__MAX_CPUS };

/* The hardware threads that this process may use, those of a physical core side by side. */
typedef struct ech__cores {
    int count; /* of threads */
    int cores; /* that they belong to */
    struct {
        int id;   /* as sched_setaffinity counts */
        int core; /* from 0, without gaps */
    } thread[ECH__MAX_HWTHREADS];
} ech__cores;

ech_status ech__machine_cores(ech_ctx *ctx, ech__cores *out);
/* The part of them for one of `ranks` ranks on this node: whole neighbouring cores, and
 * of them one thread each before the second ones. Where there are more ranks than cores each
 * gets one thread, first ones of all cores first, and where there are more than threads they
 * share them. Returns how many ids were written, at most max. */
int ech__share_cores(const ech__cores *cores, int rank, int ranks, int *ids, int max);
/* Both in one. */
ech_status ech__machine_share_cores(ech_ctx *ctx, int rank, int ranks, int *cores, int max,
                                    int *count);
