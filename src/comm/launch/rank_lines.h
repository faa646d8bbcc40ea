/* Cuts what a rank writes into lines, and keeps the last ones for the case that it fails. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ECH__TAIL_LINES = 10, ECH__TAIL_BYTES = 512, ECH__LINE_BYTES = 8192 };

typedef struct ech__rank_lines {
    char open[ECH__LINE_BYTES]; /* the line that has no end yet */
    size_t used;
    struct {
        char text[ECH__TAIL_BYTES]; /* what is longer is cut */
        uint64_t number;
    } tail[ECH__TAIL_LINES]; /* line k stands at k % ECH__TAIL_LINES */
    uint64_t count;          /* of lines so far */
} ech__rank_lines;

/* Gets each line as soon as it is whole, '\n' at its end. Longer ones than ECH__LINE_BYTES come in
 * pieces. */
typedef void (*ech__line_fn)(void *user, const char *line, size_t bytes);

/* *printed counts the lines of all ranks, so that a kept line knows how many came behind it. */
void ech__rank_lines_take(ech__rank_lines *lines, const char *text, size_t bytes, uint64_t *printed,
                          ech__line_fn whole, void *user);
/* Ends a line that is still open. */
void ech__rank_lines_end(ech__rank_lines *lines, uint64_t *printed, ech__line_fn whole, void *user);

/* How many lines are kept, and the i-th of them, oldest first, without '\n'. */
int ech__rank_lines_kept(const ech__rank_lines *lines);
const char *ech__rank_lines_get(const ech__rank_lines *lines, int i, uint64_t *number);
