#include "comm/mpi/inter.h"

#include "comm/collective/reduce.h"

#include <assert.h>
#include <string.h>

/* Parts end at multiples of so many bytes. */
enum { GRAIN_BYTES = 64 };

static bool idle(const ech__between *b)
{
    return b->begun == b->ended;
}

void ech__between_init(ech__between *b, ech__wire *wire, const ech__between_options *o)
{
    *b = (ech__between){.wire = wire, .options = *o};
    b->schedule = (ech__schedule){.algorithm = o->algorithm,
                                  .devices = o->places,
                                  .per_node = o->per_node,
                                  .count = ECH__CHUNK_BYTES,
                                  .grain = GRAIN_BYTES};
    b->steps = ech__schedule_steps(&b->schedule);
    b->most = ech__schedule_most(&b->schedule);
}

static void release(ech__between *b)
{
    ech_ctx *ctx = b->wire->ctx;
    for (int i = 0; i < ECH__FLIGHTS; i++) {
        ech__flight *f = &b->flights[i];
        ech__delete(ctx, f->moves, (size_t)b->most * sizeof *f->moves);
        ech__delete(ctx, f->requests, (size_t)b->most * sizeof *f->requests);
        ech__delete(ctx, f->scratch, (size_t)b->scratch_bytes);
        *f = (ech__flight){0};
    }
    ech__delete(ctx, b->terms, (size_t)b->options.places * sizeof *b->terms);
    b->terms = NULL;
    b->reserved = false;
}

void ech__between_fini(ech__between *b)
{
    /* MPI may still write to memory of messages in progress, so it is not freed: the process is
     * about to end. */
    if (b->wire && idle(b))
        release(b);
}

/* Bytes that are received to be added, in the step that has the most of them. */
static int64_t scratch_of(const ech__between *b, ech__move *moves)
{
    int64_t most = 0;
    for (int64_t step = 0; step < b->steps; step++) {
        const int64_t n = ech__schedule_moves(&b->schedule, b->options.place, step, moves);
        int64_t bytes = 0;
        for (int64_t i = 0; i < n; i++)
            bytes += moves[i].kind == ECH__MOVE_ADD ? moves[i].range.count + GRAIN_BYTES : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

ech_status ech__between_reserve(ech__between *b)
{
    ech_ctx *ctx = b->wire->ctx;
    if (b->reserved || b->options.place < 0)
        return ECH_OK;
    b->terms = ech__new(ctx, (size_t)b->options.places * sizeof *b->terms);
    bool good = b->terms != NULL;
    for (int i = 0; i < ECH__FLIGHTS && good; i++) {
        ech__flight *f = &b->flights[i];
        f->moves = ech__new(ctx, (size_t)b->most * sizeof *f->moves);
        f->requests = ech__new(ctx, (size_t)b->most * sizeof *f->requests);
        if (i == 0 && f->moves)
            b->scratch_bytes = scratch_of(b, f->moves);
        f->scratch = f->moves ? ech__new(ctx, (size_t)b->scratch_bytes) : NULL;
        good = f->moves && f->requests && f->scratch;
    }
    b->reserved = good;
    if (good)
        return ECH_OK;
    release(b);
    return ech__no_memory(ctx, "%lld bytes to exchange with %d others",
                          (long long)b->scratch_bytes * ECH__FLIGHTS, b->options.places - 1);
}

/* ---- one chunk ---- */

static int64_t unit_of(const ech__flight *f)
{
    return ech__dtype_bytes(f->dtype);
}

/* Receives first: what arrives where nobody waits for it is copied once more. */
static ech_status post(ech__between *b, ech__flight *f)
{
    const ech__mpi_table *mpi = b->wire->mpi;
    const int64_t unit = unit_of(f);
    char *scratch = f->scratch;
    for (int sends = 0; sends < 2; sends++) {
        for (int i = 0; i < f->nmoves; i++) {
            const ech__move *m = &f->moves[i];
            const int64_t bytes = m->range.count * unit;
            const int rank = b->options.ranks[m->peer];
            char *at = f->data + m->range.first * unit;
            if ((m->kind == ECH__MOVE_SEND) != sends)
                continue;
            if (m->kind == ECH__MOVE_ADD) {
                at = scratch;
                scratch += bytes;
            }
            const int code = sends ? mpi->isend(at, bytes, rank, f->tag, &f->requests[i])
                                   : mpi->irecv(at, bytes, rank, f->tag, &f->requests[i]);
            if (code != 0)
                return ech__wire_broken(b->wire, code, rank, "a chunk");
            f->open++;
        }
    }
    return ECH_OK;
}

/* Adds up what a step has brought. All of it is of one range. */
static ech_status combine(ech__between *b, ech__flight *f)
{
    const int64_t unit = unit_of(f);
    ech__range range = {0, 0};
    const char *scratch = f->scratch;
    void *own = NULL;
    int n = 0;
    for (int i = 0; i < f->nmoves; i++) {
        const ech__move *m = &f->moves[i];
        if (m->kind != ECH__MOVE_ADD)
            continue;
        assert(n == 0 || m->range.first == range.first);
        range = m->range;
        if (!own && m->peer > b->options.place)
            b->terms[n++] = own = f->data + range.first * unit;
        b->terms[n++] = scratch;
        scratch += range.count * unit;
    }
    if (n == 0)
        return ECH_OK;
    if (!own)
        b->terms[n++] = own = f->data + range.first * unit;
    return ech__reduce(b->wire->ctx, f->reduction, f->dtype, range.count, b->terms, n, &own, 1, 1);
}

/* Tests every message once. */
static ech_status test_messages(ech__between *b, ech__flight *f)
{
    int waited_for = -1;
    f->open = 0;
    for (int i = 0; i < f->nmoves; i++) {
        bool done = true;
        const int rank = b->options.ranks[f->moves[i].peer];
        const int code = b->wire->mpi->test(&f->requests[i], &done);
        if (code != 0)
            return ech__wire_broken(b->wire, code, rank, "a chunk");
        if (done)
            continue;
        f->open++;
        if (waited_for < 0 || f->moves[i].kind != ECH__MOVE_SEND)
            waited_for = rank;
    }
    if (f->open == 0)
        return ECH_OK;
    return ech__wire_look(b->wire, &f->waited, waited_for, f->sequence);
}

/* To the next step in which this rank has moves. */
static void next_step(ech__between *b, ech__flight *f)
{
    b->schedule.count = f->count;
    b->schedule.grain = GRAIN_BYTES / unit_of(f);
    for (f->nmoves = 0, f->step++; f->step < b->steps; f->step++) {
        f->nmoves = (int)ech__schedule_moves(&b->schedule, b->options.place, f->step, f->moves);
        if (f->nmoves > 0)
            break;
    }
    f->waited = ech__waited_start();
}

/* Goes on with one chunk as far as messages have come. */
static ech_status drive(ech__between *b, ech__flight *f)
{
    while (f->step < b->steps) {
        ECH_TRY(test_messages(b, f));
        if (f->open > 0)
            return ECH_OK;
        ECH_TRY(combine(b, f));
        next_step(b, f);
        ECH_TRY(post(b, f));
    }
    return ECH_OK;
}

/* ---- all of them ---- */

ech_status ech__between_begin(void *between, void *data, int64_t count, ech_dtype dtype,
                              ech__reduction reduction, uint64_t sequence)
{
    ech__between *b = between;
    assert(b->reserved && b->begun - b->ended < ECH__FLIGHTS);
    assert(count > 0 && count * ech__dtype_bytes(dtype) <= ECH__CHUNK_BYTES);
    ech__flight *f = &b->flights[b->begun % ECH__FLIGHTS];
    f->data = data;
    f->count = count;
    f->dtype = dtype;
    f->reduction = reduction;
    f->sequence = sequence;
    f->tag = b->options.first_tag + (int)(b->begun % ECH__CHUNK_TAGS);
    f->step = -1;
    f->nmoves = f->open = 0;
    b->begun++;
    return drive(b, f);
}

ech_status ech__between_test(void *between, bool *done)
{
    ech__between *b = between;
    for (uint64_t i = b->ended; i < b->begun; i++)
        ECH_TRY(drive(b, &b->flights[i % ECH__FLIGHTS]));
    *done = !idle(b) && b->flights[b->ended % ECH__FLIGHTS].step >= b->steps;
    b->ended += *done;
    return ECH_OK;
}

ech_status ech__between_push(void *between)
{
    ech__between *b = between;
    const int code = b->wire->mpi->progress();
    return code == 0 ? ECH_OK : ech__wire_broken(b->wire, code, b->wire->rank, "messages");
}

ech_status ech__between_run(ech__between *b, const ech__coll *coll)
{
    const int64_t unit = ech__dtype_bytes(coll->dtype), most = ECH__CHUNK_BYTES / unit;
    const bool mean = coll->reduction == ECH__REDUCTION_MEAN;
    const ech__reduction reduction = mean ? ECH__REDUCTION_SUM : coll->reduction;
    const uint64_t sequence = b->wire->sequence++;
    char *dst = coll->dst;
    if (coll->dst != coll->src && coll->count > 0)
        memcpy(dst, coll->src, (size_t)(coll->count * unit));
    for (int64_t at = 0, round = 0; at < coll->count || !idle(b); round++) {
        const uint64_t before = b->begun + b->ended;
        bool done;
        if (at < coll->count && b->begun - b->ended < ECH__FLIGHTS) {
            const int64_t n = coll->count - at < most ? coll->count - at : most;
            ECH_TRY(ech__between_begin(b, dst + at * unit, n, coll->dtype, reduction, sequence));
            at += n;
        }
        ECH_TRY(ech__between_test(b, &done));
        round = b->begun + b->ended == before ? round : 0;
        ECH_TRY(ech__wire_idle(b->wire, (int)round));
    }
    const void *sum = dst;
    void *out = dst;
    return mean ? ech__reduce(b->wire->ctx, coll->reduction, coll->dtype, coll->count, &sum, 1,
                              &out, 1, b->wire->size)
                : ECH_OK;
}
