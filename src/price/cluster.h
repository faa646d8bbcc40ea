/* Devices and the links between them, as a price needs them.
 *
 *     ech__cluster c = ech__cluster_defaults();
 *     ECH_TRY(ech__cluster_of_link(ctx, "12GB/s,5us", 8, &c));          one kind of link, nodes of 8 devices
 *     ECH_TRY(ech__cluster_load(ctx, "cluster.json", &c));              or a file
 *     ECH_TRY(ech__cluster_check(ctx, &c, devices));                    as many as that are there
 *
 * A file is a JSON object:
 *     {"nodes": 4, "devices_per_node": 8,
 *      "inside":  {"bandwidth": "300GB/s", "latency": "2us"},                       between devices of a node
 *      "between": {"bandwidth": "25GB/s", "latency": "10us", "overhead": "1us"}}    between nodes
 *
 * Every device has a port with the bandwidth of `inside` in each direction, into a switch of the node that never blocks.
 * Every node has a port with the bandwidth of `between` in each direction, which its devices share, into a switch that never
 * blocks. A message to another node passes the ports of both devices and of both nodes; its latency is that of `between` and
 * holds all of the way. With one device per node the device's port is the node's. A device begins its messages one after the
 * other, each an overhead later than the one before; the ports then carry them at the same time.
 */
#pragma once

#include "base/file/json.h"

typedef struct ech__link {
    double bytes_per_s; /* of one direction of an idle link */
    double latency_s;   /* from the start of a message to its first byte, the overhead included */
    double overhead_s;  /* from the start of a device's message to that of its next one */
} ech__link;

/* Who moves the bytes of an exchange. */
#define ECH__MOVER_LIST(X)                                                                         \
    X(LINKS, "links")           /* while the devices compute: an exchange can be hidden */         \
    X(DEVICES, "shared memory") /* the devices themselves: nothing is hidden */

typedef enum ech__mover {
#define ECH__MOVER_ENUM(id, text) ECH__MOVER_##id,
    ECH__MOVER_LIST(ECH__MOVER_ENUM)
#undef ECH__MOVER_ENUM
} ech__mover;

const char *ech__mover_name(ech__mover mover);

/* Where the figures come from. */
#define ECH__LINK_SOURCE_LIST(X)                                                                   \
    X(GIVEN, "given")       /* by the user */                                                      \
    X(DEVICE, "device")     /* by the description of the device */                                 \
    X(MEASURED, "measured") /* between two ranks of this machine */                                \
    X(ASSUMED, "default")   /* by nobody: ech__cluster_defaults */

typedef enum ech__link_source {
#define ECH__LINK_SOURCE_ENUM(id, text) ECH__LINK_##id,
    ECH__LINK_SOURCE_LIST(ECH__LINK_SOURCE_ENUM)
#undef ECH__LINK_SOURCE_ENUM
} ech__link_source;

const char *ech__link_source_name(ech__link_source source);

typedef struct ech__cluster {
    int64_t nodes;            /* 0: as many as are asked for */
    int64_t devices_per_node; /* 0: all devices are on one node */
    ech__link inside, between;
    ech__mover mover;
    ech__link_source source;
} ech__cluster;

enum { ECH__NODE_SIZE = 8 }; /* where links are given without nodes */

/* The memory of one node, which its devices move data through at the speed of a plain machine; Ethernet of 10 Gbit/s should
 * there be more nodes. */
ech__cluster ech__cluster_defaults(void);
/* "BANDWIDTH,LATENCY[,OVERHEAD]": 12GB/s,5us or 100Gbit/s,1.5us,400ns. Without an overhead each message of a device waits for the
 * latency of the one before. Nonsense is refused with the value and what is taken. */
ech_status ech__link_parse(ech_ctx *ctx, const char *text, ech__link *out);
/* The same link inside nodes of so many devices and between them. */
ech_status ech__cluster_of_link(ech_ctx *ctx, const char *text, int64_t node_size,
                                ech__cluster *out);
/* Unknown members, missing ones, and numbers out of range are refused by name. Only a link that is not there may be left out:
 * "between" where there is one node, "inside" where nodes have one device; it is then as the other one. *out stays as it is
 * where the text is refused. what names the text in error messages. */
ech_status ech__cluster_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                              ech__cluster *out);
ech_status ech__cluster_load(ech_ctx *ctx, const char *path, ech__cluster *out);
/* What is known of the links, as one line: "given links: 12 GB/s, 5 us, nodes of 8 devices". */
typedef struct ech__cluster_text {
    char s[224];
} ech__cluster_text;
ech__cluster_text ech__cluster_describe(const ech__cluster *cluster);
/* The same for records; the caller destroys it or hands it on. */
ech_json *ech__cluster_json(const ech__cluster *cluster);
/* Refuses less than one device and more than there are. */
ech_status ech__cluster_check(ech_ctx *ctx, const ech__cluster *cluster, int64_t devices);
