/* Devices and the links between them, as a price needs them.
 *
 *     ech__cluster c = ech__cluster_defaults();
 *     ECH_TRY(ech__link_parse(ctx, "12GB/s,5us", &c.inside));           one kind of link everywhere
 *     ECH_TRY(ech__cluster_load(ctx, "cluster.json", &c));              or a file
 *
 * A file is a JSON object:
 *     {"nodes": 4, "devices_per_node": 8,
 *      "inside":  {"bandwidth": "300GB/s", "latency": "2us"},           between devices of a node
 *      "between": {"bandwidth": "25GB/s", "latency": "10us"}}           between nodes
 */
#ifndef ECH_PLAN_CLUSTER_H
#define ECH_PLAN_CLUSTER_H

#include "base/status.h"

typedef struct ech__link {
    double bytes_per_s; /* of one direction of a link that nobody else uses */
    double latency_s;   /* from the start of a message to its first byte */
} ech__link;

typedef struct ech__cluster {
    int64_t nodes;            /* 0: as many as are asked for */
    int64_t devices_per_node; /* 0: all devices are on one node */
    ech__link inside, between;
} ech__cluster;

/* One node; a link as fast as memory is copied on a plain machine. */
ech__cluster ech__cluster_defaults(void);
/* "BANDWIDTH,LATENCY": 12GB/s,5us or 100Gbit/s,1.5us. Nonsense is refused with the value and what is taken. */
ech_status ech__link_parse(ech_ctx *ctx, const char *text, ech__link *out);
/* Unknown members, missing ones, and numbers out of range are refused by name. */
ech_status ech__cluster_load(ech_ctx *ctx, const char *path, ech__cluster *out);

#endif
