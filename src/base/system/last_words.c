#include "base/system/last_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TAIL = 8192 };

/* The last TAIL bytes of a file, ended by NUL. */
static size_t read_tail(const char *path, char text[TAIL + 1])
{
    FILE *file = fopen(path, "re");
    size_t got = 0;
    if (file) {
        if (fseek(file, -TAIL, SEEK_END) != 0)
            rewind(file);
        got = fread(text, 1, TAIL, file);
        fclose(file);
    }
    text[got] = '\0';
    return got;
}

/* Removes and returns the last line of the text that is not empty; *bytes is its length. "" if
 * there is none. */
static const char *cut_line(char *text, size_t *bytes)
{
    size_t end = *bytes;
    while (end > 0 &&
           (isspace((unsigned char)text[end - 1]) || iscntrl((unsigned char)text[end - 1])))
        end--;
    text[end] = '\0';
    while (end > 0 && text[end - 1] != '\n' && text[end - 1] != '\r')
        end--;
    *bytes = end;
    return text + end;
}

/* The error message of a line "echelon train: MESSAGE"; NULL where it is no such line. */
static const char *message_of(const char *line)
{
    const char *colon = strstr(line, ": ");
    return !strncmp(line, "echelon", 7) && colon ? colon + 2 : NULL;
}

/* What a rank said before the launcher noted its end: "[rank 1] echelon train: MESSAGE". */
static const char *rank_message(const char *line)
{
    const char *end = !strncmp(line, "[rank ", 6) ? strstr(line, "] ") : NULL;
    return end ? message_of(end + 2) : message_of(line);
}

bool ech__last_words(const char *path, char *out, size_t bytes)
{
    char text[TAIL + 1];
    size_t length = read_tail(path, text);
    const char *line = cut_line(text, &length), *said = message_of(line);
    if (said)
        line = said;
    if (!strncmp(line, "rank ", 5) && strstr(line, " exited with code ")) {
        const char *before = rank_message(cut_line(text, &length));
        line = before ? before : line;
    }
    const bool fits = strlen(line) < bytes;
    snprintf(out, bytes, "%.*s%s", fits ? (int)bytes : (int)bytes - 4, line, fits ? "" : "...");
    for (char *c = out; *c; c++) {
        if (iscntrl((unsigned char)*c) || !isascii((unsigned char)*c))
            *c = '?';
    }
    return *out;
}
