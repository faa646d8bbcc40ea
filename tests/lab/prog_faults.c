/* lab_prog_faults PROGRAM DIR STUDY... NAME=VALUE...: for every run of these studies, one at a
 * time: the run fails, and everything that does not depend on it must stand.
 *
 * DIR is a lab directory in which the studies have been run with --quick and these sizes. A run
 * fails because its done.json is hidden, so that it is started again, with a limit of a
 * millisecond; all others are reused, so nothing is trained. Prints a line for each failure that
 * was not survived, and their number. */
#include "lab/internal.h"
#include "lab/keep.h"
#include "report/study/study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 600, MOST = 64, STUDIES = 24 };

typedef struct campaign {
    ech_ctx *ctx;
    ech__lab_options options;
    const char *study;
    ech_json *whole; /* the study when nothing fails */
    int tried, lost;
} campaign;

static void lose(campaign *c, const char *run, const char *why)
{
    printf("%s without %s: %s\n", c->study, run, why);
    c->lost++;
}

/* ---- one study, told once ---- */

typedef struct list {
    size_t count;
    struct {
        char id[64], name[64];
    } run[MOST];
} list;

/* Runs and tells it. Gives the runs that were reused, where they are asked for. */
static ech_status tell(campaign *c, list *out)
{
    ech__lab *lab;
    ECH_TRY(ech__lab_create(c->ctx, &c->options, &lab));
    lab->images.kind = ECH__LAB_IMAGES_SYNTHETIC; /* nothing is fetched */
    ech__lab_study *s = lab->studies;
    while (strcmp(s->card->id, c->study) != 0)
        s++;
    const ech_status status = ech__lab_do_study(s);
    for (size_t i = 0; out && i < s->count && out->count < MOST; i++) {
        if (s->tasks[i].state != ECH__LAB_REUSED)
            continue;
        snprintf(out->run[out->count].id, sizeof out->run->id, "%s", s->tasks[i].id);
        snprintf(out->run[out->count++].name, sizeof out->run->name, "%s", s->tasks[i].name);
    }
    ech__lab_destroy(lab);
    return status;
}

static ech_json *load(campaign *c)
{
    char path[PATH];
    ech_json *json = NULL;
    snprintf(path, sizeof path, "%s/studies/%s.json", c->options.out, c->study);
    return ech__json_load(c->ctx, path, ECH_JSON_MAX_BYTES, &json) < 0 ? NULL : json;
}

/* ---- what must stand ---- */

static bool is_null(const ech_json *json)
{
    return ech__json_kind_of(json) == ECH_JSON_NULL;
}

static bool has_note(const ech_json *row)
{
    for (size_t i = 0; i < ech__json_count(row); i++) {
        if (ech__json_find(ech__json_at(row, i), "note"))
            return true;
    }
    return false;
}

/* Cells without a value in rows in which no note says why. */
static size_t count_blanks(const ech_json *study)
{
    const ech_json *tables = ech__json_find(study, "tables");
    size_t blanks = 0;
    for (size_t t = 0; t < ech__json_count(tables); t++) {
        const ech_json *rows = ech__json_find(ech__json_at(tables, t), "rows");
        for (size_t r = 0; r < ech__json_count(rows); r++) {
            const ech_json *row = ech__json_at(rows, r);
            for (size_t i = 0; !has_note(row) && i < ech__json_count(row); i++) {
                const ech_json *cell = ech__json_at(row, i);
                const bool object = ech__json_kind_of(cell) == ECH_JSON_OBJECT;
                blanks += is_null(object ? ech__json_find(cell, "value") : cell);
            }
        }
    }
    return blanks;
}

/* Whether a figure of an answer was computed from the run. */
static bool uses(const ech_json *study, const char *run)
{
    char needle[80];
    const ech_json *answers = ech__json_find(study, "answers");
    snprintf(needle, sizeof needle, "[%s ", run);
    for (size_t a = 0; a < ech__json_count(answers); a++) {
        const ech_json *figures = ech__json_find(ech__json_at(answers, a), "figures");
        for (size_t i = 0; i < ech__json_count(figures); i++) {
            const char *source;
            if (ech__json_string(ech__json_find(ech__json_at(figures, i), "source"), &source) &&
                strstr(source, needle))
                return true;
        }
    }
    return false;
}

static bool is_row_failed(const ech_json *study, const char *run)
{
    const ech_json *runs = ech__json_find(study, "runs");
    const char *id, *state;
    for (size_t i = 0; i < ech__json_count(runs); i++) {
        const ech_json *r = ech__json_at(runs, i);
        if (ech__json_string(ech__json_find(r, "id"), &id) && !strcmp(id, run) &&
            ech__json_string(ech__json_find(r, "status"), &state) && !strcmp(state, "failed"))
            return true;
    }
    return false;
}

/* Whether one of two texts stands in a table, a plot or an answer, or among what is left out. */
static bool has_text(campaign *c, const ech_json *study, const char *text, const char *other)
{
    static const char *const parts[] = {"tables", "plots", "answers", "missing"};
    bool found = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const ech_json *part = ech__json_find(study, parts[i]);
        char *all;
        if (!part || ech__json_dump(c->ctx, part, ECH_JSON_LINE, &all, NULL) < 0)
            continue;
        found |= strstr(all, text) || strstr(all, other);
        free(all);
    }
    return found;
}

/* Whether something depends on the run when nothing fails: some runs only prepare others. */
static bool is_used(campaign *c, const char *run)
{
    char id[80], source[80];
    snprintf(id, sizeof id, "\"%s\"", run);
    snprintf(source, sizeof source, "[%s ", run);
    return has_text(c, c->whole, id, source);
}

static bool is_said(campaign *c, const ech_json *study, const char *run)
{
    char direct[80], indirect[80];
    snprintf(direct, sizeof direct, "run %s failed", run);
    snprintf(indirect, sizeof indirect, "run %s, which failed", run);
    return has_text(c, study, direct, indirect);
}

static void judge(campaign *c, const char *run, const char *name)
{
    ech__book *book;
    char record[PATH], result[PATH];
    ech_json *study = load(c);
    if (!study || !is_row_failed(study, run))
        lose(c, run, "its row does not say that it failed");
    else if (uses(study, run))
        lose(c, run, "an answer has a figure of it");
    else if (count_blanks(study) > count_blanks(c->whole))
        lose(c, run, "a cell is empty and does not say why");
    else if (is_used(c, run) && !is_said(c, study, run))
        lose(c, run, "no table, plot or answer says that it failed");
    ech__json_destroy(study);
    snprintf(record, sizeof record, "%s/runs/%s/run.json", c->options.out, name);
    snprintf(result, sizeof result, "%s/runs/%s/result.json", c->options.out, name);
    if (access(record, R_OK) != 0 && access(result, R_OK) != 0)
        lose(c, run, "the record that was there before is gone");
    if (ech__book_load(c->ctx, c->options.out, &book) < 0) {
        lose(c, run, ech_ctx_error(c->ctx));
        return;
    }
    if (book->nproblems)
        lose(c, run, book->problems[0]);
    ech__book_destroy(book);
}

/* ---- the campaign ---- */

static void fail_one(campaign *c, const char *run, const char *name)
{
    char done[PATH], hidden[PATH];
    snprintf(done, sizeof done, "%s/runs/%s/done.json", c->options.out, name);
    snprintf(hidden, sizeof hidden, "%s/runs/%s.hidden", c->options.out, name);
    c->tried++;
    if (rename(done, hidden) != 0)
        lose(c, run, "its done.json cannot be hidden");
    else if (tell(c, NULL) < 0)
        lose(c, run, ech_ctx_error(c->ctx));
    else
        judge(c, run, name);
    rename(hidden, done);
}

static void fail_each(campaign *c)
{
    list runs = {.count = 0};
    if (tell(c, &runs) < 0 || !runs.count) {
        lose(c, "any failure", runs.count ? ech_ctx_error(c->ctx) : "no run is there");
        return;
    }
    c->whole = load(c);
    for (size_t i = 0; i < runs.count; i++)
        fail_one(c, runs.run[i].id, runs.run[i].name);
    ech__json_destroy(c->whole);
    if (tell(c, NULL) < 0) /* the directory is again as it was */
        lose(c, "any failure", ech_ctx_error(c->ctx));
}

int main(int argc, char **argv)
{
    const char *studies[STUDIES];
    campaign c = {.options = ech__lab_options_default()};
    if (argc < 4 || ech_ctx_create(NULL, &c.ctx) < 0)
        return 2;
    c.options.program = argv[1];
    c.options.out = argv[2];
    c.options.quick = true;
    c.options.run_limit_s = 0.001;
    c.options.studies = studies;
    for (int i = 3; i < argc; i++) {
        if (strchr(argv[i], '='))
            c.options.sets[c.options.set_count++] = argv[i];
        else if (c.options.study_count < STUDIES)
            studies[c.options.study_count++] = argv[i];
    }
    for (size_t i = 0; i < c.options.study_count; i++) {
        c.study = studies[i];
        fail_each(&c);
    }
    printf("%d single failures, %d not survived\n", c.tried, c.lost);
    ech_ctx_destroy(c.ctx);
    return c.lost || !c.tried;
}
