#include "plan/account.h"

#include <stdbool.h>

/* Whether one of the spans covers now; lowers *next to the time where that may change. Time only
 * goes on: those that have ended are left behind. */
static bool covers(ech__spans *spans, int64_t now, int64_t *next)
{
    while (spans->count && spans->at->end_ns <= now) {
        spans->at++;
        spans->count--;
    }
    if (!spans->count)
        return false;
    const bool inside = spans->at->start_ns <= now;
    const int64_t edge = inside ? spans->at->end_ns : spans->at->start_ns;
    if (edge < *next)
        *next = edge;
    return inside;
}

ech__account ech__account_for(ech__span step, ech__spans computing, ech__spans moving,
                              ech__spans blocked)
{
    ech__account account = {0};
    for (int64_t now = step.start_ns, next; now < step.end_ns; now = next) {
        next = step.end_ns;
        const bool computes = covers(&computing, now, &next), moves = covers(&moving, now, &next);
        const bool waits = covers(&blocked, now, &next);
        int64_t *part = computes ? &account.computing_ns
                        : moves  ? &account.exposed_ns
                        : waits  ? &account.wait_ns
                                 : &account.other_ns;
        *part += next - now;
        if (computes && moves)
            account.hidden_ns += next - now;
    }
    return account;
}
