#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/mailbox_mpi.h"
#include "comm/mpi/mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct message {
    struct message *next;
    int from, tag;
    int64_t bytes;
    char data[];
} message;

/* A receive that waits for its message; they are matched in the order in which they were posted. */
typedef struct receive {
    struct receive *next;
    void *data;
    int64_t bytes;
    int from, tag;
    bool done;
} receive;

typedef struct box {
    pthread_mutex_t lock;
    message *messages;
    receive *receives;
} box;

static box *boxes;

/* The rank of the calling thread, by its name, which threads that it starts inherit. */
static int own_rank(void)
{
    static _Thread_local int rank = -1;
    char name[16] = "";
    if (rank < 0 && pthread_getname_np(pthread_self(), name, sizeof name) == 0)
        rank = atoi(name);
    return rank;
}

static void match(box *b)
{
    for (receive **r = &b->receives; *r;) {
        message **m = &b->messages;
        while (*m && ((*m)->from != (*r)->from || (*m)->tag != (*r)->tag))
            m = &(*m)->next;
        if (!*m) {
            r = &(*r)->next;
            continue;
        }
        message *got = *m;
        receive *done = *r;
        if (got->bytes != done->bytes)
            abort();
        memcpy(done->data, got->data, (size_t)got->bytes);
        done->done = true;
        *m = got->next;
        *r = done->next;
        free(got);
    }
}

static int mailbox_isend(const void *data, int64_t bytes, int peer, int tag,
                         ech__mpi_request *request)
{
    message *m = malloc(sizeof *m + (size_t)bytes);
    if (!m)
        return 1;
    *m = (message){.from = own_rank(), .tag = tag, .bytes = bytes};
    if (bytes)
        memcpy(m->data, data, (size_t)bytes);
    box *b = &boxes[peer];
    pthread_mutex_lock(&b->lock);
    message **end = &b->messages;
    while (*end)
        end = &(*end)->next;
    *end = m;
    pthread_mutex_unlock(&b->lock);
    request->active = false;
    return 0;
}

static int mailbox_irecv(void *data, int64_t bytes, int peer, int tag, ech__mpi_request *request)
{
    receive *r = malloc(sizeof *r);
    if (!r)
        return 1;
    *r = (receive){.data = data, .bytes = bytes, .from = peer, .tag = tag};
    box *b = &boxes[own_rank()];
    pthread_mutex_lock(&b->lock);
    receive **end = &b->receives;
    while (*end)
        end = &(*end)->next;
    *end = r;
    pthread_mutex_unlock(&b->lock);
    *request = (ech__mpi_request){(uintptr_t)r, true};
    return 0;
}

static int mailbox_test(ech__mpi_request *request, bool *done)
{
    box *b = &boxes[own_rank()];
    *done = true;
    if (!request->active)
        return 0;
    receive *r = (receive *)request->word;
    pthread_mutex_lock(&b->lock);
    match(b);
    *done = r->done;
    pthread_mutex_unlock(&b->lock);
    request->active = !*done;
    if (*done)
        free(r);
    return 0;
}

static int mailbox_progress(void)
{
    return 0;
}

static void mailbox_abandon(void)
{
}

static void mailbox_error_text(int code, char *text, size_t bytes)
{
    snprintf(text, bytes, "code %d", code);
}

static const ech__mpi_table table = {.isend = mailbox_isend,
                                     .irecv = mailbox_irecv,
                                     .test = mailbox_test,
                                     .progress = mailbox_progress,
                                     .abandon = mailbox_abandon,
                                     .error_text = mailbox_error_text,
                                     .max_tag = 32767};

/* ---- ranks ---- */

typedef struct job {
    int world;
    const int *first;
    const ech__comm_options *options;
    mailbox_body body;
    void *user;
    char *error;
    pthread_mutex_t lock;
    int failed;
} job;

typedef struct seat {
    job *job;
    int rank;
    pthread_t thread;
} seat;

static void *run_rank(void *arg)
{
    seat *own = arg;
    job *j = own->job;
    char name[16];
    ech_ctx *ctx = NULL;
    ech__comm *comm;
    snprintf(name, sizeof name, "%d", own->rank);
    if (pthread_setname_np(pthread_self(), name) != 0 || ech_ctx_create(NULL, &ctx) < 0)
        abort();
    if (ech__hier_open(ctx, &table, own->rank, j->world, j->first, j->options, &comm) < 0) {
        pthread_mutex_lock(&j->lock);
        snprintf(j->error, 1024, "%s", ech_ctx_error(ctx));
        j->failed++;
        pthread_mutex_unlock(&j->lock);
    } else {
        j->body(comm, j->user);
        ech__comm_close(comm);
    }
    ech_ctx_destroy(ctx);
    return NULL;
}

int mailbox_run(int world, int nodes, const ech__comm_options *options, mailbox_body body,
                void *user, char *error)
{
    char text[16];
    job j = {world, NULL, options, body, user, error, PTHREAD_MUTEX_INITIALIZER, 0};
    int *first = calloc((size_t)world, sizeof *first); /* all on one machine */
    seat *seats = calloc((size_t)world, sizeof *seats);
    pthread_attr_t small;
    boxes = calloc((size_t)world, sizeof *boxes);
    snprintf(text, sizeof text, "%d", nodes);
    if (!first || !seats || !boxes || setenv("ECHELON_NODES", text, 1) != 0)
        abort();
    j.first = first;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20);
    for (int r = 0; r < world; r++)
        pthread_mutex_init(&boxes[r].lock, NULL);
    for (int r = 0; r < world; r++) {
        seats[r] = (seat){.job = &j, .rank = r};
        if (pthread_create(&seats[r].thread, &small, run_rank, &seats[r]) != 0)
            abort();
    }
    for (int r = 0; r < world; r++)
        pthread_join(seats[r].thread, NULL);
    for (int r = 0; r < world; r++)
        pthread_mutex_destroy(&boxes[r].lock);
    pthread_attr_destroy(&small);
    unsetenv("ECHELON_NODES");
    free(boxes);
    free(seats);
    free(first);
    return j.failed;
}
