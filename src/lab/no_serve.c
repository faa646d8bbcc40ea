/* In place of serve.c in a build without libmicrohttpd. */
#include "lab/serve.h"

ech_status ech__lab_serve_start(ech_ctx *ctx, ech__lab *lab, const char *out_dir, int port,
                                ech__lab_server **out)
{
    (void)lab, (void)out_dir, (void)port;
    *out = NULL;
    return ech__fail(ctx, ECH_E_UNSUPPORTED,
                     "no live view: this build is without libmicrohttpd (Debian: "
                     "libmicrohttpd-dev)");
}

int ech__lab_serve_port(const ech__lab_server *server)
{
    (void)server;
    return 0;
}

void ech__lab_serve_stop(ech__lab_server *server)
{
    (void)server;
}
