/* Hands one descriptor to other processes of the same user on this machine, over a Unix socket in
 * the abstract name space: it leaves no file, and the name is freed with the socket. Both sides
 * check the user of the other.
 *
 *     ECH_TRY(ech__pass_listen(ctx, &listener, name));            one of them; name goes to the others by other means
 *     ECH_TRY(ech__pass_serve(ctx, listener, fd, 3, timeout));    to three others
 *     close(listener);
 *
 *     ECH_TRY(ech__pass_fetch(ctx, name, timeout, &fd));          each of the others
 *
 */
#pragma once

#include "base/status.h"

enum { ECH__PASS_NAME_BYTES = 48 };

/* A listening socket under a random name, a text of less than ECH__PASS_NAME_BYTES. */
ech_status ech__pass_listen(ech_ctx *ctx, int *listener, char name[ECH__PASS_NAME_BYTES]);
/* Waits until `receivers` processes of this user have fetched fd; others are turned away. */
ech_status ech__pass_serve(ech_ctx *ctx, int listener, int fd, int receivers, double timeout_s);
/* A descriptor of this process's own, close-on-exec. */
ech_status ech__pass_fetch(ech_ctx *ctx, const char *name, double timeout_s, int *fd);
