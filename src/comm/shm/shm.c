#include "comm/shm/internal.h"

#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[16] = "echelon ranks 1";

/* Offsets of the parts of the control block. */
typedef struct layout {
    int64_t ranks, slots, rings, bytes, ring_bytes;
} layout;

static layout lay_out(int world)
{
    layout l;
    l.ranks = ech__round_up((int64_t)sizeof(ech__shm_head), ECH__LINE);
    l.slots = ech__round_up(l.ranks + world * (int64_t)sizeof(ech__shm_rank), 4096);
    l.rings = l.slots + (int64_t)world * 2 * ECH__SLOT;
    l.bytes = ech__round_up(l.rings + ech__shm_rings_bytes(world, &l.ring_bytes), 4096);
    return l;
}

static ech_status check_world(ech_ctx *ctx, int world)
{
    if (world < 1 || world > ECH__MAX_RANKS_PER_NODE)
        return ech__fail(ctx, ECH_E_LIMIT, "%d ranks on a node: there can be 1 to %d", world,
                         (int)ECH__MAX_RANKS_PER_NODE);
    return ECH_OK;
}

ech_status ech__shm_create(ech_ctx *ctx, int world, int *fd)
{
    *fd = -1;
    ECH_TRY(check_world(ctx, world));
    const layout l = lay_out(world);
    const int file = memfd_create("echelon", MFD_CLOEXEC);
    if (file < 0)
        return ech__fail(ctx, ECH_E_IO, "no shared memory for %d ranks: %s", world,
                         strerror(errno));
    int error = posix_fallocate(file, 0, l.bytes);
    ech__shm_head *head = MAP_FAILED;
    if (error == 0) {
        head = mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = head == MAP_FAILED ? errno : 0;
    }
    if (error) {
        close(file);
        return ech__fail(ctx, ECH_E_NOMEM,
                         "cannot allocate %lld bytes of shared memory for %d ranks: %s",
                         (long long)l.bytes, world, strerror(error));
    }
    memcpy(head->magic, magic, sizeof magic);
    head->world = world;
    head->bytes = head->end = l.bytes;
    head->ring_bytes = l.ring_bytes;
    munmap(head, sizeof *head);
    *fd = file;
    return ECH_OK;
}

bool ech__shm_begun(int fd)
{
    int begun = 0;
    return pread(fd, &begun, sizeof begun, offsetof(ech__shm_head, begun)) ==
               (ssize_t)sizeof begun &&
           begun;
}

/* ---- joining and leaving ---- */

/* Maps the control block of a descriptor that may be anything at all. */
static ech_status map_control(ech_ctx *ctx, int fd, int world, const layout *l, void **out)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return ech__fail(ctx, ECH_E_INVALID, "descriptor %d is not the shared memory of ranks: %s",
                         fd, strerror(errno));
    void *map = MAP_FAILED;
    if (S_ISREG(st.st_mode) && st.st_size >= (int64_t)sizeof(ech__shm_head))
        map = mmap(NULL, (size_t)(st.st_size < l->bytes ? st.st_size : l->bytes),
                   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return ech__fail(ctx, ECH_E_INVALID, "descriptor %d is not the shared memory of ranks", fd);
    const size_t mapped = (size_t)(st.st_size < l->bytes ? st.st_size : l->bytes);
    const ech__shm_head *head = map;
    ech_status status = ECH_OK;
    if (memcmp(head->magic, magic, sizeof magic) != 0)
        status =
            ech__fail(ctx, ECH_E_INVALID, "descriptor %d is not the shared memory of ranks", fd);
    else if (head->world != world)
        status = ech__fail(ctx, ECH_E_INVALID, "the shared memory is for %d ranks, not for %d",
                           head->world, world);
    else if (st.st_size < l->bytes || head->bytes != l->bytes)
        status = ech__fail(ctx, ECH_E_INVALID,
                           "the shared memory was created by another version of this program");
    if (status < 0) {
        munmap(map, mapped);
        return status;
    }
    *out = map;
    return ECH_OK;
}

static void publish_affinity(ech__shm *s)
{
    ech__cpus set;
    if (!ech__cpus_read(&set))
        return;
    for (int w = 0; w < ECH__CPU_WORDS; w++) {
        if (set.word[w])
            atomic_fetch_or(&s->head->cpus[w], set.word[w]);
    }
}

/* Takes the rank's place, and goes on counting where it was left. */
static ech_status enter(ech__shm *s)
{
    const int rank = s->base.rank;
    ech__shm_rank *me = &s->ranks[rank];
    s->generation = atomic_load(&me->left);
    uint32_t joined = s->generation;
    if (!atomic_compare_exchange_strong(&me->joined, &joined, s->generation + 1))
        return ech__fail(s->base.ctx, ECH_E_INVALID, "rank %d of %d is already connected", rank,
                         s->base.world);
    const uint64_t a = atomic_load(&me->turn[0].arrived), b = atomic_load(&me->turn[1].arrived);
    s->turn = a > b ? a : b;
    s->sequence = s->turn ? atomic_load(&me->turn[(s->turn - 1) & 1].desc.sequence) + 1 : 0;
    s->started = atomic_load(&me->started);
    s->next = s->begun = atomic_load(&me->reduced);
    return ECH_OK;
}

static void shm_close(ech__comm *comm)
{
    ech__shm *s = (ech__shm *)comm;
    ech__shm_free_all(s);
    atomic_fetch_add(&s->ranks[comm->rank].left, 1);
    ech__shm_ring_bell(s);
    munmap(s->head, (size_t)s->head->bytes);
    close(s->fd);
    ech__delete(comm->ctx, s, sizeof *s);
}

static void shm_begun(ech__comm *comm)
{
    atomic_store_explicit(&((ech__shm *)comm)->head->begun, 1, memory_order_relaxed);
}

static const ech__comm_ops shm_ops = {
    .close = shm_close,
    .abort = ech__shm_comm_abort,
    .begun = shm_begun,
    .run = ech__shm_run,
    .alloc = ech__shm_alloc,
    .free = ech__shm_free,
    .start = ech__shm_start,
    .progress = ech__shm_progress,
    .step = ech__shm_step,
    .peer = ech__shm_peer,
    .wait = ech__shm_wait,
};

static ech_status join(ech__shm *s, int fd)
{
    ech_ctx *ctx = s->base.ctx;
    const layout l = lay_out(s->base.world);
    void *control = NULL;
    ECH_TRY(map_control(ctx, fd, s->base.world, &l, &control));
    s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (s->fd < 0) {
        munmap(control, (size_t)l.bytes);
        return ech__fail(ctx, ECH_E_IO, "the shared memory of the ranks: %s", strerror(errno));
    }
    s->head = control;
    s->ranks = (ech__shm_rank *)((char *)control + l.ranks);
    s->slots = (char *)control + l.slots;
    s->rings = (char *)control + l.rings;
    publish_affinity(s);
    const ech_status status = enter(s);
    if (status < 0) {
        munmap(control, (size_t)l.bytes);
        close(s->fd);
    }
    return status;
}

ech_status ech__shm_join(ech_ctx *ctx, int fd, int rank, int world, double timeout_s,
                         ech__comm **out)
{
    *out = NULL;
    ECH_TRY(check_world(ctx, world));
    if (rank < 0 || rank >= world)
        return ech__fail(ctx, ECH_E_INVALID, "rank %d of %d ranks", rank, world);
    ech__shm *s = ech__new(ctx, sizeof *s);
    if (!s)
        return ech__no_memory(ctx, "a comm");
    s->base = (ech__comm){.ops = &shm_ops,
                          .ctx = ctx,
                          .rank = rank,
                          .world = world,
                          .local_rank = rank,
                          .local_world = world,
                          .nodes = 1,
                          .backend = ECH__BACKEND_SHM,
                          .timeout_s = timeout_s};
    s->parent = getppid();
    const ech_status status = join(s, fd);
    if (status < 0) {
        ech__delete(ctx, s, sizeof *s);
        return status;
    }
    *out = &s->base;
    return ECH_OK;
}

void ech__shm_set_inter(ech__comm *comm, const ech__inter *inter)
{
    ech__shm *s = (ech__shm *)comm;
    s->inter = *inter;
    s->has_inter = true;
}
