/* Where the time of a step goes on one rank. Every instant counts once, for the first of these that
 * applies:
 *
 *     computing    an operator of the model or of the optimizer runs
 *     exposed      bytes are on their way, and this rank does nothing else
 *     wait         this rank stands in an operator of the exchange, because another one is late
 *     other        all the rest
 *
 * so that step = computing + exposed + wait + other. Hidden communication is the time in which
 * bytes are on their way under this rank's own computing; it is part of computing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct ech__span {
    int64_t start_ns, end_ns; /* of the monotonic clock */
} ech__span;

/* Ordered by their start; they may overlap. */
typedef struct ech__spans {
    const ech__span *at;
    size_t count;
} ech__spans;

typedef struct ech__account {
    int64_t computing_ns, exposed_ns, wait_ns, other_ns;
    int64_t hidden_ns; /* of computing */
} ech__account;

/* moving: bytes are on their way; blocked: in an operator of the exchange. What lies outside of the
 * step does not count. */
ech__account ech__account_for(ech__span step, ech__spans computing, ech__spans moving,
                              ech__spans blocked);
