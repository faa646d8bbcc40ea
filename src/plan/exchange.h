/* What an exec asks of the other ranks. The plan owns the interface, src/parallel implements it.
 *
 * Operators whose row says `exchange` have no kernels on a device: they are created here, and run
 * in their place among the others. An all-reduce of gradients only starts there; it goes on in
 * ech__exchange_ops.progress, which the exec calls between operators, and ends in an operator that
 * waits. */
#pragma once

#include "plan/account.h"
#include "plan/kernel.h"

typedef struct ech__exchange ech__exchange;

typedef struct ech__exchange_ops {
    /* Zeroed memory, as many bytes on every rank, that they reduce in place. Collective. */
    ech_status (*alloc)(ech__exchange *exchange, int64_t bytes, void **out);
    void (*free)(ech__exchange *exchange, void *ptr);
    /* update: the kernel that changes the parameters of an all-reduce that has some; taken over,
     * may be NULL. The binding is of memory of the device. */
    ech_status (*create)(ech__exchange *exchange, ech__device *device, const ech__kernel_desc *desc,
                         const ech__binding *binding, ech__kernel *update, ech__kernel **out);
    ech_status (*progress)(ech__exchange *exchange);
    /* When bytes were on their way since the last call, by the plan's clock; good until the next
     * operator. NULL: never. */
    ech__spans (*transfers)(ech__exchange *exchange);
} ech__exchange_ops;

/* A clock that goes on only while this device computes: operators count with the time that their
 * thread had a core, delays with what they state, exchanges with what they would cost. For more
 * devices than there are cores. */
typedef struct ech__virtual_clock {
    int64_t now_ns;
} ech__virtual_clock;

struct ech__exchange {
    const ech__exchange_ops *ops;
    int rank, world;
};
