#include "lab/serve.h"
#include "base/system/clock.h"
#include "base/system/available.h"
#include "lab/live.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS = 64,     /* more are not taken before others are closed */
    MOST_CLIENTS = 48,    /* from these on, the one that was served longest ago makes room */
    MOST_OF_ADDRESS = 16, /* the same for those of one address; a browser has up to six */
    IDLE_SECONDS = 10,    /* after which a connection is closed that has not completed a request */
    REQUEST_BYTES = 32 << 10, /* of memory for a connection, headers included */
    BACKLOG = 128,
};

static const double WATCHED_S = 3.5;  /* who has asked within this time is still looking */
static const double FAREWELL_S = 2.5; /* how long a stop waits for them */

/* A connection. A client that sends its request byte by byte, or does not read the answer, is never
 * silent, so what counts is when a request of it was last completed. */
typedef struct client {
    bool is_here; /* false: the place is free */
    int fd;
    in_addr_t address;
    int64_t served_ns; /* when its last request was completed, or when it came */
    bool is_leaving;   /* it has been shut down, and the library is about to close it */
} client;

struct ech__lab_server {
    ech_ctx *ctx; /* its own: the thread's sentences are not the lab's */
    ech__live *live;
    ech__live_page page;
    struct MHD_Daemon *daemon;
    client clients[CONNECTIONS]; /* only the server's thread knows them */
    int port;
    atomic_bool is_over;       /* the end is near */
    atomic_bool has_told;      /* and somebody has heard it */
    atomic_llong last_look_ns; /* when the state was last asked for; 0: never */
};

/* ---- answers ---- */

/* What a request is to be remembered by between two calls. */
static const char request_begun, farewell;

static const struct {
    const char *name, *value;
} headers[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
};

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned code, const char *type,
                             ech__live_text body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.bytes, (void *)body.text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    bool good = MHD_add_response_header(response, "Content-Type", type) == MHD_YES;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        good &= MHD_add_response_header(response, headers[i].name, headers[i].value) == MHD_YES;
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        good &= MHD_add_response_header(response, "Allow", "GET") == MHD_YES;
    const enum MHD_Result result = good ? MHD_queue_response(connection, code, response) : MHD_NO;
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *why)
{
    return reply(connection, code, "text/plain; charset=utf-8", (ech__live_text){why, strlen(why)});
}

/* Whether a request is meant for this server: a name of this machine's loopback, and the port where there is one. */
static bool is_own_host(const ech__lab_server *s, const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost"};
    char port[16];
    snprintf(port, sizeof port, ":%d", s->port);
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) == 0 &&
            (!host[length] || strcmp(host + length, port) == 0))
            return true;
    }
    return false;
}

static enum MHD_Result reply_state(ech__lab_server *s, struct MHD_Connection *connection,
                                   void **request)
{
    ech__live_text state;
    const bool is_over = atomic_load(&s->is_over);
    atomic_store(&s->last_look_ns, ech__clock_wall());
    if (ech__live_state(s->live, is_over, &state) < 0)
        return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, ech_ctx_error(s->ctx));
    if (is_over)
        *request = (void *)&farewell;
    return reply(connection, MHD_HTTP_OK, "application/json", state);
}

static enum MHD_Result answer(void *server, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *body,
                              size_t *body_bytes, /* NOLINT: the library's type */
                              void **request)
{
    ech__lab_server *s = server;
    (void)version;
    (void)body;
    (void)body_bytes;
    if (!is_own_host(s, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return refuse(connection, MHD_HTTP_FORBIDDEN,
                      "this is for a browser on the same machine\n");
    if (strcmp(method, "GET") != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is answered\n");
    if (!*request) { /* what comes with a request is read first, so that the connection can stay open */
        *request = (void *)&request_begun;
        return MHD_YES;
    }
    if (strcmp(path, "/") == 0)
        return reply(connection, MHD_HTTP_OK, "text/html; charset=utf-8", s->page.html);
    if (strcmp(path, "/style.css") == 0)
        return reply(connection, MHD_HTTP_OK, "text/css; charset=utf-8", s->page.style);
    if (strcmp(path, "/script.js") == 0)
        return reply(connection, MHD_HTTP_OK, "text/javascript; charset=utf-8", s->page.script);
    if (strcmp(path, "/state") == 0)
        return reply_state(s, connection, request);
    return refuse(connection, MHD_HTTP_NOT_FOUND, "there is no such page\n");
}

static void completed(void *server, struct MHD_Connection *connection, void **request,
                      enum MHD_RequestTerminationCode code)
{
    ech__lab_server *s = server;
    (void)connection;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info && info->socket_context && code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        ((client *)info->socket_context)->served_ns = ech__clock_wall();
    if (*request == &farewell && code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        atomic_store(&s->has_told, true);
    *request = NULL;
}

/* ---- who is connected ---- */

static void send_away(client *g)
{
    if (!g)
        return;
    shutdown(g->fd, SHUT_RDWR); /* the library sees its end, and closes it */
    g->is_leaving = true;
}

/* The client that was served longest ago, and how many there are; of one address, or of all where it is NULL. */
static client *longest_ago(ech__lab_server *s, const in_addr_t *address, int *count)
{
    client *found = NULL;
    *count = 0;
    for (client *g = s->clients; g < s->clients + CONNECTIONS; g++) {
        if (!g->is_here || g->is_leaving || (address && g->address != *address))
            continue;
        ++*count;
        if (!found || g->served_ns < found->served_ns)
            found = g;
    }
    return found;
}

/* Whoever comes is let in: those who hold connections without completing requests make room, so
 * nobody can keep others out. */
static void make_room(ech__lab_server *s, in_addr_t address)
{
    const int64_t now = ech__clock_wall();
    int count;
    for (client *g = s->clients; g < s->clients + CONNECTIONS; g++) {
        if (g->is_here && !g->is_leaving && ech__seconds(now - g->served_ns) > IDLE_SECONDS)
            send_away(g);
    }
    client *oldest = longest_ago(s, &address, &count);
    if (count >= MOST_OF_ADDRESS)
        send_away(oldest);
    oldest = longest_ago(s, NULL, &count);
    if (count >= MOST_CLIENTS)
        send_away(oldest);
}

static void come_or_go(void *server, struct MHD_Connection *connection, void **context,
                       enum MHD_ConnectionNotificationCode code)
{
    ech__lab_server *s = server;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            *(client *)*context = (client){0};
        return;
    }
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!fd || !from)
        return;
    struct sockaddr_in address;
    memcpy(&address, from->client_addr, sizeof address);
    make_room(s, address.sin_addr.s_addr);
    client *place = s->clients;
    while (place < s->clients + CONNECTIONS && place->is_here)
        place++;
    if (place == s->clients + CONNECTIONS)
        return;
    *place = (client){true, fd->connect_fd, address.sin_addr.s_addr, ech__clock_wall(), false};
    *context = place;
}

/* ---- life ---- */

/* A socket of our own says why it cannot be had, and no run inherits it. */
static ech_status open_socket(ech_ctx *ctx, int *port, int *out)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)*port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) {
        *port = ntohs(address.sin_port);
        *out = fd;
        return ECH_OK;
    }
    const int error = errno;
    if (fd >= 0)
        close(fd);
    if (error == EADDRINUSE)
        return ech__fail(
            ctx, ECH_E_IO,
            "port %d of 127.0.0.1 is in use by another program; port 0 takes any that is free",
            *port);
    return ech__fail(ctx, ECH_E_IO, "port %d of 127.0.0.1 cannot be listened on: %s", *port,
                     strerror(error));
}

/* The thread takes no signals: they are for the one that runs the lab, whose waiting they interrupt. */
static struct MHD_Daemon *start_thread(ech__lab_server *s, int fd)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD, (uint16_t)s->port, NULL, NULL, answer, s,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_COMPLETED, completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, come_or_go, s, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

static void release(ech__lab_server *s)
{
    ech__live_destroy(s->live);
    ech__live_page_destroy(&s->page);
    ech_ctx_destroy(s->ctx);
    free(s);
}

static ech_status start(ech_ctx *ctx, ech__lab_server *s)
{
    int fd = -1;
    ECH_TRY(ech__threads_check(ctx, "the live view", 1));
    ECH_TRY(ech__live_page_create(ctx, &s->page));
    ECH_TRY(open_socket(ctx, &s->port, &fd));
    s->daemon = start_thread(s, fd);
    if (s->daemon)
        return ECH_OK;
    const int error = errno;
    close(fd);
    return ech__fail(ctx, ECH_E_IO, "the live view on port %d did not start: %s", s->port,
                     strerror(error));
}

ech_status ech__lab_serve_start(ech_ctx *ctx, ech__lab *lab, const char *out_dir, int port,
                                ech__lab_server **out)
{
    *out = NULL;
    if (port < 0 || port > 65535)
        return ech__fail(ctx, ECH_E_INVALID,
                         "port %d: must be 1 to 65535, or 0 for any that is free", port);
    ech__lab_server *s = calloc(1, sizeof *s);
    if (!s || ech_ctx_create(NULL, &s->ctx) < 0) {
        free(s);
        return ech__no_memory(ctx, "the live view");
    }
    s->port = port;
    ech_status status = ech__live_create(s->ctx, lab, out_dir, &s->live);
    if (status < 0)
        ech__fail(ctx, status, "%s", ech_ctx_error(s->ctx));
    else
        status = start(ctx, s);
    if (status < 0) {
        release(s);
        return status;
    }
    *out = s;
    return ECH_OK;
}

int ech__lab_serve_port(const ech__lab_server *s)
{
    return s->port;
}

static bool is_watched(ech__lab_server *s)
{
    const long long last = atomic_load(&s->last_look_ns);
    return last && ech__seconds(ech__clock_wall() - last) < WATCHED_S;
}

void ech__lab_serve_stop(ech__lab_server *s)
{
    if (!s)
        return;
    const int64_t begin = ech__clock_wall();
    atomic_store(&s->is_over, true);
    while (is_watched(s) && !atomic_load(&s->has_told) &&
           ech__seconds(ech__clock_wall() - begin) < FAREWELL_S)
        ech__clock_sleep(0.02);
    MHD_stop_daemon(s->daemon);
    release(s);
}
