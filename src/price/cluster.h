/* Devices and the links between them, as a price needs them.
 *
 *     ech__cluster c = ech__cluster_defaults();
 *     ECH_TRY(ech__link_parse(ctx, "12GB/s,5us", &c.inside));           one kind of link everywhere
 *     ECH_TRY(ech__cluster_load(ctx, "cluster.json", &c));              or a file
 *     ECH_TRY(ech__cluster_check(ctx, &c, devices));                    as many as that are there
 *
 * A file is a JSON object:
 *     {"nodes": 4, "devices_per_node": 8,
 *      "inside":  {"bandwidth": "300GB/s", "latency": "2us"},           between devices of a node
 *      "between": {"bandwidth": "25GB/s", "latency": "10us"}}           between nodes
 *
 * Every device has a port with the bandwidth of `inside` in each direction, into a switch of the node that never blocks.
 * Every node has a port with the bandwidth of `between` in each direction, which its devices share, into a switch that never
 * blocks. A message to another node passes the ports of both devices and of both nodes; its latency is that of `between` and
 * holds all of the way. With one device per node the device's port is the node's.
 */
#ifndef ECH_PRICE_CLUSTER_H
#define ECH_PRICE_CLUSTER_H

#include "base/status.h"

typedef struct ech__link {
    double bytes_per_s; /* of one direction of an idle link */
    double latency_s;   /* from the start of a message to its first byte */
} ech__link;

typedef struct ech__cluster {
    int64_t nodes;            /* 0: as many as are asked for */
    int64_t devices_per_node; /* 0: all devices are on one node */
    ech__link inside, between;
} ech__cluster;

/* One node; a link as fast as memory is copied on a plain machine, and Ethernet of 10 Gbit/s should there be more nodes. */
ech__cluster ech__cluster_defaults(void);
/* "BANDWIDTH,LATENCY": 12GB/s,5us or 100Gbit/s,1.5us. Nonsense is refused with the value and what is taken. */
ech_status ech__link_parse(ech_ctx *ctx, const char *text, ech__link *out);
/* Unknown members, missing ones, and numbers out of range are refused by name. Only a link that is not there may be left out:
 * "between" where there is one node, "inside" where nodes have one device; it is then as the other one. *out stays as it is
 * where the text is refused. what names the text in error messages. */
ech_status ech__cluster_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                              ech__cluster *out);
ech_status ech__cluster_load(ech_ctx *ctx, const char *path, ech__cluster *out);
/* Refuses less than one device and more than there are. */
ech_status ech__cluster_check(ech_ctx *ctx, const ech__cluster *cluster, int64_t devices);

#endif
