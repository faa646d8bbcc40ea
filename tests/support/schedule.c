#include "support/schedule.h"

#include <assert.h>

static void send(const schedule *s, int64_t step, int64_t src, int64_t dst, double bytes)
{
    s->visit(s->user, &(schedule_message){step, src, dst, bytes});
}

static int64_t nodes_of(const schedule *s)
{
    return (s->devices + s->per_node - 1) / s->per_node;
}

/* The devices of a node. */
static int64_t size_of(const schedule *s, int64_t node)
{
    const int64_t rest = s->devices - node * s->per_node;
    return rest < s->per_node ? rest : s->per_node;
}

static int64_t run_ring(const schedule *s)
{
    const int64_t n = s->devices, steps = 2 * (n - 1);
    for (int64_t step = 0; step < steps; step++) {
        for (int64_t i = 0; i < n; i++)
            send(s, step, i, (i + 1) % n, s->bytes / (double)n);
    }
    return steps;
}

/* One level of a binomial tree over `count` devices, `stride` apart: towards the first, or away from it. */
static void run_level(const schedule *s, int64_t step, int64_t first, int64_t stride, int64_t count,
                      int64_t distance, bool up)
{
    for (int64_t i = distance; i < count; i += 2 * distance) {
        const int64_t child = first + i * stride, parent = first + (i - distance) * stride;
        send(s, step, up ? child : parent, up ? parent : child, s->bytes);
    }
}

static int64_t run_tree(const schedule *s)
{
    const int64_t nodes = nodes_of(s), each = size_of(s, 0);
    int inside = 0, between = 0;
    while (1 << inside < each)
        inside++;
    while (1 << between < nodes)
        between++;
    const int levels = inside + between;
    for (int step = 0; step < 2 * levels; step++) {
        const bool up = step < levels;
        const int level = up ? step : 2 * levels - 1 - step;
        if (level >= inside)
            run_level(s, step, 0, s->per_node, nodes, (int64_t)1 << (level - inside), up);
        for (int64_t node = 0; level < inside && node < nodes; node++)
            run_level(s, step, node * s->per_node, 1, size_of(s, node), (int64_t)1 << level, up);
    }
    return 2 * levels;
}

static int64_t run_halving(const schedule *s)
{
    int levels = 0;
    while ((int64_t)2 << levels <= s->devices)
        levels++;
    const int64_t power = (int64_t)1 << levels, extra = s->devices - power;
    int64_t step = 0;
    for (int64_t i = 0; i < extra; i++)
        send(s, step, 2 * i, 2 * i + 1, s->bytes);
    step += extra > 0;
    for (int turn = 0; turn < 2 * levels; turn++, step++) {
        const int bit = turn < levels ? turn : 2 * levels - 1 - turn;
        const double half = s->bytes / (double)((int64_t)2 << bit);
        for (int64_t number = 0; number < power; number++) {
            const int64_t other = number ^ (int64_t)1 << bit;
            const int64_t src = number < extra ? 2 * number + 1 : number + extra;
            const int64_t dst = other < extra ? 2 * other + 1 : other + extra;
            send(s, step, src, dst, half);
        }
    }
    for (int64_t i = 0; i < extra; i++)
        send(s, step, 2 * i + 1, 2 * i, s->bytes);
    return step + (extra > 0);
}

/* Shards to their owners inside of every node, or back from them; in round t everyone sends to the device t places on.
 * Returns the number of steps. */
static int64_t run_inside(const schedule *s, int64_t step, bool rounds, bool to_owners)
{
    const int64_t nodes = nodes_of(s), owners = size_of(s, nodes - 1), each = size_of(s, 0);
    for (int64_t t = 1; t < each; t++) {
        for (int64_t node = 0; node < nodes; node++) {
            const int64_t size = size_of(s, node), first = node * s->per_node;
            for (int64_t i = 0; t < size && i < size; i++) {
                const int64_t other = (i + t) % size;
                if ((to_owners ? other : i) < owners)
                    send(s, step + (rounds ? t - 1 : 0), first + i, first + other,
                         s->bytes / (double)owners);
            }
        }
    }
    return each == 1 ? 0 : rounds ? each - 1 : 1;
}

/* Owners all-reduce their shards between the nodes, in rings or everyone with everyone. */
static int64_t run_between(const schedule *s, int64_t step, bool rings)
{
    const int64_t nodes = nodes_of(s), owners = size_of(s, nodes - 1);
    const int64_t steps = nodes == 1 ? 0 : rings ? 2 * (nodes - 1) : 2;
    const double part = s->bytes / (double)(owners * nodes);
    for (int64_t i = 0; i < steps; i++) {
        for (int64_t src = 0; src < nodes; src++) {
            for (int64_t t = 1; t < (rings ? 2 : nodes); t++) {
                for (int64_t o = 0; o < owners; o++)
                    send(s, step + i, src * s->per_node + o, (src + t) % nodes * s->per_node + o,
                         part);
            }
        }
    }
    return steps;
}

static int64_t run_parts(const schedule *s, bool rounds)
{
    int64_t step = run_inside(s, 0, rounds, true);
    step += run_between(s, step, rounds);
    return step + run_inside(s, step, rounds, false);
}

int64_t schedule_run(const schedule *s)
{
    switch (s->algorithm) {
    case ECH__ALGORITHM_RING:
        return run_ring(s);
    case ECH__ALGORITHM_TREE:
        return run_tree(s);
    case ECH__ALGORITHM_HALVING:
        return run_halving(s);
    case ECH__ALGORITHM_HIERARCHICAL:
        return run_parts(s, true);
    case ECH__ALGORITHM_DIRECT:
        return run_parts(s, false);
    default:
        assert(!"an algorithm with messages");
        return 0;
    }
}
