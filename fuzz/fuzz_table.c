/* Any bytes as a table of runs: either a sentence on one line, or rows that are in range; and what is fitted to them is
 * a number or a sentence too. */
#include "predict/fit.h"
#include "predict/runs_table.h"

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

static void check_rows(const ech__table *t)
{
    must(t->count >= 1 && t->count <= ECH__TABLE_MAX_ROWS);
    for (size_t i = 0; i < t->count; i++) {
        const ech__table_row *r = &t->row[i];
        must(r->devices >= 1 && r->batch >= 1 && r->bytes >= 0 && r->line >= 2);
        must(r->samples >= r->batch * r->devices);
        must(r->time >= ECH__TABLE_MIN_TIME && r->time <= ECH__TABLE_MAX_TIME);
    }
}

static void check_fit(ech_ctx *ctx, const ech__table *t)
{
    static ech__fit fit;
    const ech__fit_options o = ech__fit_defaults();
    if (ech__fit_table(ctx, "table", t, &o, &fit) < 0) {
        must_be_sentence(ctx);
        return;
    }
    const ech__fit_prediction p = ech__fit_predict(&fit, 64, t->row[0].batch);
    must(p.time.value >= 0 && isfinite(p.time.value));
    must(p.time.low <= p.time.value && p.time.value <= p.time.high);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ech__table table;
    ech_ctx *ctx;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    if (ech__table_parse(ctx, "table", (const char *)data, size, &table) < 0) {
        must_be_sentence(ctx);
    } else {
        check_rows(&table);
        /* Fits of long tables take too long for a fuzzer. */
        if (table.count <= 10)
            check_fit(ctx, &table);
    }
    ech_ctx_destroy(ctx);
    return 0;
}
