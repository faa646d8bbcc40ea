#include "comm/shm/pass_fd.h"

#include "base/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The first byte of an abstract name is zero; its length ends it. */
static socklen_t make_address(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t length = strlen(name);
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

ech_status ech__pass_listen(ech_ctx *ctx, int *listener, char name[ECH__PASS_NAME_BYTES])
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return ech__fail(ctx, ECH_E_IO, "a name for a socket: no random numbers: %s",
                         strerror(errno));
    snprintf(name, ECH__PASS_NAME_BYTES, "echelon-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    struct sockaddr_un address;
    const socklen_t length = make_address(name, &address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 256) < 0) {
        const int reason = errno;
        if (fd >= 0)
            close(fd);
        return ech__fail(ctx, ECH_E_IO, "a Unix socket for the ranks of this node: %s",
                         strerror(reason));
    }
    *listener = fd;
    return ECH_OK;
}

/* Waits until fd can be read. False once `waited` has reached the limit, also where there is
 * something to read: strangers that connect again and again do not prolong the wait. */
static bool wait_readable(int fd, ech__waited *waited, double timeout_s)
{
    const int64_t limit = (int64_t)(timeout_s * 1e9);
    while (ech__waited_look(waited) < limit) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, (int)(ech__waited_slice(waited, limit) / 1000000 + 1));
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
    return false;
}

/* Connects; a full backlog is tried again until the limit. Returns 0 or an errno. */
static int connect_within(int fd, const char *name, ech__waited *waited, double timeout_s)
{
    struct sockaddr_un address;
    const socklen_t length = make_address(name, &address);
    while (connect(fd, (struct sockaddr *)&address, length) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return errno;
        if (ech__seconds(ech__waited_look(waited)) >= timeout_s)
            return ETIMEDOUT;
        ech__clock_sleep(0.01);
    }
    return 0;
}

static bool same_user(int fd, long *other)
{
    struct ucred who;
    socklen_t length = sizeof who;
    *other = -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) < 0)
        return false;
    *other = (long)who.uid;
    return who.uid == geteuid();
}

/* Room for one descriptor beside a message, aligned as the header of its control data. */
typedef union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
} control;

static bool send_descriptor(int socket, int fd)
{
    char byte = 'e';
    control beside = {.bytes = {0}};
    struct iovec text = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = beside.bytes,
                             .msg_controllen = sizeof beside.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    ssize_t sent;
    while ((sent = sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return sent == 1;
}

/* -1 where the message holds none. */
static int receive_descriptor(int socket)
{
    char byte = 0;
    control beside = {.bytes = {0}};
    struct iovec text = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = beside.bytes,
                             .msg_controllen = sizeof beside.bytes};
    ssize_t got;
    while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    const struct cmsghdr *head = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    int fd;
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

ech_status ech__pass_serve(ech_ctx *ctx, int listener, int fd, int receivers, double timeout_s)
{
    ech__waited waited = ech__waited_start();
    int served = 0;
    while (served < receivers) {
        if (!wait_readable(listener, &waited, timeout_s))
            return ech__fail(
                ctx, ECH_E_IO,
                "shared memory for this node: %d of %d ranks have not fetched it within %g s",
                receivers - served, receivers, timeout_s);
        const int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (socket < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN))
            continue;
        if (socket < 0)
            return ech__fail(ctx, ECH_E_IO, "shared memory for this node: accept: %s",
                             strerror(errno));
        long other;
        served += same_user(socket, &other) && send_descriptor(socket, fd);
        close(socket);
    }
    return ECH_OK;
}

ech_status ech__pass_fetch(ech_ctx *ctx, const char *name, double timeout_s, int *fd)
{
    ech__waited waited = ech__waited_start();
    const int socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int reason = socket_fd < 0 ? errno : connect_within(socket_fd, name, &waited, timeout_s);
    if (reason != 0) {
        if (socket_fd >= 0)
            close(socket_fd);
        return ech__fail(ctx, ECH_E_IO,
                         "shared memory of this node: the socket of its first rank: %s",
                         strerror(reason));
    }
    long other;
    ech_status status = ECH_OK;
    *fd = -1;
    if (!same_user(socket_fd, &other))
        status = ech__fail(
            ctx, ECH_E_IO,
            "shared memory of this node: its first rank belongs to user %ld, this one to %ld",
            other, (long)geteuid());
    else if (!wait_readable(socket_fd, &waited, timeout_s))
        status = ech__fail(ctx, ECH_E_IO,
                           "shared memory of this node: its first rank sent nothing within %g s",
                           timeout_s);
    else if ((*fd = receive_descriptor(socket_fd)) < 0)
        status = ech__fail(ctx, ECH_E_IO,
                           "shared memory of this node: its first rank sent no descriptor");
    close(socket_fd);
    return status;
}
