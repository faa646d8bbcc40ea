/* An all-reduce message by message: what the closed prices of price/collective.h are compared with.
 *
 * Every rank starts the messages of a step an overhead apart, and the next step when all of them are done. A message begins
 * when both ends have started it; its bytes flow a latency later, and all that flow at a time share the ports of devices and
 * nodes evenly (max-min), as src/price/cluster.h describes them.
 */
#pragma once

#include "price/schedule.h"

/* Seconds until the last rank is done. bytes is rounded down to elements of a byte in parts of one. */
double simulate_allreduce(const ech__cluster *cluster, ech__algorithm algorithm, int64_t devices,
                          int64_t bytes);
