#include "comm/launch/rank_lines.h"

#include <string.h>

/* open[0..used) is a line without its '\n', for which there is room. */
static void close_line(ech__rank_lines *l, uint64_t *printed, ech__line_fn whole, void *user)
{
    /* Progress that was written over with '\r': what was to be seen last. */
    size_t bytes = l->used;
    while (bytes && l->open[bytes - 1] == '\r')
        bytes--;
    const char *back = memrchr(l->open, '\r', bytes);
    const char *seen = back ? back + 1 : l->open;
    bytes -= (size_t)(seen - l->open);
    if (bytes >= ECH__TAIL_BYTES)
        bytes = ECH__TAIL_BYTES - 1;
    char *kept = l->tail[l->count % ECH__TAIL_LINES].text;
    memcpy(kept, seen, bytes);
    kept[bytes] = '\0';
    l->tail[l->count % ECH__TAIL_LINES].number = (*printed)++;
    l->count++;
    l->open[l->used++] = '\n';
    whole(user, l->open, l->used);
    l->used = 0;
}

void ech__rank_lines_take(ech__rank_lines *l, const char *text, size_t bytes, uint64_t *printed,
                          ech__line_fn whole, void *user)
{
    while (bytes) {
        const char *end = memchr(text, '\n', bytes);
        const size_t line = end ? (size_t)(end - text) : bytes;
        const size_t free_bytes = sizeof l->open - 1 - l->used,
                     part = line < free_bytes ? line : free_bytes;
        memcpy(l->open + l->used, text, part);
        l->used += part;
        text += part;
        bytes -= part;
        if (part == line && end) {
            text++;
            bytes--;
            close_line(l, printed, whole, user);
        } else if (l->used == sizeof l->open - 1) {
            close_line(l, printed, whole, user);
        }
    }
}

void ech__rank_lines_end(ech__rank_lines *l, uint64_t *printed, ech__line_fn whole, void *user)
{
    if (l->used)
        close_line(l, printed, whole, user);
}

int ech__rank_lines_kept(const ech__rank_lines *l)
{
    return l->count < ECH__TAIL_LINES ? (int)l->count : ECH__TAIL_LINES;
}

const char *ech__rank_lines_get(const ech__rank_lines *l, int i, uint64_t *number)
{
    const uint64_t line = l->count - (uint64_t)ech__rank_lines_kept(l) + (uint64_t)i;
    *number = l->tail[line % ECH__TAIL_LINES].number;
    return l->tail[line % ECH__TAIL_LINES].text;
}
