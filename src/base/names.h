/* The names of an enum that a list made: LIST(X) has one X(id, text, ...) for each member, in order.
 *
 *     ECH__NAMES(ech__phase_name, ech__phase, ECH__PHASE_LIST)
 *
 * defines const char *ech__phase_name(ech__phase), which says "unknown" of what is no member. */
#pragma once

#include <stddef.h>

#define ECH__FIRST_OF(first, ...) first
#define ECH__TEXT_OF(id, ...) ECH__FIRST_OF(__VA_ARGS__, 0),

#define ECH__NAMES(function, type, LIST)                                                           \
    const char *function(type member)                                                              \
    {                                                                                              \
        static const char *const texts[] = {LIST(ECH__TEXT_OF)};                                   \
        return (size_t)member < sizeof texts / sizeof *texts ? texts[member] : "unknown";          \
    }
