#include "base/option/option.h"
#include "base/size.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What one call of ech__option_parse works on. */
typedef struct parser {
    ech_ctx *ctx;
    const ech__command *command;
    char *args; /* the caller's struct */
    ech__option_result *out;
    char **next; /* the word to look at */
} parser;

/* ---- names ---- */

/* Compares option names of the given length, '_' being '-'. */
static bool same_name(const char *name, const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char c = word[i] == '_' ? '-' : word[i];
        if (name[i] != c)
            return false;
    }
    return name[len] == '\0';
}

static const ech__option *find_name(const ech__command *command, const char *word, size_t len)
{
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (!row->positional &&
            (same_name(row->name, word, len) || (row->also && same_name(row->also, word, len))))
            return row;
    }
    return NULL;
}

static const ech__option *find_letter(const ech__command *command, char letter)
{
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (!row->positional && row->letter && row->letter == letter)
            return row;
    }
    return NULL;
}

enum { LONGEST = 48 }; /* of the words that suggestions are made for */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits (one letter more, less, other, or two neighbours swapped) from a to the first lb letters of b;
 * LONGEST where they are too long to say. */
static size_t edit_distance(const char *a, const char *b, size_t lb)
{
    const size_t la = strlen(a);
    size_t d[LONGEST + 1][LONGEST + 1];
    if (la >= LONGEST || lb >= LONGEST)
        return LONGEST;
    for (size_t i = 0; i <= la; i++) {
        for (size_t j = 0; j <= lb; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            const size_t other = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = smaller(other, 1 + smaller(d[i - 1][j], d[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[la][lb];
}

/* The best candidate so far for a word that was not understood. */
typedef struct guess {
    const char *word, *best;
    size_t best_len, distance;
} guess;

static guess guess_for(const char *word)
{
    /* A third of the letters may be wrong; of short words, one. */
    return (guess){.word = word, .distance = strlen(word) / 3 + 2};
}

static void guess_offer(guess *g, const char *candidate, size_t len)
{
    const size_t distance = edit_distance(g->word, candidate, len);
    if (distance < g->distance && distance < len) {
        g->best = candidate;
        g->best_len = len;
        g->distance = distance;
    }
}

const char *ech__option_nearest(const char *word, const char *const *words, size_t count)
{
    guess near = guess_for(word);
    for (size_t i = 0; i < count; i++)
        guess_offer(&near, words[i], strlen(words[i]));
    return near.best;
}

static ech_status unknown_option(parser *p, const char *word)
{
    char name[LONGEST];
    const size_t len = smaller(strcspn(word, "="), sizeof name - 1);
    for (size_t i = 0; i < len; i++)
        name[i] = word[i] == '_' ? '-' : word[i];
    name[len] = '\0';
    const char *bare = name + strspn(name, "-");
    guess near = guess_for(bare);
    for (size_t i = 0; *bare && i < p->command->count; i++) {
        const ech__option *row = &p->command->options[i];
        if (!row->positional && !row->hidden)
            guess_offer(&near, row->name, strlen(row->name));
    }
    const int shown = (int)strcspn(word, "=");
    if (near.best)
        return ech__fail(p->ctx, ECH_E_INVALID, "%.*s: unknown option; did you mean --%s?", shown,
                         word, near.best);
    return ech__fail(p->ctx, ECH_E_INVALID, "%.*s: unknown option; see --help", shown, word);
}

/* ---- values ---- */

/* "--batch-size" or "STUDY": the name of a row in error messages. */
typedef struct row_name {
    char s[64];
} row_name;

static row_name name_of(const ech__option *row)
{
    row_name name;
    snprintf(name.s, sizeof name.s, "%s%s", row->positional ? "" : "--", row->name);
    return name;
}

static ech_status wrong_value(parser *p, const ech__option *row, const char *text)
{
    static const char *const kinds[] = {
#define ROW(id, type, other, arg, words) words,
        ECH_OPTION_KIND_LIST(ROW)
#undef ROW
    };
    const char *words = row->choices ? row->choices : "";
    return ech__fail(p->ctx, ECH_E_INVALID, "%s %s: must be %s%s%s", name_of(row).s, text,
                     kinds[row->kind], *words ? " or " : "", words);
}

/* Limits are doubles; the values they bound are far below 2^53 where it matters. */
static ech_status check_range(parser *p, const ech__option *row, const char *text, double value)
{
    const bool has_min = row->min != 0 || row->max != 0, has_max = has_min && row->max >= row->min;
    if (has_min && !(value >= row->min))
        return ech__fail(p->ctx, ECH_E_INVALID, "%s %s: must be at least %.15g", name_of(row).s,
                         text, row->min);
    if (has_max && !(value <= row->max))
        return ech__fail(p->ctx, ECH_E_INVALID, "%s %s: must be at most %.15g", name_of(row).s,
                         text, row->max);
    return ECH_OK;
}

/* A number that starts with a digit, sign or point and ends where the text ends: no blanks, no hex, no nan. */
static bool plain_number(const char *text)
{
    const char *c = text + (*text == '-' || *text == '+');
    return (isdigit((unsigned char)*c) || (*c == '.' && isdigit((unsigned char)c[1]))) &&
           !strpbrk(text, "xX");
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    if (!plain_number(text))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

static bool parse_real(const char *text, double *out)
{
    char *end;
    if (!plain_number(text))
        return false;
    errno = 0;
    *out = strtod(text, &end);
    /* Rounding to a tiny number or to zero sets ERANGE too, and is fine. */
    return *end == '\0' && !(errno == ERANGE && (*out > 1 || *out < -1));
}

static bool parse_bytes(const char *text, int64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*text) || !plain_number(text))
        return false;
    const size_t whole = strspn(text, "0123456789");
    errno = 0;
    const int64_t count = strtoll(text, &end, 10);
    double fraction = 0;
    if (text[whole] == '.')
        fraction = strtod(text + whole, &end);
    if (errno != 0)
        return false;
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    end += unit != NULL;
    /* As dd has it: K and KiB are 1024, KB is 1000. */
    const bool binary = !unit || *end == '\0' || *end == 'i';
    if (unit && *end == 'i' && (end[1] == 'B' || end[1] == 'b'))
        end++;
    if (*end == 'B' || *end == 'b')
        end++;
    int64_t factor = 1, bytes;
    for (const char *u = units; unit && u <= unit; u++)
        factor *= binary ? 1024 : 1000;
    return *end == '\0' && ech__mul(count, factor, &bytes) &&
           ech__add(bytes, (int64_t)(fraction * (double)factor), out);
}

/* The position of text in "a|b|c"; -1 where it is not there. */
static int choice_index(const char *choices, const char *text)
{
    const size_t len = strlen(text);
    choices += *choices == '|';
    for (int index = 0; len > 0; index++) {
        const size_t word = strcspn(choices, "|");
        if (word == len && !strncmp(choices, text, len))
            return index;
        if (!choices[word])
            break;
        choices += word + 1;
    }
    return -1;
}

const char *ech__option_choice(const ech__option *row, int value, size_t *length)
{
    const char *word = row->choices + (*row->choices == '|');
    for (int index = 0;; index++) {
        *length = strcspn(word, "|");
        const int stored = row->kind == ECH_OPTION_SWITCH ? index == 0
                           : row->values                  ? row->values[index]
                                                          : index;
        if (stored == value)
            return word;
        if (!word[*length])
            return NULL;
        word += *length + 1;
    }
}

static ech_status unknown_choice(parser *p, const ech__option *row, const char *text)
{
    char list[512] = "";
    size_t used = 0;
    assert(row->choices);
    for (const char *c = row->choices + (*row->choices == '|'); *c && used + 3 < sizeof list; c++) {
        if (*c == '|') {
            list[used++] = ',';
            list[used++] = ' ';
        } else {
            list[used++] = *c;
        }
    }
    list[used] = '\0';
    return ech__fail(p->ctx, ECH_E_INVALID, "%s %s: must be one of %s", name_of(row).s, text, list);
}

static ech_status append_word(parser *p, const ech__option *row, const char *text)
{
    ech__option_words *words = (ech__option_words *)(void *)(p->args + row->offset);
    if (words->count == ECH_OPTION_MAX_WORDS)
        return ech__fail(p->ctx, ECH_E_INVALID, "%s: at most %d can be given; %s is one too many",
                         row->name, ECH_OPTION_MAX_WORDS, text);
    words->word[words->count++] = text;
    return ECH_OK;
}

/* index: of the word that text is among the choices; below 0: it is a number. */
static ech_status store_whole(parser *p, const ech__option *row, const char *text, int index,
                              void *field)
{
    int64_t number = -1 - index;
    if (index < 0) {
        if (!(row->kind == ECH_OPTION_BYTES ? parse_bytes : parse_int)(text, &number))
            return wrong_value(p, row, text);
        ECH_TRY(check_range(p, row, text, (double)number));
    }
    const int count = (int)number;
    if (row->kind == ECH_OPTION_COUNT)
        memcpy(field, &count, sizeof count);
    else
        memcpy(field, &number, sizeof number);
    return ECH_OK;
}

static ech_status store_real(parser *p, const ech__option *row, const char *text, int index,
                             void *field)
{
    double real = -1 - index;
    if (index < 0) {
        if (!parse_real(text, &real))
            return wrong_value(p, row, text);
        ECH_TRY(check_range(p, row, text, real));
    }
    const double bytes = real * (1 << 20);
    const int64_t whole = bytes >= 1 ? (int64_t)bytes : 1;
    if (row->kind == ECH_OPTION_MIB)
        memcpy(field, &whole, sizeof whole);
    else
        memcpy(field, &real, sizeof real);
    return ECH_OK;
}

/* Checks text and writes it to the row's field. */
static ech_status store(parser *p, const ech__option *row, const char *text)
{
    void *field = p->args + row->offset;
    const int index = row->choices ? choice_index(row->choices, text) : -1;
    switch (row->kind) {
    case ECH_OPTION_INT:
    case ECH_OPTION_COUNT:
    case ECH_OPTION_BYTES:
        return store_whole(p, row, text, index, field);
    case ECH_OPTION_REAL:
    case ECH_OPTION_MIB:
        return store_real(p, row, text, index, field);
    case ECH_OPTION_CHOICE:
        if (index < 0)
            return unknown_choice(p, row, text);
        memcpy(field, row->values ? &row->values[index] : &index, sizeof index);
        return ECH_OK;
    case ECH_OPTION_SWITCH:
        if (index < 0)
            return unknown_choice(p, row, text);
        *(bool *)field = index == 0;
        return ECH_OK;
    case ECH_OPTION_STRING:
        memcpy(field, &text, sizeof text);
        return ECH_OK;
    case ECH_OPTION_WORDS:
        return append_word(p, row, text);
    case ECH_OPTION_FLAG:
    case ECH_OPTION_UNSET:
    case ECH_OPTION_REST:
        break;
    }
    assert(false && "a flag or the rest has no value");
    return ECH_E_INTERNAL;
}

/* ---- words ---- */

bool ech__option_is_flag(const ech__option *row)
{
    return row->kind == ECH_OPTION_FLAG || row->kind == ECH_OPTION_UNSET;
}

static void mark(parser *p, const ech__option *row)
{
    const size_t index = (size_t)(row - p->command->options);
    p->out->given[index / 64] |= (uint64_t)1 << index % 64;
}

static bool is_marked(const parser *p, const ech__option *row)
{
    const size_t index = (size_t)(row - p->command->options);
    return p->out->given[index / 64] >> index % 64 & 1;
}

/* Whether a word looks like the next option rather than a value. -5 and - are values. */
static bool looks_like_option(const parser *p, const char *word)
{
    return word[0] == '-' && (word[1] == '-' || (word[1] && find_letter(p->command, word[1])));
}

/* An option with its value: attached, or the next word when attached is NULL. */
static ech_status take_option(parser *p, const ech__option *row, const char *attached)
{
    if (ech__option_is_flag(row)) {
        if (attached)
            return ech__fail(p->ctx, ECH_E_INVALID, "--%s takes no value, %s was given", row->name,
                             attached);
        *(bool *)(void *)(p->args + row->offset) = row->kind == ECH_OPTION_FLAG;
    } else {
        const char *value = attached ? attached : *p->next;
        if (!value || (!attached && looks_like_option(p, value)))
            return ech__fail(p->ctx, ECH_E_INVALID, "--%s needs a value", row->name);
        if (!attached)
            p->next++;
        ECH_TRY(store(p, row, value));
    }
    mark(p, row);
    return ECH_OK;
}

/* word is "--name", "--name=value", "-n" or "-nvalue". */
static ech_status parse_option(parser *p, const char *word)
{
    if (word[1] != '-') {
        const ech__option *row = find_letter(p->command, word[1]);
        if (!row)
            return unknown_option(p, word);
        const char *rest = word[2] == '=' ? word + 3 : word + 2;
        return take_option(p, row, word[2] ? rest : NULL);
    }
    const size_t len = strcspn(word + 2, "=");
    const ech__option *row = find_name(p->command, word + 2, len);
    if (!row)
        return unknown_option(p, word);
    return take_option(p, row, word[2 + len] ? word + 2 + len + 1 : NULL);
}

/* word is p->next[-1]. */
static ech_status parse_positional(parser *p, char *word)
{
    for (size_t i = 0; i < p->command->count; i++) {
        const ech__option *row = &p->command->options[i];
        if (!row->positional || (is_marked(p, row) && row->kind != ECH_OPTION_WORDS))
            continue;
        if (row->kind == ECH_OPTION_REST) {
            ech__option_rest rest = {.word = p->next - 1};
            while (rest.word[rest.count])
                rest.count++;
            memcpy(p->args + row->offset, &rest, sizeof rest);
            p->next = rest.word + rest.count;
        } else {
            ECH_TRY(store(p, row, word));
        }
        mark(p, row);
        return ECH_OK;
    }
    return ech__fail(p->ctx, ECH_E_INVALID, "%s: unexpected argument; see --help", word);
}

static ech_status parse_words(parser *p)
{
    bool options_over = false;
    while (*p->next) {
        char *word = *p->next++;
        if (options_over || word[0] != '-' || !word[1]) {
            ECH_TRY(parse_positional(p, word));
        } else if (!strcmp(word, "--")) {
            options_over = true;
        } else if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            p->out->help = true;
            return ECH_OK;
        } else {
            ECH_TRY(parse_option(p, word));
        }
    }
    for (size_t i = 0; i < p->command->count; i++) {
        const ech__option *row = &p->command->options[i];
        if (row->required && !is_marked(p, row))
            return ech__fail(p->ctx, ECH_E_INVALID, "%s is missing; see --help", name_of(row).s);
    }
    return ECH_OK;
}

ech_status ech__option_parse(ech_ctx *ctx, const ech__command *command, char **argv, void *args,
                             ech__option_result *out)
{
    parser p = {.ctx = ctx, .command = command, .args = args, .out = out, .next = argv};
    assert(command->count <= ECH_OPTION_MAX_ROWS);
    *out = (ech__option_result){.command = command, .argv = argv, .args = args};
    for (size_t i = 0; i < command->count; i++) {
        const ech__option *row = &command->options[i];
        if (row->initial && store(&p, row, row->initial) < 0)
            return ech__fail_in(ctx, ECH_E_INTERNAL, "option table of %s", command->name);
    }
    return parse_words(&p);
}

bool ech__option_given(const ech__option_result *result, const char *name)
{
    for (size_t i = 0; i < result->command->count; i++) {
        if (!strcmp(result->command->options[i].name, name))
            return result->given[i / 64] >> i % 64 & 1;
    }
    assert(false && "no such option in the table");
    return false;
}

ech_status ech__option_read_numbers(ech_ctx *ctx, const ech__option_numbers *option,
                                    const char *text, int64_t *out, size_t *count)
{
    *count = 0;
    for (const char *at = text;; at++) {
        char *end = NULL;
        const bool digit = isdigit((unsigned char)*at);
        const long long first = digit ? strtoll(at, &end, 10) : 0;
        const bool range = digit && *end == '-' && isdigit((unsigned char)end[1]);
        const long long last = range ? strtoll(end + 1, &end, 10) : first;
        if (!digit || (*end && *end != ','))
            return ech__fail(ctx, ECH_E_INVALID, "--%s '%s': must be numbers such as 1,2,4 or 1-16",
                             option->name, text);
        if (first < 1 || last > option->most)
            return ech__fail(ctx, ECH_E_INVALID, "--%s %s: must be from 1 to %lld", option->name,
                             text, (long long)option->most);
        if (first > last)
            return ech__fail(ctx, ECH_E_INVALID, "--%s %s: the range ends before it begins",
                             option->name, text);
        for (long long n = first; n <= last; n++) {
            if (*count == option->room)
                return ech__fail(ctx, ECH_E_LIMIT, "--%s %s: more than %zu numbers", option->name,
                                 text, option->room);
            out[(*count)++] = n;
        }
        if (!*end)
            return ECH_OK;
        at = end;
    }
}

/* ---- commands ---- */

/* How many words argv shares with a command's name, and whether that is all of the name. */
static int match_command(const char *name, char *const *argv, bool *whole)
{
    int words = 0;
    *whole = false;
    while (argv[words]) {
        const size_t len = strcspn(name, " ");
        if (strlen(argv[words]) != len || strncmp(name, argv[words], len) != 0)
            return words;
        words++;
        *whole = name[len] == '\0';
        if (*whole)
            return words;
        name += len + 1;
    }
    return words;
}

static bool asks_for_help(const char *word)
{
    return word && (!strcmp(word, "-h") || !strcmp(word, "--help") || !strcmp(word, "help"));
}

/* The word of a command's name after the given number of words, and its length. */
static const char *word_behind(const char *name, int words, size_t *len)
{
    for (; words > 0; words--)
        name += strcspn(name, " ") + 1;
    *len = strcspn(name, " ");
    return name;
}

/* The error message for an unknown or missing command. The first `words` of argv were
 * recognised. */
static ech_status unknown_command(ech_ctx *ctx, const ech__program *program, char *const *argv,
                                  int words)
{
    const char *word = argv[words] ? argv[words] : "";
    guess near = guess_for(word);
    char list[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < program->count; i++) {
        bool whole;
        size_t len;
        const char *name = program->commands[i]->name;
        if (match_command(name, argv, &whole) != words)
            continue;
        name = word_behind(name, words, &len);
        guess_offer(&near, name, len);
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s", used ? ", " : "",
                                     (int)len, name);
    }
    if (!*word)
        return ech__fail(ctx, ECH_E_INVALID, "%s needs one of these subcommands: %s",
                         argv[words - 1], list);
    if (near.best)
        return ech__fail(ctx, ECH_E_INVALID, "%s: unknown command; did you mean %.*s?", word,
                         (int)near.best_len, near.best);
    return ech__fail(ctx, ECH_E_INVALID, "%s: unknown command; see %s --help", word, program->name);
}

ech_status ech__command_find(ech_ctx *ctx, const ech__program *program, char ***argv,
                             const ech__command **out)
{
    int best = 0;
    *out = NULL;
    for (size_t i = 0; i < program->count; i++) {
        bool whole;
        const int words = match_command(program->commands[i]->name, *argv, &whole);
        if (words > best || (words == best && whole)) {
            best = words;
            *out = whole ? program->commands[i] : NULL;
        }
    }
    if (*out) {
        *argv += best;
        return ECH_OK;
    }
    if (!**argv || asks_for_help((*argv)[best]))
        return ECH_OK;
    return unknown_command(ctx, program, *argv, best);
}
