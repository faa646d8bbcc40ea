/* A table of measured runs, as a CSV file:
 *
 *     devices,batch,samples,bytes,time
 *     1,32,50000,44695848,22.782
 *     2,32,50000,44695848,15.775
 *
 * The first line names the columns, in any order; all five must be there and no other. devices: how
 * many took part; batch: samples per device per step; samples: of the measured interval, an epoch
 * say; bytes: of gradients exchanged per step and device, 0 for none; time: seconds for the
 * interval. Spaces around a value, empty lines, lines that start with '#', CRLF and a byte order
 * mark are taken. The same run may be there several times with different times; a line that says
 * the same as another in all five columns is refused, as a copy that was not meant.
 */
#pragma once

#include "base/status.h"

enum { ECH__TABLE_MAX_ROWS = 128, ECH__TABLE_MAX_LINE = 1000 };

/* Largest values taken: beyond them products would leave what a double counts exactly. */
#define ECH__TABLE_MAX_DEVICES 1000000
#define ECH__TABLE_MAX_BATCH 1000000000
#define ECH__TABLE_MAX_COUNT 1000000000000000
#define ECH__TABLE_MIN_TIME 1e-9
#define ECH__TABLE_MAX_TIME 1e9

typedef struct ech__table_row {
    int64_t devices, batch, samples, bytes;
    double time; /* seconds */
    int line;    /* of the file, from 1 */
} ech__table_row;

typedef struct ech__table {
    size_t count; /* at least 1 */
    ech__table_row row[ECH__TABLE_MAX_ROWS];
} ech__table;

/* what names the text in sentences, which name line and column too. */
ech_status ech__table_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                            ech__table *out);
ech_status ech__table_load(ech_ctx *ctx, const char *path, ech__table *out);
