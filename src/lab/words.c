#include "lab/words.h"
#include "base/file/sha256.h"
#include "lab/keep.h"

#include <stdio.h>
#include <string.h>

enum {
    LONGEST = 8192, /* of a line, in bytes */
    MOST = ECH__LAB_MAX_WORDS / 4 -
           4, /* of a study's own words: one may become four, and some are added */
};

/* A list of words on its way to becoming a line. */
typedef struct text {
    char s[LONGEST];
    size_t used;
    bool full;
} text;

static void add(text *t, const char *word)
{
    const int length =
        snprintf(t->s + t->used, sizeof t->s - t->used, "%s%s", t->used ? " " : "", word);
    t->full |= t->used + (size_t)length >= sizeof t->s;
    t->used = t->full ? sizeof t->s - 1 : t->used + (size_t)length;
}

typedef struct maker {
    ech__lab_study *study;
    ech__lab *lab;
    ech__lab_line *line;
    text key, command;
    char *words[ECH__LAB_MAX_WORDS]; /* as the study wrote them */
    size_t count;
} maker;

static ech_status split(maker *m, const char *words)
{
    char *copy = ech__lab_keep(m->lab, words), *place;
    if (!copy)
        return ech__no_memory(m->lab->ctx, "the words of a run");
    for (char *w = strtok_r(copy, " ", &place); w; w = strtok_r(NULL, " ", &place)) {
        if (m->count == MOST)
            return ech__fail(m->lab->ctx, ECH_E_LIMIT, "'%.60s...' has more than %d words", words,
                             MOST);
        m->words[m->count++] = w;
    }
    return m->count ? ECH_OK : ech__fail(m->lab->ctx, ECH_E_INVALID, "a run without words");
}

static bool has(const maker *m, const char *word)
{
    for (size_t i = 0; i < m->count; i++) {
        const size_t length = strlen(word);
        if (!strncmp(m->words[i], word, length) && strchr("=", m->words[i][length]))
            return true;
    }
    return false;
}

/* ---- what is added ---- */

/* A training writes its record itself, unless it is only asked what it would need. */
static ech_status add_own_words(maker *m)
{
    const bool train = !strcmp(m->words[0], "train") && !has(m, "--memory") && !has(m, "--fit");
    m->line->prints = !train;
    if (!train) {
        m->words[m->count++] = "--json";
        return ECH_OK;
    }
    if (!has(m, "--seed")) {
        m->words[m->count++] = "--seed";
        m->words[m->count] = ech__arena_printf(&m->lab->arena, "%" PRId64, m->lab->options.seed);
        if (!m->words[m->count++])
            return ech__no_memory(m->lab->ctx, "the words of a run");
    }
    if (!has(m, "--threads")) {
        m->words[m->count++] = "--threads";
        m->words[m->count++] = "1";
    }
    return ECH_OK;
}

/* ---- placeholders ---- */

/* Whether word is "@NAME" or "@NAME/...": *rest is then what follows the name. */
static bool is(const char *word, const char *name, const char **rest)
{
    const size_t length = strlen(name);
    *rest = word + length;
    return !strncmp(word, name, length) && strchr("/", word[length]);
}

static const ech__lab_task *find_task(const ech__lab_study *study, const char *id, size_t length)
{
    for (size_t i = 0; i < study->count; i++) {
        const ech__lab_task *task = &study->tasks[i];
        if (strlen(task->id) == length && !strncmp(task->id, id, length))
            return task;
    }
    return NULL;
}

/* The run that "@of:ID/NAME" names, which is over by now. */
static ech_status find_base(maker *m, const char *word, const ech__lab_task **out,
                            const char **rest)
{
    const char *id = word + strlen("@of:");
    *rest = id + strcspn(id, "/");
    *out = find_task(m->study, id, (size_t)(*rest - id));
    if (!*out || (*out)->stage != ECH__LAB_OVER)
        return ech__fail(m->lab->ctx, ECH_E_INVALID, "%s: no run of that name was asked for before",
                         word);
    if ((*out)->state == ECH__LAB_FAILED || (*out)->state == ECH__LAB_SKIPPED)
        m->line->missing = *out;
    return ECH_OK;
}

/* Puts a word into the key as it is the same on every machine and in every directory. */
static ech_status add_to_key(maker *m, const char *word)
{
    const char *rest;
    if (word[0] != '@') {
        add(&m->key, word);
    } else if (!strcmp(word, "@images")) {
        ECH_TRY(ech__lab_find_images(m->lab));
        add(&m->key,
            m->lab->images.kind == ECH__LAB_IMAGES_REAL ? "--data cifar10" : "--data synthetic");
    } else if (is(word, "@out", &rest) || !strncmp(word, "@repeat:", 8)) {
        add(&m->key, word);
    } else if (!strncmp(word, "@of:", 4)) {
        const ech__lab_task *base;
        ECH_TRY(find_base(m, word, &base, &rest));
        const char *part =
            ech__arena_printf(&m->lab->arena, "@of:%s%s", base->name ? base->name : base->id, rest);
        if (!part)
            return ech__no_memory(m->lab->ctx, "the words of a run");
        add(&m->key, part);
    } else {
        return ech__fail(m->lab->ctx, ECH_E_INVALID,
                         "%s: must be @images, @out, @of:ID or @repeat:N", word);
    }
    return ECH_OK;
}

static ech_status name_it(maker *m)
{
    ech__sha256 sha;
    ech__sha256_init(&sha);
    ech__sha256_update(&sha, m->key.s, m->key.used);
    const ech__sha256_text hash = ech__sha256_final(&sha);
    char command[24];
    snprintf(command, sizeof command, "%s", m->words[0]);
    for (char *c = command; *c; c++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789", *c))
            *c = '-';
    }
    ech__lab_line *line = m->line;
    line->key = ech__lab_keep(m->lab, m->key.s);
    line->name = ech__arena_printf(&m->lab->arena, "%s-%.10s", command, hash.s);
    if (line->name)
        line->dir =
            ech__arena_printf(&m->lab->arena, "%s/runs/%s", m->lab->options.out, line->name);
    if (line->dir)
        line->made_in = ech__arena_printf(&m->lab->arena, "%s" ECH__LAB_KEEP_NEW, line->dir);
    return line->key && line->made_in ? ECH_OK : ech__no_memory(m->lab->ctx, "the words of a run");
}

/* A word of the process, and what people are shown of it; NULL: nothing. */
static void push(maker *m, char *word, const char *shown)
{
    m->line->argv[m->line->argc++] = word;
    if (shown)
        add(&m->command, shown);
}

/* Puts a word into the line as it is here. */
static ech_status add_to_line(maker *m, char *word)
{
    const ech__lab_images *images = &m->lab->images;
    const ech__lab_task *base;
    const char *rest, *shown = NULL;
    char *path = word;
    if (!strncmp(word, "@repeat:", 8))
        return ECH_OK;
    if (!strcmp(word, "@images")) {
        const bool real = images->kind == ECH__LAB_IMAGES_REAL;
        push(m, "--data", "--data");
        push(m, real ? "cifar10" : "synthetic", real ? "cifar10" : "synthetic");
        if (!real)
            return ECH_OK;
        push(m, "--data-dir", "--data-dir");
        path = ech__lab_keep(m->lab, images->dir);
    } else if (is(word, "@out", &rest)) {
        path = ech__arena_printf(&m->lab->arena, "%s%s", m->line->made_in, rest);
        shown = ech__arena_printf(&m->lab->arena, "%s%s", m->line->dir, rest);
        if (!shown)
            return ech__no_memory(m->lab->ctx, "the words of a run");
    } else if (!strncmp(word, "@of:", 4)) {
        ECH_TRY(find_base(m, word, &base, &rest));
        path = ech__arena_printf(&m->lab->arena, "%s/runs/%s%s", m->lab->options.out,
                                 base->name ? base->name : base->id, rest);
    }
    if (!path)
        return ech__no_memory(m->lab->ctx, "the words of a run");
    push(m, path, shown ? shown : path);
    return ECH_OK;
}

static ech_status make(maker *m, const char *words)
{
    ECH_TRY(split(m, words));
    ECH_TRY(add_own_words(m));
    for (size_t i = 0; i < m->count; i++)
        ECH_TRY(add_to_key(m, m->words[i]));
    add(&m->key, ech_version());
    if (ech__isa_is_set()) /* other kernels are other figures */
        add(&m->key, ech__isa_name(ech__isa_level()));
    ECH_TRY(name_it(m));
    push(m, "echelon", "echelon");
    for (size_t i = 0; i < m->count; i++)
        ECH_TRY(add_to_line(m, m->words[i]));
    if (!m->line->prints) {
        push(m, "--keep-going", "--keep-going"); /* a training that diverges is a result */
        push(m, "--run-dir", NULL);
        push(m, m->line->made_in, NULL);
    }
    if (m->key.full || m->command.full)
        return ech__fail(m->lab->ctx, ECH_E_LIMIT, "the words of a run have more than %d bytes",
                         LONGEST - 1);
    m->line->argv[m->line->argc] = NULL;
    m->line->command = ech__lab_keep(m->lab, m->command.s);
    return m->line->command ? ECH_OK : ech__no_memory(m->lab->ctx, "the words of a run");
}

ech_status ech__lab_line_make(ech__lab_study *study, const char *words, ech__lab_line *out)
{
    maker *m = ech__arena_alloc(&study->lab->arena, sizeof *m);
    if (!m)
        return ech__no_memory(study->lab->ctx, "the words of a run");
    m->study = study;
    m->lab = study->lab;
    m->line = out;
    *out = (ech__lab_line){.argc = 0};
    return make(m, words);
}
