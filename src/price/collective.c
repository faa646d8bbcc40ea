/* N devices on M nodes with D devices each, the last one with L <= D. */
#include "price/collective.h"
#include "base/names.h"
#include "price/tree.h"

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

/* Seconds that ports need for a message of each of `senders` devices of a node to other nodes. The node's port is shared; a
 * device's own port, where the node has others, must carry its part too. */
static double carry_between(const places *p, double bytes, int64_t senders)
{
    const double node = (double)senders * bytes / p->cluster->between.bytes_per_s;
    const double device = p->per_node > 1 ? bytes / p->cluster->inside.bytes_per_s : 0;
    return fmax(node, device);
}

static double between(const places *p, double bytes, int64_t senders)
{
    return p->cluster->between.latency_s + carry_between(p, bytes, senders);
}

/* Messages that a device starts an overhead apart, each of which takes the ports so many seconds. */
static double burst(const ech__link *link, int64_t messages, double carried)
{
    return link->latency_s + (double)(messages - 1) * fmax(link->overhead_s, carried) + carried;
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

/* ---- tree ---- */

/* The binomial tree over all devices. Devices first to first + 2^(j+1) - 1 have one message in step j, over half of the way,
 * and before it the longer of two such trees, on either side. So the price is the sum over the messages on the longest path
 * to the root, which differ in whether they leave a node. */
typedef struct path {
    int crossing, staying;
} path;

/* Whether the message over `distance` to this device leaves its node; false where there is none. */
static bool crosses(const places *p, int64_t first, int64_t distance)
{
    return first + distance < p->devices && first / p->per_node != (first + distance) / p->per_node;
}

/* The path from this device. */
static path path_from(const places *p, int64_t device)
{
    path on = {0};
    for (int64_t d = 1; d < p->devices; d *= 2) {
        const int64_t first = device / (2 * d) * (2 * d);
        if (crosses(p, first, d))
            on.crossing++;
        else if (first + d < p->devices)
            on.staying++;
    }
    return on;
}

/* Messages that pass the port of a node on the way up, both directions together. */
static int64_t passing(const places *p, int64_t node)
{
    const int64_t begin = node * p->per_node;
    const int64_t end = begin + p->per_node < p->devices ? begin + p->per_node : p->devices;
    int64_t count = 0;
    for (int64_t d = 1; d < p->devices; d *= 2) {
        /* The one message over this distance that passes the upper border, and the one that passes the lower. */
        const int64_t above = (end - 1) / (2 * d) * (2 * d);
        const int64_t below = begin ? (begin - 1) / (2 * d) * (2 * d) + d : 0;
        count += above >= begin && above + d >= end && above + d < p->devices;
        count += below >= begin && below < end && begin > 0;
    }
    return count;
}

typedef struct tree {
    const places *p;
    double stays, leaves; /* seconds of a message inside a node and out of it */
    double up;
    int64_t busiest; /* messages of a node */
} tree;

static void visit_border(tree *t, int64_t node)
{
    for (int side = 0; side < (node ? 2 : 1); side++) {
        const path on = path_from(t->p, node * t->p->per_node - side);
        t->up = fmax(t->up, on.crossing * t->leaves + on.staying * t->stays);
    }
    const int64_t count = passing(t->p, node);
    t->busiest = count > t->busiest ? count : t->busiest;
}

/* Visits the nodes whose borders have different places among the steps inside a node, and those with the most steps between
 * nodes, at powers of two. */
static ech__collective_price price_tree(const places *p, double bytes)
{
    const int levels = ech__ceil_log2(p->devices);
    const int64_t different = (int64_t)2 << ech__ceil_log2(p->per_node);
    tree t = {p, .stays = inside(p, bytes), .leaves = between(p, bytes, 1)};
    for (int64_t node = 0; node < p->nodes && node < different; node++)
        visit_border(&t, node);
    for (int j = 0; j < levels; j++)
        visit_border(&t, ((int64_t)1 << j) / p->per_node);
    return (ech__collective_price){.seconds = 2 * t.up,
                                   .device_bytes = levels * bytes,
                                   .node_bytes = (double)t.busiest * bytes,
                                   .steps = 2 * (int64_t)levels};
}

/* ---- nodes ---- */

/* The two algorithms with three parts: shards are reduced intra-node, their owners exchange them
 * inter-node, and shards are distributed intra-node. All nodes have as many owners as the last one
 * has devices. Inter-node the owners of a shard form a ring, or each sends to all others at once. */
static ech__collective_price price_parts(const places *p, double bytes, bool ring)
{
    const ech__link *in = &p->cluster->inside, *out = &p->cluster->between;
    const double owners = (double)p->last, shard = bytes / owners;
    const int64_t others_inside = p->per_node - 1, others_between = p->nodes - 1;
    const double part = shard / (double)p->nodes;
    double up = 0, down = 0, across = 0;
    int64_t steps = 0;
    if (others_inside) { /* to the owners, and from them */
        const double carried = shard / in->bytes_per_s, all = (double)others_inside * carried;
        const int64_t sent = p->last < others_inside ? p->last : others_inside;
        const int64_t first = p->last < others_inside ? p->per_node - p->last : 1;
        up = in->latency_s +
             fmax(all, (double)(sent - 1) * in->overhead_s + (double)first * carried);
        down = burst(in, others_inside, carried);
        steps++;
    }
    if (others_between) {
        const int64_t rounds = ring ? others_between : 1;
        across =
            (double)rounds * burst(out, others_between / rounds, carry_between(p, part, p->last));
        /* Owners that get their shards one after the other are out of step: others use the port during an owner's latency.
         * That is between none and half of what it could be. */
        const double apart = fmax(between(p, part, 1), carry_between(p, part, p->last));
        if (ring && p->last < p->per_node)
            across += ((double)rounds * apart - across) / 4;
        steps += rounds;
    }
    /* An owner sends the shards of the others, exchanges its own twice, and hands it out. */
    const double sent_between = (double)others_between * part;
    return (ech__collective_price){.seconds = up + 2 * across + down,
                                   .device_bytes = bytes - shard + 2 * sent_between +
                                                   (double)others_inside * shard,
                                   .node_bytes = 2 * sent_between * owners,
                                   .steps = 2 * steps};
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

/* Blocks of 2^k devices, one for each bit k of N, the largest first. In step j devices whose numbers differ in bit j exchange.
 * Then a block hands its sums over to the larger block before it.
 *
 * Where nodes have 2^k devices, all nodes are alike in a step, and all devices wait for the same. Else some nodes send more
 * than others over short distances, and a device waits for what its partners have waited for: these steps are gone through
 * device by device, in parts of a node's size, one for each place that such a part can have on its nodes. */
enum { MOST_IN_PART = 512, MOST_VISITED = 4096, MOST_NODES = 64 };

/* Pairs (i, i + d) with from <= i and i + d < to, where 0 <= from <= to <= 2d. */
static int64_t pairs(int64_t from, int64_t to, int64_t d)
{
    const int64_t end = to - d < d ? to - d : d;
    return end > from ? end - from : 0;
}

/* Devices of a node that exchange with other nodes over this distance. Blocks of twice the distance keep to themselves. */
static int64_t leaving(const places *p, int64_t node, int64_t d)
{
    const int64_t part = p->devices / (2 * d) * (2 * d), first = node * p->per_node;
    const int64_t end = first + p->per_node < part ? first + p->per_node : part;
    const int64_t count = end - first, from = first % (2 * d), to = from + count;
    if (count <= 0)
        return 0;
    if (to <= 2 * d)
        return count - 2 * pairs(from, to, d);
    const int64_t head = 2 * d - from, tail = to % (2 * d);
    return head - 2 * pairs(from, 2 * d, d) + tail - 2 * pairs(0, tail, d);
}

/* Seconds that the devices whose numbers differ in bit j, of which `device` is one, need for their messages. */
static double pair_seconds(const places *p, int64_t device, int j, double bytes)
{
    const int64_t d = (int64_t)1 << j;
    const int64_t node = device / p->per_node, other = (device + d) / p->per_node;
    const double half = ldexp(bytes, -(j + 1));
    if (node == other)
        return inside(p, half);
    const int64_t one = leaving(p, node, d), two = leaving(p, other, d);
    return between(p, half, one > two ? one : two);
}

/* Seconds until the last of the 2^levels devices from `first` on has done as many steps. */
static double visit_part(const places *p, int64_t first, int levels, double bytes)
{
    double at[MOST_IN_PART] = {0}, last = 0;
    const int64_t size = ech__power_of_2(levels);
    for (int j = 0; j < levels; j++) {
        for (int64_t i = 0; i < size; i++) {
            double *one = &at[i], *two = &at[i ^ (int64_t)1 << j];
            if (one < two)
                *one = *two = fmax(*one, *two) + pair_seconds(p, first + i, j, bytes);
        }
    }
    for (int64_t i = 0; i < size; i++)
        last = fmax(last, at[i]);
    return last;
}

/* Seconds of all steps of the block of 2^levels devices from `first` on. */
static double block_seconds(const places *p, int64_t first, int levels, double bytes)
{
    const bool alike = p->nodes == 1 || (p->per_node & (p->per_node - 1)) == 0;
    const int far = ech__ceil_log2(p->per_node), near = far < levels ? far : levels;
    double seconds = 0;
    for (int j = alike ? 0 : near; j < levels; j++)
        seconds += j < far ? inside(p, ldexp(bytes, -(j + 1)))
                           : between(p, ldexp(bytes, -(j + 1)), p->per_node);
    if (alike)
        return seconds;
    const int64_t size = ech__power_of_2(near), parts = ech__power_of_2(levels - near);
    double visited = 0;
    for (int64_t i = 0; i < parts && i < p->per_node && i * size < MOST_VISITED; i++)
        visited = fmax(visited, size <= MOST_IN_PART
                                    ? visit_part(p, first + i * size, near, bytes)
                                    : near * inside(p, 0) +
                                          carry_between(p, bytes - ldexp(bytes, -near), size / 2));
    return seconds + visited;
}

/* A block hands over to the larger one before it. */
typedef struct handing {
    const places *p;
    int64_t first, size, messages; /* of the smaller one; each of its devices sends so many */
} handing;

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* How many of the first `count` devices of the larger block hear from devices `from` to `to` - 1 of the smaller one. */
static int64_t hearing(const handing *h, int64_t count, int64_t from, int64_t to)
{
    return count / h->size * (to - from) + clamp(count % h->size - from, 0, to - from);
}

/* Messages out of a node and into it, on the way to the larger block. */
static void count_handing(const handing *h, int64_t node, int64_t *out, int64_t *in)
{
    const int64_t begin = node * h->p->per_node - h->first, end = begin + h->p->per_node;
    const int64_t large = h->size * h->messages;
    const int64_t from = clamp(begin, 0, h->size), to = clamp(end, 0, h->size);
    const int64_t first = clamp(begin + large, 0, large), last = clamp(end + large, 0, large);
    const int64_t stay = hearing(h, last, from, to) - hearing(h, first, from, to);
    *out = (to - from) * h->messages - stay;
    *in = last - first - stay;
}

/* Seconds that the ports need for all that is handed over; *link is the one that is passed. */
static double handing_seconds(const handing *h, double bytes, const ech__link **link)
{
    const places *p = h->p;
    const int64_t border = h->first / p->per_node, large = h->size * h->messages;
    const int64_t nodes[] = {border, border + 1, border - 1, (h->first - large) / p->per_node};
    const double part = bytes / (double)large;
    int64_t most = 0, out, in;
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        if (nodes[i] < 0)
            continue;
        count_handing(h, nodes[i], &out, &in);
        most = out > most ? out : most;
        most = in > most ? in : most;
    }
    *link = most ? &p->cluster->between : &p->cluster->inside;
    const double device = p->per_node > 1 ? 1 / p->cluster->inside.bytes_per_s : 0;
    return part *
           fmax((double)h->messages * device, (double)most / p->cluster->between.bytes_per_s);
}

/* Bytes out of a node, which are as many as come in. */
static double node_carries(const places *p, int64_t node, double bytes)
{
    double carried = 0;
    int before = -1;
    for (int k = 0; (int64_t)1 << k <= p->devices; k++) {
        if ((int64_t)2 << k <= p->devices)
            carried += 2 * (double)leaving(p, node, (int64_t)1 << k) * ldexp(bytes, -(k + 1));
        if (!(p->devices >> k & 1))
            continue;
        if (before >= 0) {
            const handing h = {p, p->devices >> k << k, (int64_t)1 << before,
                               (int64_t)1 << (k - before)};
            int64_t out, in;
            count_handing(&h, node, &out, &in);
            carried += (double)(out + in) * ldexp(bytes, -k);
        }
        before = k;
    }
    return carried;
}

static double busiest_node(const places *p, double bytes)
{
    double most = 0;
    for (int64_t node = 0; node < p->nodes && node < MOST_NODES; node++)
        most = fmax(most, node_carries(p, node, bytes));
    for (int k = 0; k < 63 && (int64_t)1 << k <= p->devices; k++) {
        const int64_t border = (p->devices >> k << k) / p->per_node;
        for (int64_t node = border - 1; node <= border + 1; node++)
            if (node >= 0 && node < p->nodes)
                most = fmax(most, node_carries(p, node, bytes));
    }
    return most;
}

static ech__collective_price price_halving(const places *p, double bytes)
{
    const int levels = ech__floor_log2(p->devices);
    double up = 0, down = 0;
    int blocks = 0, before = -1;
    for (int k = 0; k <= levels; k++) { /* from the smallest block on */
        if (!(p->devices >> k & 1))
            continue;
        const double own = block_seconds(p, p->devices >> (k + 1) << (k + 1), k, bytes);
        if (blocks++ == 0) {
            up = down = own;
        } else {
            const handing h = {p, p->devices >> k << k, (int64_t)1 << before,
                               (int64_t)1 << (k - before)};
            const ech__link *link;
            const double carried = handing_seconds(&h, bytes, &link);
            /* The smaller block may have begun its messages while it waited for the larger one. */
            up = fmax(link->latency_s + own + carried,
                      up + burst(link, h.messages, carried / (double)h.messages));
            down = link->latency_s + carried + fmax(own, down);
        }
        before = k;
    }
    /* The smallest block does not receive from a smaller one, nor does the largest one send to a larger one. */
    const double spared = blocks > 2 ? 0 : (blocks == 1 ? 2 : 1) * ldexp(bytes, -levels);
    return (ech__collective_price){.seconds = up + down,
                                   .device_bytes = 2 * bytes - spared,
                                   .node_bytes = p->nodes > 1 ? busiest_node(p, bytes) : 0,
                                   .steps = 2 * (int64_t)(levels + (blocks > 1))};
}

/* ---- all of them ---- */

#define price_none NULL
#define PRICE(id, name, about, geometry, price, run) price_##price,
static ech__collective_price (*const prices[])(const places *,
                                               double) = {ECH__ALGORITHM_LIST(PRICE)};

static ech__collective_price price_one(const places *p, ech__algorithm algorithm, double bytes)
{
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
    if (prices[algorithm])
        return price_one(&p, algorithm, (double)bytes);
    ech__collective_price best = {.seconds = INFINITY};
    for (ech__algorithm a = 0; a < ECH__ALGORITHM_COUNT; a++) {
        const ech__collective_price other = prices[a] ? price_one(&p, a, (double)bytes) : best;
        if (other.seconds < best.seconds)
            best = other;
    }
    return best;
}
