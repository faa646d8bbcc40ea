#include "support/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_UP, DEVICE_DOWN, NODE_UP, NODE_DOWN, PORTS };

/* A message: waits for its ends, then for its latency, then flows. */
typedef struct message {
    int64_t from, to;
    double bytes;     /* that are left */
    double starts_at; /* its bytes flow from then on */
    double rate;
    bool crosses, fixed; /* fixed: its rate is found */
} message;

typedef struct rank_state {
    int64_t step, nmoves, left; /* moves of this step, and how many of them are not done */
    ech__move *moves;
    double *started; /* [nmoves] when this rank came to it */
    bool *joined;    /* [nmoves] the message has begun */
} rank_state;

typedef struct simulation {
    ech__schedule schedule;
    const ech__cluster *cluster;
    int64_t steps, most, per_node;
    rank_state *ranks;
    message *messages; /* [count] that have begun and are not done */
    size_t count, capacity;
    double *room[PORTS]; /* [devices] bytes per second that are left to share */
    int64_t *users[PORTS];
    double now;
} simulation;

static void *make(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

static bool sends(const ech__move *move)
{
    return move->kind == ECH__MOVE_SEND;
}

static void begin(simulation *s, int64_t from, int64_t to, int64_t bytes, double started)
{
    if (s->count == s->capacity) {
        s->capacity = 2 * s->capacity + 64;
        s->messages = realloc(s->messages, s->capacity * sizeof *s->messages);
        if (!s->messages)
            abort();
    }
    const bool crosses = from / s->per_node != to / s->per_node;
    const ech__link *link = crosses ? &s->cluster->between : &s->cluster->inside;
    s->messages[s->count++] = (message){.from = from,
                                        .to = to,
                                        .bytes = (double)bytes,
                                        .starts_at = started + link->latency_s,
                                        .crosses = crosses};
}

/* The message of a move begins where the other end is at the same one. */
static void join(simulation *s, int64_t me, int64_t index)
{
    rank_state *mine = &s->ranks[me];
    const ech__move *move = &mine->moves[index];
    rank_state *other = &s->ranks[move->peer];
    for (int64_t i = 0; other->step == mine->step && i < other->nmoves; i++) {
        const ech__move *theirs = &other->moves[i];
        if (other->joined[i] || theirs->peer != me || sends(theirs) == sends(move))
            continue;
        mine->joined[index] = other->joined[i] = true;
        begin(s, sends(move) ? me : move->peer, sends(move) ? move->peer : me, move->range.count,
              fmax(mine->started[index], other->started[i]));
        return;
    }
}

/* A rank comes to its next step that has moves. */
static void advance(simulation *s, int64_t me)
{
    rank_state *r = &s->ranks[me];
    do {
        if (++r->step >= s->steps) {
            r->nmoves = r->left = 0;
            return;
        }
        r->nmoves = ech__schedule_moves(&s->schedule, me, r->step, r->moves);
    } while (r->nmoves == 0);
    r->left = r->nmoves;
    double at = s->now;
    for (int64_t i = 0; i < r->nmoves; i++) {
        const bool crosses = r->moves[i].peer / s->per_node != me / s->per_node;
        r->joined[i] = false;
        r->started[i] = sends(&r->moves[i]) ? at : s->now;
        if (sends(&r->moves[i]))
            at += crosses ? s->cluster->between.overhead_s : s->cluster->inside.overhead_s;
    }
    for (int64_t i = 0; i < r->nmoves; i++)
        if (!r->joined[i])
            join(s, me, i);
}

/* ---- shares ---- */

static int ports_of(const simulation *s, const message *m, int64_t *at)
{
    at[DEVICE_UP] = m->from;
    at[DEVICE_DOWN] = m->to;
    at[NODE_UP] = m->from / s->per_node;
    at[NODE_DOWN] = m->to / s->per_node;
    return m->crosses ? PORTS : NODE_UP;
}

static bool flows(const simulation *s, const message *m)
{
    return m->starts_at <= s->now;
}

static void fill_ports(simulation *s)
{
    int64_t at[PORTS];
    for (int p = 0; p < PORTS; p++) {
        const double inside = s->per_node > 1 ? s->cluster->inside.bytes_per_s : INFINITY;
        for (int64_t i = 0; i < s->schedule.devices; i++) {
            s->room[p][i] = p < NODE_UP ? inside : s->cluster->between.bytes_per_s;
            s->users[p][i] = 0;
        }
    }
    for (size_t m = 0; m < s->count; m++) {
        s->messages[m].fixed = !flows(s, &s->messages[m]);
        const int n = s->messages[m].fixed ? 0 : ports_of(s, &s->messages[m], at);
        for (int p = 0; p < n; p++)
            s->users[p][at[p]]++;
    }
}

static double share_of(const simulation *s, const message *m)
{
    int64_t at[PORTS];
    double share = INFINITY;
    const int n = ports_of(s, m, at);
    for (int p = 0; p < n; p++)
        share = fmin(share, s->room[p][at[p]] / (double)s->users[p][at[p]]);
    return share;
}

/* The fullest port gives each of its messages the same; then the next one, with what is left. */
static void share_ports(simulation *s)
{
    int64_t at[PORTS];
    fill_ports(s);
    for (;;) {
        double least = INFINITY;
        for (size_t m = 0; m < s->count; m++)
            if (!s->messages[m].fixed)
                least = fmin(least, share_of(s, &s->messages[m]));
        if (!isfinite(least))
            return;
        for (size_t m = 0; m < s->count; m++) {
            message *msg = &s->messages[m];
            if (msg->fixed || share_of(s, msg) > least * (1 + 1e-9))
                continue;
            msg->fixed = true;
            msg->rate = least;
            const int n = ports_of(s, msg, at);
            for (int p = 0; p < n; p++) {
                s->room[p][at[p]] = fmax(s->room[p][at[p]] - least, 0);
                s->users[p][at[p]]--;
            }
        }
    }
}

/* ---- events ---- */

static double next_event(const simulation *s)
{
    double next = INFINITY;
    for (size_t m = 0; m < s->count; m++) {
        const message *msg = &s->messages[m];
        next = fmin(next, flows(s, msg) ? s->now + msg->bytes / msg->rate : msg->starts_at);
    }
    return next;
}

/* What ends at the same time, but for rounding, ends together. */
static void run_until(simulation *s, double next)
{
    const double slack = 1e-9 * next;
    size_t left = 0, done = 0;
    message *ended = make(s->count, sizeof *ended);
    for (size_t m = 0; m < s->count; m++) {
        message *msg = &s->messages[m];
        const bool flowed = flows(s, msg);
        if (flowed)
            msg->bytes -= msg->rate * (next - s->now);
        else if (msg->starts_at <= next + slack)
            msg->starts_at = next;
        if (flowed && msg->bytes <= msg->rate * slack)
            ended[done++] = *msg;
        else
            s->messages[left++] = *msg;
    }
    s->count = left;
    s->now = next;
    for (size_t m = 0; m < done; m++) {
        const int64_t ends[2] = {ended[m].from, ended[m].to};
        for (int e = 0; e < 2; e++)
            if (--s->ranks[ends[e]].left == 0)
                advance(s, ends[e]);
    }
    free(ended);
}

double simulate_allreduce(const ech__cluster *cluster, ech__algorithm algorithm, int64_t devices,
                          int64_t bytes)
{
    const int64_t each = cluster->devices_per_node;
    const int64_t per_node = each == 0 || each > devices ? devices : each;
    simulation s = {.schedule = {algorithm, devices, per_node, bytes, 1},
                    .cluster = cluster,
                    .per_node = per_node};
    s.steps = ech__schedule_steps(&s.schedule);
    s.most = ech__schedule_most(&s.schedule);
    s.ranks = make((size_t)devices, sizeof *s.ranks);
    for (int p = 0; p < PORTS; p++) {
        s.room[p] = make((size_t)devices, sizeof *s.room[p]);
        s.users[p] = make((size_t)devices, sizeof *s.users[p]);
    }
    for (int64_t r = 0; r < devices; r++) {
        s.ranks[r] = (rank_state){.step = -1,
                                  .moves = make((size_t)s.most, sizeof(ech__move)),
                                  .started = make((size_t)s.most, sizeof(double)),
                                  .joined = make((size_t)s.most, sizeof(bool))};
    }
    for (int64_t r = 0; r < devices; r++)
        advance(&s, r);
    while (s.count) {
        share_ports(&s);
        run_until(&s, next_event(&s));
    }
    for (int64_t r = 0; r < devices; r++) {
        free(s.ranks[r].moves);
        free(s.ranks[r].started);
        free(s.ranks[r].joined);
    }
    for (int p = 0; p < PORTS; p++) {
        free(s.room[p]);
        free(s.users[p]);
    }
    free(s.messages);
    free(s.ranks);
    return s.now;
}
