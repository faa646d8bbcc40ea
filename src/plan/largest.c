#include "plan/largest.h"

typedef struct point {
    int64_t batch, bytes;
} point;

typedef struct search {
    int64_t limit;
    point good;   /* the largest that is known to fit; batch 0: none */
    point bad;    /* the smallest that is known not to; batch 0: none */
    double slope; /* bytes of a sample, by the last two answers; 0: unknown */
} search;

/* Where the line through the last answers meets the limit. */
static int64_t on_line(const search *s)
{
    if (!(s->slope > 0))
        return s->good.batch * 2;
    const double more = (double)(s->limit - s->good.bytes) / s->slope;
    return more < (double)INT32_MAX ? s->good.batch + (int64_t)more : INT32_MAX;
}

static int64_t next_batch(const search *s, int round)
{
    const int64_t least = s->good.batch + 1;
    const int64_t most = s->bad.batch ? s->bad.batch - 1 : INT32_MAX;
    int64_t guess = on_line(s);
    if (s->bad.batch && round % 2 == 0)
        guess = s->good.batch + (s->bad.batch - s->good.batch) / 2;
    return guess < least ? least : guess > most ? most : guess;
}

static void learn(search *s, point tried, point before)
{
    if (tried.bytes != INT64_MAX && before.bytes != INT64_MAX && tried.batch != before.batch) {
        const double slope =
            (double)(tried.bytes - before.bytes) / (double)(tried.batch - before.batch);
        s->slope = slope > 0 ? slope : 0;
    }
    if (tried.bytes <= s->limit)
        s->good = tried;
    else
        s->bad = tried;
}

ech_status ech__largest_batch(ech__bytes_of_batch bytes_of, void *user, int64_t limit, int64_t *out)
{
    search s = {.limit = limit};
    point before = {1, 0};
    *out = 0;
    ECH_TRY(bytes_of(user, 1, &before.bytes));
    if (before.bytes > limit)
        return ECH_OK;
    s.good = before;
    for (int round = 0; s.good.batch < INT32_MAX && s.good.batch + 1 != s.bad.batch; round++) {
        point tried = {.batch = next_batch(&s, round)};
        ECH_TRY(bytes_of(user, tried.batch, &tried.bytes));
        learn(&s, tried, before);
        before = tried;
    }
    *out = s.good.batch;
    return ECH_OK;
}
