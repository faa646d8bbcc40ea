/* Operands a piece at a time, as f32 whatever they are: for kernels that go over memory in pieces
 * that caches hold.
 *
 *     const float *x = ech__port_in(&k->ports, 0, first, count);   its own memory, or a slot
 *     float *y = ech__port_out(&k->ports, 2, first);               its own memory, or a slot
 *     ...
 *     ech__port_done(&k->ports, 2, first, count);                     rounds what is in the slot
 *
 * Each 16-bit operand has one slot for each thread, in the scratch of the plan; f32 has none and
 * costs nothing. An output may have the memory of an input: pieces are read before they are
 * written.
 */
#pragma once

#include "device/cpu/vec/vec.h"
#include "plan/kernel.h"

#include <omp.h>

typedef struct ech__ports {
    const ech__vec *vec;
    void *at[ECH__MAX_OPERANDS];
    ech_dtype dtype[ECH__MAX_OPERANDS];
    int slot[ECH__MAX_OPERANDS]; /* of a 16-bit operand; -1: none */
    int nslots;
    int64_t floats; /* of a slot: the largest piece */
    float *slots;   /* [threads][nslots][floats] */
} ech__ports;

/* Without any memory: for asking how much scratch is needed. */
static inline ech__ports ech__ports_of(const ech__vec *vec, const ech__kernel_desc *desc,
                                       int64_t largest_piece)
{
    ech__ports p = {.vec = vec, .floats = (largest_piece + 15) / 16 * 16};
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        p.dtype[i] = desc->operands[i].dtype;
        p.slot[i] = ech__dtype_is_low(p.dtype[i]) ? p.nslots++ : -1;
    }
    return p;
}

static inline int64_t ech__ports_bytes(const ech__ports *p, int threads)
{
    return threads * p->nslots * p->floats * (int64_t)sizeof(float);
}

static inline void ech__ports_bind(ech__ports *p, const ech__kernel_desc *desc,
                                   const ech__binding *binding, void *slots)
{
    for (int i = 0; i < desc->nin + desc->nout; i++)
        p->at[i] = binding->operands[i];
    p->slots = slots;
}

static inline float *ech__port_slot(const ech__ports *p, int operand)
{
    return p->slots + (omp_get_thread_num() * p->nslots + p->slot[operand]) * p->floats;
}

static inline const float *ech__port_in(const ech__ports *p, int operand, int64_t first,
                                        int64_t count)
{
    if (p->slot[operand] < 0)
        return (const float *)p->at[operand] + first;
    float *slot = ech__port_slot(p, operand);
    p->vec->widen(p->dtype[operand], count, (const uint16_t *)p->at[operand] + first, slot);
    return slot;
}

static inline float *ech__port_out(const ech__ports *p, int operand, int64_t first)
{
    return p->slot[operand] < 0 ? (float *)p->at[operand] + first : ech__port_slot(p, operand);
}

static inline void ech__port_done(const ech__ports *p, int operand, int64_t first, int64_t count)
{
    if (p->slot[operand] >= 0)
        p->vec->narrow(p->dtype[operand], count, ech__port_slot(p, operand),
                       (uint16_t *)p->at[operand] + first);
}
