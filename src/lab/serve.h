/* The live view: a small server on this machine that shows a lab while it runs.
 *
 *     ech__lab_server *server;
 *     ECH_TRY(ech__lab_serve_start(ctx, lab, "lab", 8080, &server));      http://127.0.0.1:8080/
 *     ech_status s = ech__lab_execute(lab);
 *     ech__lab_serve_stop(server);
 *
 * It listens on the loopback address only, answers GET of four fixed paths from a thread of its
 * own, and takes nothing in: no file name, no order. A request that names another host is refused,
 * so that no page of another site can read along by a name that it makes point here. Whoever comes
 * is let in: connections of which no request was completed for long make room.
 *
 *   /             the page
 *   /style.css    the report's style, and the page's own
 *   /script.js    asks for the state once a second and draws it
 *   /state        the state as JSON (lab/live.h)
 */
#pragma once

#include "lab/lab.h"

typedef struct ech__lab_server ech__lab_server;

/* port 0: any that is free. lab is borrowed and must outlive the server. */
ech_status ech__lab_serve_start(ech_ctx *ctx, ech__lab *lab, const char *out_dir, int port,
                                ech__lab_server **out);
int ech__lab_serve_port(const ech__lab_server *server);
/* Closes connections and ends the thread. Where somebody has been looking it waits for two and a
 * half seconds at most, so that the page gets to know how it ended. NULL is fine. */
void ech__lab_serve_stop(ech__lab_server *server);
