/* One option table per command makes its parsing, its --help, its part of the man page and its shell
 * completion.
 *
 *     typedef struct args { int64_t batch; double lr; int optimizer; bool json; const char *dir; } args;
 *     static const ech__option options[] = {
 *         ECH_ROW(INT, args, batch, "batch-size", "Samples per device.", .arg = "N", .initial = "64",
 *                 .min = 1, .group = "Training"),
 *         ECH_ROW(CHOICE, args, optimizer, "optimizer", "Update rule.", .choices = "sgd|adam|adamw",
 *                 .initial = "sgd"),
 *         ECH_ROW(FLAG, args, json, "json", "Print one JSON object."),
 *         ECH_ROW(STRING, args, dir, "DIR", "Where the records are.", .positional = true,
 *                 .required = true),
 *     };
 *     static const ech__command train = {.name = "train", .brief = "train a model",
 *                                        ECH_OPTION_ROWS(options)};
 *     args a = {0};
 *     ech__option_result r;
 *     if (ech__option_parse(ctx, &train, argv, &a, &r) < 0) ...    one error message in ctx
 *     if (r.help) ech__option_help(stdout, &program, &train, 80);
 *     if (ech__option_given(&r, "batch-size")) ...
 *
 * Taken: --name VALUE, --name=VALUE, --flag, -n VALUE, -nVALUE, -h and --help; '_' in a name is '-'; "--" ends
 * the options. Parsing writes to the caller's struct and nothing else: it never prints and never exits.
 * Strings in the struct point into argv or the table.
 */
#pragma once

#include "base/names.h"
#include "base/status.h"

#include <stdio.h>

enum { ECH_OPTION_MAX_ROWS = 128, ECH_OPTION_MAX_WORDS = 64 };

/* Words of an argument or an option that may be repeated. */
typedef struct ech__option_words {
    int count;
    const char *word[ECH_OPTION_MAX_WORDS];
} ech__option_words;

/* The first word that is not an option and all words after it, options or not. */
typedef struct ech__option_rest {
    int count;
    char **word; /* the tail of argv, with its NULL */
} ech__option_rest;

/* Kind, the C type of its field, another one, the placeholder of its value, how an error message calls it. UNSET is
 * a flag that stores false: --no-shuffle. COUNT is an INT in an int. A BYTES value is a number with an optional K,
 * M, G or T, powers of 1024 alone or with iB after it, powers of 1000 with B: 4K, 64MiB, 48GB. MIB is a number of
 * MiB, stored in bytes, 1 at least. A CHOICE is stored as its position in the list, or as the value there, so that
 * the field may be an enum; a SWITCH is true for the first choice. INT, COUNT and REAL with choices take those
 * words too, stored as -1, -2, ... REST is positional; WORDS are too, or an option that may be given several
 * times. */
#define ECH_OPTION_KIND_LIST(X)                                                                    \
    X(FLAG, bool, ech__option_none, NULL, "nothing")                                               \
    X(UNSET, bool, ech__option_none, NULL, "nothing")                                              \
    X(INT, int64_t, uint64_t, "N", "a whole number")                                               \
    X(COUNT, int, ech__option_none, "N", "a whole number")                                         \
    X(REAL, double, ech__option_none, "X", "a number")                                             \
    X(BYTES, int64_t, ech__option_none, "BYTES", "a size such as 64M or 48GB")                     \
    X(MIB, int64_t, ech__option_none, "X", "a number")                                             \
    X(STRING, const char *, ech__option_none, "TEXT", "text")                                      \
    X(CHOICE, int, unsigned, NULL, "a choice")                                                     \
    X(SWITCH, bool, ech__option_none, NULL, "a choice")                                            \
    X(WORDS, ech__option_words, ech__option_none, NULL, "words")                                   \
    X(REST, ech__option_rest, ech__option_none, NULL, "words")

typedef struct ech__option_none {
    char none;
} ech__option_none;

#define ECH_OPTION_KIND_TYPES(id, type, other, ...)                                                \
    typedef type ech__option_type_##id;                                                            \
    typedef other ech__option_other_##id;
ECH_OPTION_KIND_LIST(ECH_OPTION_KIND_TYPES)
#undef ECH_OPTION_KIND_TYPES

typedef enum ech__option_kind {
#define ECH_OPTION_KIND_ENUM(id, ...) ECH_OPTION_##id,
    ECH_OPTION_KIND_LIST(ECH_OPTION_KIND_ENUM)
#undef ECH_OPTION_KIND_ENUM
} ech__option_kind;

typedef struct ech__option {
    const char *name;      /* "batch-size"; of a positional argument its placeholder, "DIR" */
    const char *also;      /* another spelling that is taken and not shown; NULL: none */
    char letter;           /* 'n' for -n; 0: none */
    ech__option_kind kind; /* with offset: use ECH_OPTION */
    size_t offset;
    /* Placeholder of the value; NULL: the choices, or one that fits the kind. Completion offers paths
     * where it holds FILE or DIR. */
    const char *arg;
    const char *choices; /* "a|b|c" or "|a|b|c"; of a STRING only what completion offers */
    const int *values;   /* of a CHOICE: what is stored for each; NULL: its position */
    const char *initial; /* stored when the option is not given, and shown; NULL: field untouched */
    /* Of numbers. Both 0: no limit; max below min: only min binds. For 0 and up set max to
     * HUGE_VAL. */
    double min, max;
    const char *group; /* heading in the help; NULL: as the row before */
    const char *help;  /* one or more sentences; wrapped */
    bool positional;   /* in the order of the table */
    bool required;
    bool hidden; /* parsed but not shown */
} ech__option;

/* .kind and .offset of a row; does not compile where the field has another type. */
#define ECH_OPTION(id, type, field)                                                                \
    .kind = ECH_OPTION_##id, .offset = _Generic(((type *)0)->field, ech__option_type_##id          \
                                                : offsetof(type, field), ech__option_other_##id    \
                                                : offsetof(type, field))

/* A row: kind, struct and field, name, help, and what else it has. */
#define ECH_ROW(id, type, field, name_, help_, ...)                                                \
    {                                                                                              \
        .name = name_, ECH_OPTION(id, type, field), .help = help_, __VA_ARGS__                     \
    }

/* The .choices of a row from the list of an enum: ECH_OPTIMIZER_LIST(ECH_OPTION_WORD). */
#define ECH_OPTION_WORD(id, ...) "|" ECH__FIRST_OF(__VA_ARGS__, 0)

/* A command line and what it shows. */
typedef struct ech__option_example {
    const char *line, *text;
} ech__option_example;

typedef struct ech__command ech__command;
typedef struct ech__option_result ech__option_result;

struct ech__command {
    const char *name;  /* "train", "bench comm" */
    const char *brief; /* one line, no full stop */
    const char *about; /* paragraphs parted by "\n\n"; may be NULL */
    const ech__option *options;
    size_t count;
    const ech__option_example *examples;
    size_t example_count;
    /* For a program that calls commands through their tables: the size of args, what is in args before it is parsed
     * (NULL: zeros), a check of what was given (NULL: none), whose failure is wrong usage, and the command itself,
     * which returns its exit code, or a status below 0 where the program is to print the error message. */
    size_t args_bytes;
    void (*defaults)(void *args);
    ech_status (*check)(ech_ctx *ctx, const ech__option_result *given);
    int (*run)(ech_ctx *ctx, const ech__option_result *given);
};

/* Members of a command: its rows, its examples. */
#define ECH_OPTION_ROWS(rows) .options = (rows), .count = sizeof(rows) / sizeof *(rows)
#define ECH_OPTION_EXAMPLES(all) .examples = (all), .example_count = sizeof(all) / sizeof *(all)

/* A further section of the man page: title in capitals, paragraphs parted by "\n\n". */
typedef struct ech__option_section {
    const char *title, *text;
} ech__option_section;

typedef struct ech__program {
    const char *name, *version, *brief;
    const char *about; /* may be NULL */
    const ech__command *const *commands;
    size_t count;
    const ech__option_section *sections;
    size_t section_count;
} ech__program;

/* ---- parsing ---- */

struct ech__option_result {
    const ech__command *command;
    char **argv; /* that was parsed */
    void *args;  /* the caller's struct */
    bool help;   /* -h or --help was met; the rest was not looked at */
    uint64_t given[(ECH_OPTION_MAX_ROWS + 63) / 64]; /* one bit a row */
};

/* Puts the initial values and then argv (NULL at its end, without the command's name) into args. */
ech_status ech__option_parse(ech_ctx *ctx, const ech__command *command, char **argv, void *args,
                             ech__option_result *out);
/* Whether the command line named this row of the table. The name must be there. */
bool ech__option_given(const ech__option_result *result, const char *name);

/* Whether it is an option without a value. */
bool ech__option_is_flag(const ech__option *row);
/* The word of a CHOICE or SWITCH whose field holds this value, of given length; NULL where there is none. */
const char *ech__option_choice(const ech__option *row, int value, size_t *length);

/* The value of option --name: numbers from 1 to most and ranges of them, "1,2,8-16", in that order. */
typedef struct ech__option_numbers {
    const char *name;
    int64_t most;
    size_t room; /* how many there may be */
} ech__option_numbers;
ech_status ech__option_read_numbers(ech_ctx *ctx, const ech__option_numbers *option,
                                    const char *text, int64_t *out, size_t *count);

/* Finds the command that argv starts with and moves *argv past its name. *out is NULL when the program's
 * own help is asked for: nothing, help, -h or --help where a command should stand. */
ech_status ech__command_find(ech_ctx *ctx, const ech__program *program, char ***argv,
                             const ech__command **out);

/* The one of these words that a wrong one was probably meant to be; NULL where none is near. */
const char *ech__option_nearest(const char *word, const char *const *words, size_t count);

/* ---- pages from the tables; the caller checks ferror ---- */

/* Help of one command, or of the program when command is NULL, wrapped to width columns. */
void ech__option_help(FILE *file, const ech__program *program, const ech__command *command,
                      int width);
/* One roff page for the whole program. */
void ech__option_man(FILE *file, const ech__program *program);
/* A completion script for bash. */
void ech__option_bash(FILE *file, const ech__program *program);
