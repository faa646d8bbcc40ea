/* What this machine is: for `echelon info` and for the head of every record. */
#ifndef ECH_DEVICE_MACHINE_H
#define ECH_DEVICE_MACHINE_H

#include "base/json.h"

typedef struct ech__machine {
    char processor[96];
    char vectors[96]; /* "avx2 fma", as far as kernels care */
    char system[160]; /* kernel and release */
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

#endif
