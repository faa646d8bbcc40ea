/* N devices on M nodes with D devices each, the last one with L <= D. */
#include "price/collective.h"
#include "base/names.h"

#include <assert.h>
#include <math.h>

ECH__NAMES(ech__algorithm_name, ech__algorithm, ECH__ALGORITHM_LIST)

double ech__price_message(const ech__link *link, int64_t bytes)
{
    return link->latency_s + (double)bytes / link->bytes_per_s;
}

/* ---- where devices are, and what a step costs ---- */

typedef struct places {
    const ech__cluster *cluster;
    int64_t devices, nodes, per_node, last; /* N, M, D, L */
} places;

static places fill_nodes(const ech__cluster *cluster, int64_t devices)
{
    int64_t per_node = cluster->devices_per_node;
    if (per_node == 0 || per_node > devices)
        per_node = devices;
    const int64_t nodes = (devices + per_node - 1) / per_node;
    return (places){cluster, devices, nodes, per_node, devices - (nodes - 1) * per_node};
}

/* A device sends or receives `bytes` over its port, all of it inside its node. */
static double inside(const places *p, double bytes)
{
    return p->cluster->inside.latency_s + bytes / p->cluster->inside.bytes_per_s;
}

/* `senders` devices of a node send `bytes` each to other nodes. The node's port is shared; a device's own port, where the
 * node has others, must carry its part too. */
static double between(const places *p, double bytes, int64_t senders)
{
    const double node = (double)senders * bytes / p->cluster->between.bytes_per_s;
    const double device = p->per_node > 1 ? bytes / p->cluster->inside.bytes_per_s : 0;
    return p->cluster->between.latency_s + fmax(node, device);
}

static int ceil_log2(int64_t n)
{
    int log = 0;
    while ((int64_t)1 << log < n)
        log++;
    return log;
}

/* ---- algorithms: seconds, device_bytes, node_bytes and steps; N >= 2 ---- */

/* Every device sends to the next one in every step, so every port carries one message in each direction, and all wait for the
 * slowest. */
static ech__collective_price price_ring(const places *p, double bytes)
{
    const double part = bytes / (double)p->devices;
    const int64_t steps = 2 * (p->devices - 1);
    double step = 0;
    if (p->per_node > 1)
        step = inside(p, part);
    if (p->nodes > 1)
        step = fmax(step, between(p, part, 1));
    const double carried = (double)steps * part;
    return (ech__collective_price){.seconds = (double)steps * step,
                                   .device_bytes = carried,
                                   .node_bytes = carried,
                                   .steps = steps};
}

/* Binomial trees inside every node, to its first device, and one over these: the busiest device is
 * the root. Node 0 is full, so it is never waiting for a node that takes longer than it does
 * itself. */
static ech__collective_price price_tree(const places *p, double bytes)
{
    const int levels_inside = ceil_log2(p->per_node), levels_between = ceil_log2(p->nodes);
    const double up = levels_inside * inside(p, bytes) + levels_between * between(p, bytes, 1);
    return (ech__collective_price){.seconds = 2 * up,
                                   .device_bytes = (levels_inside + levels_between) * bytes,
                                   .node_bytes = levels_between * bytes,
                                   .steps = 2 * (int64_t)(levels_inside + levels_between)};
}

/* The two algorithms with three parts: shards are reduced intra-node, their owners exchange them
 * inter-node, and shards are distributed intra-node. All nodes have as many owners as the last one
 * has devices. In each part every device sends to every other device: with `rounds` one message
 * after the other, as in a ring, else all at once, and only the first latency counts. */
static ech__collective_price price_parts(const places *p, double bytes, bool rounds)
{
    const double owners = (double)p->last, shard = bytes / owners;
    const int64_t others_inside = p->per_node - 1, others_between = p->nodes - 1;
    const int64_t steps_inside = rounds || others_inside == 0 ? others_inside : 1;
    const int64_t steps_between = rounds || others_between == 0 ? others_between : 1;
    const double sent_inside = (double)others_inside * shard;
    const double sent_between = (double)others_between * shard / (double)p->nodes;
    double seconds = 0;
    if (steps_inside)
        seconds += (double)steps_inside * inside(p, sent_inside / (double)steps_inside);
    if (steps_between)
        seconds +=
            (double)steps_between * between(p, sent_between / (double)steps_between, p->last);
    /* An owner sends the shards of the others, exchanges its own twice, and hands it out. */
    return (ech__collective_price){.seconds = 2 * seconds,
                                   .device_bytes = bytes - shard + 2 * sent_between + sent_inside,
                                   .node_bytes = 2 * sent_between * owners,
                                   .steps = 2 * (steps_inside + steps_between)};
}

static ech__collective_price price_hierarchical(const places *p, double bytes)
{
    return price_parts(p, bytes, true);
}

static ech__collective_price price_direct(const places *p, double bytes)
{
    return price_parts(p, bytes, false);
}

/* ---- halving and doubling ---- */

/* 2^levels devices take part. Where there are `extra` more, each even one of the first 2 * extra devices hands its data to
 * the next device before and gets the sum from it afterwards. Those that take part are numbered in the order of the devices;
 * in step j each exchanges bytes / 2^(j+1) with the one whose number differs in bit j, so that the large halves stay near. */
typedef struct halving {
    const places *p;
    double bytes;
    int levels;
    int64_t extra;
    int64_t crossing[64]; /* [levels] messages out of the node that sends most to others */
    bool stays[64];       /* [levels] some node exchanges inside */
    double node_bytes;
} halving;

/* How many of the devices before this one take part. */
static int64_t number_of(const halving *h, int64_t device)
{
    return device <= 2 * h->extra ? device / 2 : device - h->extra;
}

/* Pairs (i, i + d) with from <= i and i + d < to, where 0 <= from <= to <= 2d. */
static int64_t pairs(int64_t from, int64_t to, int64_t d)
{
    const int64_t end = to - d < d ? to - d : d;
    return end > from ? end - from : 0;
}

/* How many of the numbers from first to end - 1 differ in bit d from a number outside of them. Whole blocks of 2d numbers
 * keep to themselves. */
static int64_t leaving(int64_t first, int64_t end, int64_t d)
{
    const int64_t count = end - first;
    if (count <= d)
        return count;
    const int64_t from = first % (2 * d), to = from + count;
    if (to <= 2 * d)
        return count - 2 * pairs(from, to, d);
    const int64_t head = 2 * d - from, tail = to % (2 * d);
    return head - 2 * pairs(from, 2 * d, d) + tail - 2 * pairs(0, tail, d);
}

/* Whether the border before this device parts one that hands its data over from the next. */
static bool parts_extra(const halving *h, int64_t border)
{
    return border % 2 == 1 && border < 2 * h->extra;
}

static void visit_node(halving *h, int64_t node)
{
    const int64_t begin = node * h->p->per_node;
    const int64_t end = node + 1 < h->p->nodes ? begin + h->p->per_node : h->p->devices;
    const int64_t first = number_of(h, begin), last = number_of(h, end);
    double carried = parts_extra(h, begin) || parts_extra(h, end) ? h->bytes : 0;
    for (int j = 0; j < h->levels; j++) {
        const int64_t out = leaving(first, last, (int64_t)1 << j);
        if (out > h->crossing[j])
            h->crossing[j] = out;
        h->stays[j] |= out < last - first;
        carried += 2 * (double)out * ldexp(h->bytes, -(j + 1));
    }
    h->node_bytes = fmax(h->node_bytes, carried);
}

/* Visits one node of each sort. What a node sends in the steps that may stay inside repeats itself from node to node with the
 * place of its first number in a block; nodes whose even devices do not take part, and others, are two sorts. */
static void visit_nodes(halving *h)
{
    const int64_t each = h->p->per_node;
    int64_t block = 1;
    while (block < each)
        block *= 2;
    const int64_t half_full = 2 * h->extra / each, full_end = h->p->devices / each;
    const int64_t full = (2 * h->extra + each - 1) / each;
    for (int64_t i = 0; i < half_full && i < 2 * block; i++)
        visit_node(h, i);
    if (half_full < full)
        visit_node(h, half_full);
    for (int64_t i = full; i < full_end && i < full + block; i++)
        visit_node(h, i);
    if (h->p->last < each)
        visit_node(h, h->p->nodes - 1);
}

static ech__collective_price price_halving(const places *p, double bytes)
{
    halving h = {.p = p, .bytes = bytes};
    while ((int64_t)2 << h.levels <= p->devices)
        h.levels++;
    h.extra = p->devices - ((int64_t)1 << h.levels);
    visit_nodes(&h);
    double seconds = 0;
    for (int j = 0; j < h.levels; j++) {
        const double half = ldexp(bytes, -(j + 1));
        const double stays = h.stays[j] ? inside(p, half) : 0;
        seconds += fmax(stays, h.crossing[j] ? between(p, half, h.crossing[j]) : 0);
    }
    if (h.extra) {
        const double stays = p->per_node > 1 ? inside(p, bytes) : 0;
        /* The first border after an odd number of devices is the first of all, if any is. */
        seconds += fmax(stays, parts_extra(&h, p->per_node) ? between(p, bytes, 1) : 0);
    }
    const double own = 2 * (bytes - ldexp(bytes, -h.levels)) + (h.extra ? bytes : 0);
    return (ech__collective_price){.seconds = 2 * seconds,
                                   .device_bytes = own,
                                   .node_bytes = h.node_bytes,
                                   .steps = 2 * (int64_t)(h.levels + (h.extra > 0))};
}

/* ---- all of them ---- */

static ech__collective_price price_one(const places *p, ech__algorithm algorithm, double bytes)
{
    static ech__collective_price (*const prices[])(const places *, double) = {
        [ECH__ALGORITHM_RING] = price_ring,
        [ECH__ALGORITHM_TREE] = price_tree,
        [ECH__ALGORITHM_HALVING] = price_halving,
        [ECH__ALGORITHM_HIERARCHICAL] = price_hierarchical,
        [ECH__ALGORITHM_DIRECT] = price_direct,
    };
    ech__collective_price price = {0};
    if (p->devices > 1)
        price = prices[algorithm](p, bytes);
    price.algorithm = algorithm;
    if (p->nodes == 1)
        price.node_bytes = 0;
    const bool node_busier =
        p->per_node == 1 || price.node_bytes / p->cluster->between.bytes_per_s >
                                price.device_bytes / p->cluster->inside.bytes_per_s;
    price.busiest_bytes = node_busier ? price.node_bytes : price.device_bytes;
    return price;
}

ech__collective_price ech__price_allreduce(const ech__cluster *cluster, ech__algorithm algorithm,
                                           int64_t devices, int64_t bytes)
{
    assert(devices >= 1 && bytes >= 0 && (unsigned)algorithm < ECH__ALGORITHM_COUNT);
    const places p = fill_nodes(cluster, devices);
    if (algorithm != ECH__ALGORITHM_BEST)
        return price_one(&p, algorithm, (double)bytes);
    ech__collective_price best = price_one(&p, ECH__ALGORITHM_RING, (double)bytes);
    for (ech__algorithm a = ECH__ALGORITHM_RING + 1; a < ECH__ALGORITHM_COUNT; a++) {
        /* Messages to hundreds of nodes at once cost more than the one latency that direct counts. */
        if (a == ECH__ALGORITHM_DIRECT && p.nodes > 1)
            continue;
        const ech__collective_price other = price_one(&p, a, (double)bytes);
        if (other.seconds < best.seconds)
            best = other;
    }
    return best;
}
