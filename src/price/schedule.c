#include "price/schedule.h"

#include <assert.h>

/* ---- lists of moves ---- */

typedef struct moves {
    ech__move *out;
    int64_t count;
} moves;

static void add(moves *m, ech__move_kind kind, int64_t peer, ech__range range)
{
    if (range.count > 0)
        m->out[m->count++] = (ech__move){kind, peer, range};
}

/* Where elements are exchanged among n places: a device or a node each. */
typedef struct places {
    int64_t n, grain;
    ech__range data;
} places;

static ech__range part_of(ech__range whole, int64_t index, int64_t parts, int64_t grain)
{
    ech__range part = ech__shard(whole.count, (int)index, (int)parts, grain);
    part.first += whole.first;
    return part;
}

static bool power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

/* ---- algorithms among n >= 2 places ---- */

static int64_t ring_steps(int64_t n)
{
    return 2 * (n - 1);
}

static void ring_moves(const places *p, int64_t me, int64_t step, moves *m)
{
    const int64_t n = p->n, next = (me + 1) % n, before = (me + n - 1) % n;
    const bool adds = step < n - 1;
    /* What leaves is what arrived in the step before. */
    const int64_t sent = (me + 2 * n - step) % n;
    const int64_t got = (sent + n - 1) % n;
    add(m, ECH__MOVE_SEND, next, part_of(p->data, sent, n, p->grain));
    add(m, adds ? ECH__MOVE_ADD : ECH__MOVE_COPY, before, part_of(p->data, got, n, p->grain));
}

/* One is sent, and one received. */
static int64_t one_each(int64_t n)
{
    (void)n;
    return 2;
}

static int64_t tree_steps(int64_t n)
{
    return 2 * ech__ceil_log2(n);
}

static void tree_moves(const places *p, int64_t me, int64_t step, moves *m)
{
    const int64_t steps = tree_steps(p->n);
    const bool up = step < steps / 2;
    const int64_t distance = (int64_t)1 << (up ? step : steps - 1 - step);
    if (me % (2 * distance) == distance)
        add(m, up ? ECH__MOVE_SEND : ECH__MOVE_COPY, me - distance, p->data);
    else if (me % (2 * distance) == 0 && me + distance < p->n)
        add(m, up ? ECH__MOVE_ADD : ECH__MOVE_SEND, me + distance, p->data);
}

static int64_t direct_steps(int64_t n)
{
    (void)n;
    return 2;
}

/* Sends begin with the next place, so that not all go to the same one at the same time. Receives are in the order of places,
 * which is that of the sums. */
static void direct_moves(const places *p, int64_t me, int64_t step, moves *m)
{
    const ech__range own = part_of(p->data, me, p->n, p->grain);
    for (int64_t i = 1; i < p->n; i++) {
        const int64_t other = (me + i) % p->n;
        add(m, ECH__MOVE_SEND, other, step == 0 ? part_of(p->data, other, p->n, p->grain) : own);
    }
    for (int64_t other = 0; other < p->n; other++) {
        if (other != me)
            add(m, step == 0 ? ECH__MOVE_ADD : ECH__MOVE_COPY, other,
                step == 0 ? own : part_of(p->data, other, p->n, p->grain));
    }
}

static int64_t direct_most(int64_t n)
{
    return 2 * (n - 1);
}

/* ---- halving and doubling ---- */

/* A block of 2^levels places, the first of them. levels -1: none. */
typedef struct block {
    int64_t first;
    int levels;
} block;

static block block_at(int64_t n, int64_t first)
{
    return (block){first, first < n ? ech__floor_log2(n - first) : -1};
}

static block block_after(int64_t n, block b)
{
    return block_at(n, b.first + ech__power_of_2(b.levels));
}

/* The elements that the place in a block has after so many halving steps. */
static ech__range range_after(const places *p, int64_t place, int steps)
{
    ech__range range = p->data;
    for (int j = 0; j < steps; j++)
        range = part_of(range, place >> j & 1, 2, p->grain);
    return range;
}

static int64_t halving_steps(int64_t n)
{
    return 2 * (int64_t)(ech__floor_log2(n) + !power_of_two(n));
}

/* Sums go from `small` to the larger block before it, or come back. */
static void cross_blocks(const places *p, int64_t me, block large, block small, bool up, moves *m)
{
    const int64_t step = ech__power_of_2(small.levels), size = ech__power_of_2(large.levels);
    if (me < small.first) {
        const int64_t place = me - large.first;
        add(m, up ? ECH__MOVE_ADD : ECH__MOVE_SEND, small.first + place % step,
            range_after(p, place, large.levels));
        return;
    }
    for (int64_t place = me - small.first; place < size; place += step)
        add(m, up ? ECH__MOVE_SEND : ECH__MOVE_COPY, large.first + place,
            range_after(p, place, large.levels));
}

static void halving_moves(const places *p, int64_t me, int64_t step, moves *m)
{
    const int64_t steps = halving_steps(p->n);
    const bool up = step < steps / 2;
    const int64_t level = up ? step : steps - 1 - step;
    block before = {0, -1}, own = block_at(p->n, 0), after = block_after(p->n, own);
    while (after.levels >= 0 && me >= after.first) {
        before = own;
        own = after;
        after = block_after(p->n, own);
    }
    if (level < own.levels) {
        const int64_t place = me - own.first, other = place ^ (int64_t)1 << level;
        const ech__range mine = range_after(p, place, (int)level + 1);
        const ech__range theirs = range_after(p, other, (int)level + 1);
        add(m, ECH__MOVE_SEND, own.first + other, up ? theirs : mine);
        add(m, up ? ECH__MOVE_ADD : ECH__MOVE_COPY, own.first + other, up ? mine : theirs);
    } else if (level == own.levels && after.levels >= 0) {
        cross_blocks(p, me, own, after, up, m);
    } else if (level == before.levels) {
        cross_blocks(p, me, before, own, up, m);
    }
}

/* A rank of the smaller of two blocks has the most. */
static int64_t halving_most(int64_t n)
{
    int64_t most = 2;
    block large = block_at(n, 0);
    for (block small; (small = block_after(n, large)).levels >= 0; large = small) {
        const int64_t each = (int64_t)1 << (large.levels - small.levels);
        most = each > most ? each : most;
    }
    return most;
}

/* ---- rows ---- */

typedef struct geometry {
    bool
        nodes; /* intra-node, between the owners of a shard by these functions, intra-node; else between all devices */
    bool keeps_tree; /* sums have the order of ech__tree_split; if not, those of two places do */
    int64_t (*steps)(int64_t n), (*most)(int64_t n);
    void (*moves)(const places *p, int64_t me, int64_t step, moves *m);
} geometry;

static const geometry ring_geometry[] = {{false, false, ring_steps, one_each, ring_moves}};
static const geometry tree_geometry[] = {{false, true, tree_steps, one_each, tree_moves}};
static const geometry halving_geometry[] = {
    {false, true, halving_steps, halving_most, halving_moves}};
static const geometry hierarchical_geometry[] = {{true, false, ring_steps, one_each, ring_moves}};
static const geometry direct_geometry[] = {{true, true, direct_steps, direct_most, direct_moves}};
#define none_geometry NULL

static const geometry *geometry_of(const ech__schedule *s)
{
#define GEOMETRY(id, name, about, geometry, price, run) geometry##_geometry,
    static const geometry *const rows[] = {ECH__ALGORITHM_LIST(GEOMETRY)};
    assert((unsigned)s->algorithm < ECH__ALGORITHM_COUNT && rows[s->algorithm]);
    return rows[s->algorithm];
}

/* ---- nodes ---- */

typedef struct nodes {
    int64_t count, owners, size; /* size: of this one */
    int64_t node, local;
} nodes;

static nodes nodes_of(const ech__schedule *s, int64_t rank)
{
    const int64_t each = s->per_node < s->devices ? s->per_node : s->devices;
    nodes at = {.count = (s->devices + each - 1) / each};
    at.owners = s->devices - (at.count - 1) * each;
    at.node = rank / each;
    at.local = rank % each;
    at.size = at.node + 1 < at.count ? each : at.owners;
    return at;
}

static int64_t steps_between(const geometry *g, int64_t count)
{
    return count > 1 ? g->steps(count) : 0;
}

/* Phases 1 and 3: every device exchanges with every owner of its node. */
static void inside_moves(const ech__schedule *s, const nodes *at, bool up, moves *m)
{
    const int64_t first = at->node * s->per_node;
    const ech__range all = {0, s->count};
    const bool owns = at->local < at->owners;
    for (int64_t next = 1; next < at->size; next++) {
        const int64_t i = (at->local + next) % at->size;
        if (up ? i < at->owners : owns)
            add(m, ECH__MOVE_SEND, first + i,
                part_of(all, up ? i : at->local, at->owners, s->grain));
    }
    for (int64_t i = 0; i < at->size; i++) {
        if (i != at->local && (up ? owns : i < at->owners))
            add(m, up ? ECH__MOVE_ADD : ECH__MOVE_COPY, first + i,
                part_of(all, up ? at->local : i, at->owners, s->grain));
    }
}

static void nodes_moves(const ech__schedule *s, int64_t rank, int64_t step, moves *m)
{
    const geometry *g = geometry_of(s);
    const nodes at = nodes_of(s, rank);
    const int64_t inside = s->per_node > 1, between = steps_between(g, at.count);
    if (step < inside || step >= inside + between) {
        inside_moves(s, &at, step < inside, m);
        return;
    }
    if (at.local >= at.owners)
        return;
    const ech__range all = {0, s->count};
    const places p = {at.count, s->grain, part_of(all, at.local, at.owners, s->grain)};
    g->moves(&p, at.node, step - inside, m);
    for (int64_t i = 0; i < m->count; i++)
        m->out[i].peer = m->out[i].peer * s->per_node + at.local;
}

/* ---- all of them ---- */

int64_t ech__schedule_steps(const ech__schedule *s)
{
    const geometry *g = geometry_of(s);
    assert(s->devices >= 1 && s->per_node >= 1);
    if (s->devices == 1)
        return 0;
    return g->nodes ? 2 * (s->per_node > 1) + steps_between(g, nodes_of(s, 0).count)
                    : g->steps(s->devices);
}

int64_t ech__schedule_most(const ech__schedule *s)
{
    const geometry *g = geometry_of(s);
    const nodes at = nodes_of(s, 0);
    const int64_t inside = g->nodes ? 2 * (at.size - 1) : 0;
    const int64_t most = g->most(g->nodes ? at.count : s->devices);
    return inside > most ? inside : most;
}

int64_t ech__schedule_moves(const ech__schedule *s, int64_t rank, int64_t step, ech__move *out)
{
    const geometry *g = geometry_of(s);
    moves m = {.out = out};
    assert(rank >= 0 && rank < s->devices && step >= 0 && step < ech__schedule_steps(s));
    if (g->nodes)
        nodes_moves(s, rank, step, &m);
    else
        g->moves(&(places){s->devices, s->grain, {0, s->count}}, rank, step, &m);
    return m.count;
}

bool ech__schedule_keeps_tree(const ech__schedule *s)
{
    const geometry *g = geometry_of(s);
    const int64_t count = g->nodes ? nodes_of(s, 0).count : s->devices;
    if (g->nodes && count > 1 && !power_of_two(s->per_node))
        return false;
    return g->keeps_tree || count <= 2;
}
