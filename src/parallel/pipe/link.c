/* Between the devices of a pipe: the two ends of a transfer, as kernels. What belongs to other
 * groups is handed on to their ranks. */
#include "base/system/clock.h"
#include "parallel/pipe/internal.h"
#include "plan/transfer.h"

typedef struct ech__link_end {
    ech__kernel base;
    ech__stage *stage;
    ech__message *message;
    void *at;
    int64_t extent; /* bytes in memory, padding included */
    /* Between ranks: a buffer on the host, where the host cannot touch the memory at `at`; NULL:
     * none. */
    void *staging;
    bool later; /* between ranks: sent when the next gradient has come, see below */
} link_kernel;

static ech__stage *of(ech__exchange *exchange)
{
    return (ech__stage *)exchange;
}

static int64_t now(const ech__stage *stage)
{
    return stage->pipe->options.links ? stage->clock.now_ns : ech__clock_wall();
}

static ech_status fail_because_of_other(const ech__stage *stage)
{
    return ech__fail(stage->ctx, ECH_E_INTERNAL, "ended because device %d failed",
                     atomic_load(&stage->pipe->failed) - 1);
}

static ech_status run_send(ech__kernel *base, const ech__scalars *scalars)
{
    const link_kernel *k = (const link_kernel *)base;
    ech__message *message = k->message;
    (void)scalars;
    ECH_TRY(k->stage->device->memory->sync(k->stage->device));
    message->src = k->at;
    message->sent_ns = message->clock_ns = now(k->stage);
    atomic_fetch_add_explicit(&message->sent, 1, memory_order_release);
    ech__condition_notify(&k->stage->pipe->stages[message->to].condition);
    k->stage->work.bytes_out += message->bytes;
    return ECH_OK;
}

static double price(const ech__pipe *pipe, const ech__message *message)
{
    const ech__cluster *c = pipe->options.links;
    const int64_t each = c->devices_per_node;
    const bool far = each && message->from / each != message->to / each;
    return ech__price_message(far ? &c->between : &c->inside, message->bytes);
}

/* On the virtual clock it arrives when it was sent, plus its price. */
static void wait_for_arrival(ech__stage *stage, ech__message *message)
{
    const int64_t arrives = message->clock_ns + (int64_t)(1e9 * price(stage->pipe, message));
    message->fetch_ns = message->clock_ns;
    message->taken_ns = arrives;
    if (arrives <= stage->clock.now_ns)
        return;
    stage->work.wait_ns += arrives - stage->clock.now_ns;
    stage->clock.now_ns = arrives;
}

static ech_status run_recv(ech__kernel *base, const ech__scalars *scalars)
{
    const link_kernel *k = (const link_kernel *)base;
    ech__stage *stage = k->stage;
    ech__pipe *pipe = stage->pipe;
    ech__message *message = k->message;
    (void)scalars;
    const int64_t start = ech__clock_wall();
    const uint64_t number = atomic_load_explicit(&message->taken, memory_order_relaxed) + 1;
    if (!ech__message_await(&stage->condition, &message->sent, number, &pipe->failed,
                            pipe->spin_ns))
        return fail_because_of_other(stage);
    const int64_t fetch = ech__clock_wall();
    ECH_TRY(ech__device_copy(stage->device, k->at, pipe->stages[message->from].device, message->src,
                             k->extent));
    if (pipe->options.links) {
        wait_for_arrival(stage, message);
    } else {
        message->fetch_ns = fetch;
        message->taken_ns = ech__clock_wall();
        stage->work.wait_ns += fetch - start;
        stage->work.copy_ns += message->taken_ns - fetch;
    }
    atomic_store_explicit(&message->taken, number, memory_order_release);
    ech__condition_notify(&pipe->stages[message->from].condition);
    stage->work.bytes_in += message->bytes;
    stage->work.moves_in++;
    return ECH_OK;
}

/* ---- between ranks ----
 *
 * A send waits until the other side receives, so the two sides of a border must take their messages
 * in one order. In the order of one forward and one backward in turns they would not: the device
 * before has the next activations to send when the one behind sends a gradient. It then takes the
 * gradient first; the other one had to be done with it anyway before it could use the activations.
 * Borders are a chain, so nobody waits in a circle. A byte goes ahead of each message, to tell
 * waiting from moving. */

static ech_status send_to_rank(const link_kernel *k)
{
    ech__comm *comm = k->stage->pipe->options.comm;
    ech__device *device = k->stage->device;
    const ech__coll knock = {
        .op = ECH__COLL_SEND, .dtype = ECH_U8, .count = 1, .src = "", .peer = k->message->to};
    const ech__coll data = {.op = ECH__COLL_SEND,
                            .dtype = ECH_U8,
                            .count = k->extent,
                            .src = k->staging ? k->staging : k->at,
                            .peer = k->message->to};
    const int64_t start = ech__clock_wall();
    if (k->staging)
        ECH_TRY(device->memory->read(device, k->staging, k->at, k->extent));
    ECH_TRY(ech__comm_run(comm, &knock));
    ECH_TRY(ech__comm_run(comm, &data));
    k->message->sent_ns = ech__clock_wall();
    k->stage->work.copy_ns += k->message->sent_ns - start;
    k->stage->work.bytes_out += k->message->bytes;
    return ECH_OK;
}

/* Sentences of the ranks are in their context. */
static ech_status from_ranks(const ech__stage *stage, ech_status status)
{
    return status < 0 ? ech__fail(stage->ctx, status, "%s", stage->pipe->options.comm->ctx->error)
                      : ECH_OK;
}

static ech_status run_send_rank(ech__kernel *base, const ech__scalars *scalars)
{
    link_kernel *k = (link_kernel *)base;
    (void)scalars;
    if (k->later) {
        k->stage->pending = k;
        return ECH_OK;
    }
    return from_ranks(k->stage, send_to_rank(k));
}

static ech_status recv_from_rank(const link_kernel *k)
{
    ech__comm *comm = k->stage->pipe->options.comm;
    ech__stage_work *work = &k->stage->work;
    char knocked;
    const ech__coll knock = {.op = ECH__COLL_RECV,
                             .dtype = ECH_U8,
                             .count = 1,
                             .dst = &knocked,
                             .peer = k->message->from};
    const ech__coll data = {.op = ECH__COLL_RECV,
                            .dtype = ECH_U8,
                            .count = k->extent,
                            .dst = k->staging ? k->staging : k->at,
                            .peer = k->message->from};
    const int64_t start = ech__clock_wall();
    ECH_TRY(ech__comm_run(comm, &knock));
    k->message->fetch_ns = ech__clock_wall();
    ECH_TRY(ech__comm_run(comm, &data));
    if (k->staging)
        ECH_TRY(k->stage->device->memory->write(k->stage->device, k->at, k->staging, k->extent));
    k->message->taken_ns = ech__clock_wall();
    work->wait_ns += k->message->fetch_ns - start;
    work->copy_ns += k->message->taken_ns - k->message->fetch_ns;
    work->bytes_in += k->message->bytes;
    work->moves_in++;
    return ECH_OK;
}

static ech_status run_recv_rank(ech__kernel *base, const ech__scalars *scalars)
{
    const link_kernel *k = (const link_kernel *)base;
    ech__stage *stage = k->stage;
    const link_kernel *pending = stage->pending;
    (void)scalars;
    ECH_TRY(from_ranks(stage, recv_from_rank(k)));
    if (!pending || pending->message->to != k->message->from)
        return ECH_OK;
    stage->pending = NULL;
    return from_ranks(stage, send_to_rank(pending));
}

/* Activations that are ready before a gradient, where the next device sends that gradient before it
 * receives them. */
static bool is_later(const ech__pipe *pipe, const ech__pass *pass, const ech__message *message,
                     int micro)
{
    const ech__pipe_options *o = &pipe->options;
    if (!pass->training || message->to < message->from)
        return false;
    const int own = ech__pipe_slots(o->order, message->from, o->devices, pass->micros);
    const int other = ech__pipe_slots(o->order, message->to, o->devices, pass->micros);
    return own != other && micro >= own - 1;
}

ech_status ech__stage_await_taken(ech__stage *stage, int micro)
{
    ech__pipe *pipe = stage->pipe;
    const ech__pass *pass = pipe->now;
    if (pipe->options.comm) /* what was sent is gone when the sending is over */
        return ECH_OK;
    for (int link = 0; link < pass->links; link++) {
        ech__message *message = &pass->messages[link * pass->micros + micro];
        if (message->from != stage->index)
            continue;
        const uint64_t sent = atomic_load_explicit(&message->sent, memory_order_relaxed);
        if (!ech__message_await(&stage->condition, &message->taken, sent, &pipe->failed,
                                pipe->spin_ns))
            return fail_because_of_other(stage);
    }
    return ECH_OK;
}

/* ---- the table of the plan ---- */

static void destroy(ech__kernel *base)
{
    link_kernel *k = (link_kernel *)base;
    ech__delete(k->stage->ctx, k->staging, (size_t)k->extent);
    ech__delete(k->stage->ctx, k, sizeof *k);
}

static ech_status create_end(ech__stage *stage, const ech__kernel_desc *desc,
                             const ech__binding *binding, ech__kernel **out)
{
    const ech__pipe *pipe = stage->pipe;
    const ech__pass *pass = pipe->made;
    const bool send = desc->op == ECH__OP_SEND;
    const ech__operand *operand = &desc->operands[0];
    const int64_t each = ech__dtype_bytes(operand->dtype);
    int64_t elems = 0, extent = 0;
    link_kernel *k = ech__new(stage->ctx, sizeof *k);
    if (!k)
        return ech__no_memory(stage->ctx, "%s", ech__op_name(desc->op));
    ech__shape_elems(&operand->layout.shape, &elems);
    ech__layout_extent(&operand->layout, &extent);
    ech__message *message = &pass->messages[desc->attrs.link * pass->micros + pipe->made_micro];
    message->bytes = elems * each;
    message->from = desc->attrs.from;
    message->to = desc->attrs.to;
    const bool ranks = pipe->options.comm != NULL;
    *k = (link_kernel){.base = {.run = ranks ? (send ? run_send_rank : run_recv_rank)
                                             : (send ? run_send : run_recv),
                                .destroy = destroy},
                       .later = ranks && is_later(pipe, pass, message, pipe->made_micro),
                       .stage = stage,
                       .message = message,
                       .at = binding->operands[0],
                       .extent = extent * each};
    if (ranks && !stage->device->memory->host_visible) {
        k->staging = ech__new(stage->ctx, (size_t)k->extent);
        if (!k->staging) {
            destroy(&k->base);
            return ech__no_memory(stage->ctx, "%s", ech__op_name(desc->op));
        }
    }
    *out = &k->base;
    return ECH_OK;
}

static ech_status create(ech__exchange *exchange, ech__device *device, const ech__kernel_desc *desc,
                         const ech__binding *binding, ech__kernel *update, ech__kernel **out)
{
    ech__stage *stage = of(exchange);
    ech__exchange *ranks = ech__ranks_exchange(stage->pipe->options.ranks);
    *out = NULL;
    if (desc->op == ECH__OP_SEND || desc->op == ECH__OP_RECV)
        return create_end(stage, desc, binding, out);
    ECH_TRY(ranks->ops->create(ranks, device, desc, binding, update, out));
    return desc->op == ECH__OP_SYNC_STATS || desc->op == ECH__OP_SYNC_SUMS
               ? ech__stage_meeting(stage, *out, out)
               : ECH_OK;
}

static ech_status alloc(ech__exchange *exchange, int64_t bytes, void **out)
{
    ech__exchange *ranks = ech__ranks_exchange(of(exchange)->pipe->options.ranks);
    return ranks->ops->alloc(ranks, bytes, out);
}

static void free_shared(ech__exchange *exchange, void *ptr)
{
    ech__exchange *ranks = ech__ranks_exchange(of(exchange)->pipe->options.ranks);
    ranks->ops->free(ranks, ptr);
}

/* Only the stage that is exchanging may ask the ranks, and it then waits anyway. */
static ech_status progress(ech__exchange *exchange)
{
    (void)exchange;
    return ECH_OK;
}

const ech__exchange_ops ech__stage_exchange_ops = {alloc, free_shared, create, progress, NULL};
