/* Any bytes as a cluster file and as a link: either an error message of one line, or values within
 * their limits whose all-reduces have prices. */
#include "price/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void must_be_sentence(const ech_ctx *ctx)
{
    must(ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
}

static void check_link(const ech__link *link)
{
    must(link->bytes_per_s >= 1e3 && link->bytes_per_s <= 1e15);
    must(link->latency_s >= 0 && link->latency_s <= 10);
}

static void check_prices(const ech__cluster *c, int64_t devices, int64_t bytes)
{
    const ech__collective_price best = ech__price_allreduce(c, ECH__ALGORITHM_BEST, devices, bytes);
    for (ech__algorithm a = ECH__ALGORITHM_RING; a < ECH__ALGORITHM_COUNT; a++) {
        const ech__collective_price p = ech__price_allreduce(c, a, devices, bytes);
        must(isfinite(p.seconds) && p.seconds >= 0 && p.steps >= 0);
        must(p.busiest_bytes >= 0 && p.busiest_bytes <= fmax(p.device_bytes, p.node_bytes));
        must(best.seconds <= p.seconds || a == ECH__ALGORITHM_DIRECT);
    }
}

static void use_cluster(ech_ctx *ctx, const char *text, size_t bytes)
{
    ech__cluster c;
    if (ech__cluster_parse(ctx, "cluster", text, bytes, &c) < 0) {
        must_be_sentence(ctx);
        return;
    }
    must(c.nodes >= 1 && c.nodes <= 1000000);
    must(c.devices_per_node >= 1 && c.devices_per_node <= 10000);
    check_link(&c.inside);
    check_link(&c.between);
    const int64_t all = c.nodes * c.devices_per_node;
    must(ech__cluster_check(ctx, &c, all) == ECH_OK);
    must(ech__cluster_check(ctx, &c, all + 1) < 0);
    check_prices(&c, all, 44700000);
    check_prices(&c, all - all / 3, 4096);
}

static void use_link(ech_ctx *ctx, const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    ech__link link;
    if (ech__link_parse(ctx, text, &link) < 0)
        must_be_sentence(ctx);
    else
        check_link(&link);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    use_cluster(ctx, (const char *)data, size);
    use_link(ctx, data, size);
    ech_ctx_destroy(ctx);
    return 0;
}
