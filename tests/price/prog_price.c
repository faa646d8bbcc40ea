/* The price of one all-reduce, for scripts:
 *
 *     price_prog_price PER_NODE INSIDE BETWEEN ALGORITHM DEVICES BYTES      seconds, and the algorithm
 */
#include "price/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const char *why)
{
    fprintf(stderr, "price_prog_price: %s\n", why);
    return 2;
}

int main(int argc, char **argv)
{
    ech_ctx *ctx;
    if (argc != 7)
        return refuse("PER_NODE INSIDE BETWEEN ALGORITHM DEVICES BYTES");
    if (ech_ctx_create(NULL, &ctx) < 0)
        return refuse("no memory");
    ech__cluster c = {.devices_per_node = atoll(argv[1])};
    const int64_t devices = atoll(argv[5]), bytes = atoll(argv[6]);
    ech__algorithm algorithm = ECH__ALGORITHM_BEST;
    while (algorithm < ECH__ALGORITHM_COUNT && strcmp(ech__algorithm_name(algorithm), argv[4]) != 0)
        algorithm++;
    int code = 0;
    if (ech__link_parse(ctx, argv[2], &c.inside) < 0 ||
        ech__link_parse(ctx, argv[3], &c.between) < 0 || ech__cluster_check(ctx, &c, devices) < 0)
        code = refuse(ech_ctx_error(ctx));
    else if (algorithm == ECH__ALGORITHM_COUNT || bytes < 0 || c.devices_per_node < 0)
        code = refuse("no such algorithm, or a number below zero");
    else {
        const ech__collective_price price = ech__price_allreduce(&c, algorithm, devices, bytes);
        printf("%.17g %s\n", price.seconds, ech__algorithm_name(price.algorithm));
    }
    ech_ctx_destroy(ctx);
    return code;
}
