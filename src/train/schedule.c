#include "train/schedule.h"

#include <math.h>

const char *ech__schedule_name(ech__schedule_kind kind)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        ECH__SCHEDULE_LIST(NAME)
#undef NAME
    };
    return names[kind];
}

double ech__schedule_lr(const ech__schedule *s, int64_t step)
{
    switch (s->kind) {
    case ECH__SCHEDULE_STEP: {
        const int64_t drops = step / s->interval;
        return s->lr * pow(s->gamma, (double)drops);
    }
    case ECH__SCHEDULE_COSINE:
        return s->lr * (1 + cos(M_PI * (double)step / (double)s->steps)) / 2;
    case ECH__SCHEDULE_CONSTANT:
        break;
    }
    return s->lr;
}
