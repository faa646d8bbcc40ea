#include "report/study/study.h"
#include "base/file/dir.h"
#include "base/file/file.h"
#include "base/names.h"
#include "report/study/internal.h"
#include "report/study/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const groups[] = {
    "Data-parallel training", "Accumulation and mixed precision",        "Model parallelism",
    "ResNet-18 on CIFAR-10",  "Quantization of a small convnet to int8",
};

const char *ech__group_title(char group)
{
    return groups[group - 'A'];
}

ECH__NAMES(ech__run_status_name, ech__run_status, ECH__RUN_STATUS_LIST)

const ech__study_run *ech__study_find_run(const ech__study *study, const char *id)
{
    for (size_t i = 0; i < study->nruns; i++) {
        if (!strcmp(study->runs[i].id, id))
            return &study->runs[i];
    }
    return NULL;
}

/* ---- a study ---- */

#define STATUS_WORD(id, text) " " text

static ech_status read_run(const ech__reader *r, const ech_json *json, ech__study_run *out)
{
    int status;
    ECH_TRY(ech__reader_fields(r, json, "id command record clock status reason"));
    ECH_TRY(ech__reader_id(r, json, "id", &out->id));
    ECH_TRY(ech__reader_text_or(r, json, "command", ECH__READER_TEXT, NULL, &out->command));
    ECH_TRY(ech__reader_path(r, json, "record", &out->record));
    ECH_TRY(ech__read_basis(r, json, &out->basis));
    ECH_TRY(
        ech__reader_choice(r, json, "status", &ECH__RUN_STATUS_LIST(STATUS_WORD)[1], -1, &status));
    ECH_TRY(ech__reader_text_or(r, json, "reason", ECH__READER_TEXT, NULL, &out->reason));
    out->status = (ech__run_status)status;
    const bool good = out->status == ECH__RUN_STATUS_DONE || out->status == ECH__RUN_STATUS_REUSED;
    if (!good && !out->reason)
        return ech__fail(r->ctx, ECH_E_FORMAT, "run %s is %s: \"reason\" must say why", out->id,
                         ech__run_status_name(out->status));
    return ECH_OK;
}

static ech_status read_runs(const ech__reader *r, const ech_json *json, ech__study *out)
{
    const ech_json *list;
    size_t count;
    ECH_TRY(ech__reader_list(r, json, "runs", ECH__STUDY_MAX_RUNS, &list, &count));
    ECH_TRY(ech__reader_array(r, count, sizeof *out->runs, &out->runs));
    for (size_t i = 0; i < count; i++) {
        ech_status status = read_run(r, ech__json_at(list, i), &out->runs[i]);
        if (status == ECH_OK && ech__study_find_run(out, out->runs[i].id))
            status = ech__fail(r->ctx, ECH_E_FORMAT, "there are two runs %s", out->runs[i].id);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "runs[%zu]", i);
        out->nruns = i + 1;
    }
    return ECH_OK;
}

/* Texts about what is left out become paragraphs of the study's problem. */
static ech_status read_missing(const ech__reader *r, const ech_json *json, ech__study *out)
{
    const ech_json *list;
    const char *text;
    size_t count;
    ECH_TRY(ech__reader_list(r, json, "missing", ECH__STUDY_MAX_PLOTS, &list, &count));
    for (size_t i = 0; i < count; i++) {
        ECH_TRY(ech__reader_string(r, ech__json_at(list, i), "missing", ECH__READER_TEXT, &text));
        out->problem = ech__arena_printf(r->arena, "%s%s%s", out->problem ? out->problem : "",
                                         out->problem ? "\n\n" : "", text);
        if (!out->problem)
            return ech__no_memory(r->ctx, "what is missing");
    }
    return ECH_OK;
}

static ech_status read_format_number(const ech__reader *r, const ech_json *json)
{
    int64_t format;
    ECH_TRY(ech__json_get_int(r->ctx, json, "format", &format));
    return format == ECH__BOOK_FORMAT
               ? ECH_OK
               : ech__fail(r->ctx, ECH_E_FORMAT, "\"format\" %lld: this version reads %d",
                           (long long)format, ECH__BOOK_FORMAT);
}

static ech_status read_study(const ech__reader *r, const ech_json *json, const char *id,
                             ech__study *out)
{
    int group;
    ECH_TRY(ech__reader_fields(r, json,
                               "format id title group about command runs tables plots answers "
                               "missing"));
    ECH_TRY(read_format_number(r, json));
    ECH_TRY(ech__reader_id(r, json, "id", &out->id));
    if (strcmp(out->id, id) != 0)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"id\" %s: must be %s, as the file is called",
                         out->id, id);
    ECH_TRY(ech__reader_text(r, json, "title", ECH__READER_LINE, &out->title));
    ECH_TRY(ech__reader_choice(r, json, "group", "A B C D E", -1, &group));
    out->group = (char)('A' + group);
    ECH_TRY(ech__reader_text(r, json, "about", ECH__READER_TEXT, &out->about));
    ECH_TRY(ech__reader_text(r, json, "command", ECH__READER_TEXT, &out->command));
    ECH_TRY(read_runs(r, json, out));
    ECH_TRY(ech__read_tables(r, json, out));
    ECH_TRY(ech__read_plots(r, json, out));
    ECH_TRY(read_missing(r, json, out));
    return ech__read_answers(r, json, out);
}

ech_status ech__study_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                            const char *id, ech__study *out)
{
    const ech__reader r = {book->ctx, &book->arena};
    ech_json *json;
    *out = (ech__study){0};
    ECH_TRY(ech__json_parse(book->ctx, what, text, bytes, &json));
    ech_status status = read_study(&r, json, id, out);
    ech__json_destroy(json);
    return status < 0 ? ech__fail_in(book->ctx, status, "%s", what) : ECH_OK;
}

/* ---- lab.json ---- */

static ech_status read_machine(const ech__reader *r, const ech_json *json, ech__book *book)
{
    const ech_json *list;
    size_t count;
    ECH_TRY(ech__reader_list(r, json, "machine", 32, &list, &count));
    ECH_TRY(ech__reader_array(r, count, sizeof *book->machine, &book->machine));
    for (size_t i = 0; i < count; i++) {
        const ech_json *fact = ech__json_at(list, i);
        ech_status status = ech__reader_fields(r, fact, "name value");
        if (status == ECH_OK)
            status = ech__reader_text(r, fact, "name", ECH__READER_LINE, &book->machine[i].name);
        if (status == ECH_OK)
            status = ech__reader_text(r, fact, "value", ECH__READER_LINE, &book->machine[i].value);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "machine[%zu]", i);
    }
    book->nmachine = count;
    return ECH_OK;
}

static ech_status read_seeds(const ech__reader *r, const ech_json *json, ech__book *book)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, json, "seeds", 32, &list, &book->nseeds));
    ECH_TRY(ech__reader_array(r, book->nseeds, sizeof *book->seeds, &book->seeds));
    for (size_t i = 0; i < book->nseeds; i++) {
        if (!ech__json_int(ech__json_at(list, i), &book->seeds[i]))
            return ech__fail(r->ctx, ECH_E_FORMAT, "seeds[%zu] must be an integer", i);
    }
    return ECH_OK;
}

static ech_status read_order(const ech__reader *r, const ech_json *json, ech__book *book)
{
    const ech_json *list;
    size_t count;
    char what[48];
    ECH_TRY(ech__reader_list(r, json, "studies", ECH__BOOK_MAX_STUDIES, &list, &count));
    if (!count)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"studies\" names no study");
    ECH_TRY(ech__reader_array(r, count, sizeof *book->order, &book->order));
    ECH_TRY(ech__reader_array(r, count, sizeof *book->studies, &book->studies));
    for (size_t i = 0; i < count; i++) {
        snprintf(what, sizeof what, "studies[%zu]", i);
        ECH_TRY(ech__reader_id_string(r, ech__json_at(list, i), what, &book->order[i]));
        for (size_t k = 0; k < i; k++) {
            if (!strcmp(book->order[k], book->order[i]))
                return ech__fail(r->ctx, ECH_E_FORMAT, "%s: %s is named twice", what,
                                 book->order[i]);
        }
    }
    book->nstudies = count;
    return ECH_OK;
}

static ech_status read_lab(const ech__reader *r, const ech_json *json, ech__book *book)
{
    int profile;
    ECH_TRY(ech__reader_fields(
        r, json, "format title profile date command version machine seeds noise studies"));
    ECH_TRY(read_format_number(r, json));
    ECH_TRY(ech__reader_text(r, json, "title", ECH__READER_LINE, &book->title));
    ECH_TRY(ech__reader_choice(r, json, "profile", "quick full", -1, &profile));
    book->profile = profile ? "full" : "quick";
    ECH_TRY(ech__reader_text(r, json, "date", ECH__READER_LINE, &book->date));
    ECH_TRY(ech__reader_text(r, json, "command", ECH__READER_TEXT, &book->command));
    ECH_TRY(ech__reader_text_or(r, json, "version", ECH__READER_LINE, NULL, &book->version));
    ECH_TRY(read_machine(r, json, book));
    ECH_TRY(read_seeds(r, json, book));
    ECH_TRY(ech__read_figures(r, json, "noise", &book->noise, &book->nnoise));
    return read_order(r, json, book);
}

ech_status ech__book_parse(ech__book *book, const char *what, const char *text, size_t bytes)
{
    const ech__reader r = {book->ctx, &book->arena};
    ech_json *json;
    ECH_TRY(ech__json_parse(book->ctx, what, text, bytes, &json));
    ech_status status = read_lab(&r, json, book);
    ech__json_destroy(json);
    return status < 0 ? ech__fail_in(book->ctx, status, "%s", what) : ECH_OK;
}

/* ---- the book ---- */

ech_status ech__book_create(ech_ctx *ctx, ech__book **out)
{
    ech__book *book = *out = ech__new(ctx, sizeof *book);
    if (!book)
        return ech__no_memory(ctx, "a report");
    book->ctx = ctx;
    ech__arena_init(&book->arena, ctx->alloc);
    return ECH_OK;
}

void ech__book_destroy(ech__book *book)
{
    if (!book)
        return;
    ech__arena_fini(&book->arena);
    ech__delete(book->ctx, book, sizeof *book);
}

ech_status ech__book_problem(ech__book *book, ech__study *study)
{
    const char *error = ech_ctx_error(book->ctx);
    const char *both = study->problem
                           ? ech__arena_printf(&book->arena, "%s\n\n%s", study->problem, error)
                           : ech__arena_printf(&book->arena, "%s", error);
    const char *line = ech__arena_printf(&book->arena, "study %s: %s", study->id, error);
    if (!both || !line ||
        !ech__arena_grow(&book->arena, (void **)&book->problems, book->nproblems,
                         &book->problems_room, sizeof *book->problems))
        return ech__no_memory(book->ctx, "a report");
    study->problem = both;
    book->problems[book->nproblems++] = line;
    return ECH_OK;
}

/* What stands in the place of a study whose file cannot be read: its name, and why. */
static ech_status replace_study(ech__book *book, size_t index)
{
    const char *id = book->order[index];
    ech__study *study = &book->studies[index];
    char *command = ech__arena_printf(&book->arena, "echelon lab run %s%s", id,
                                      strcmp(book->profile, "quick") ? "" : " --quick");
    if (!command)
        return ech__no_memory(book->ctx, "a report");
    *study = (ech__study){.id = id,
                          .title = id,
                          .about = "The record of this study cannot be read.",
                          .command = command,
                          .torn = true,
                          .group = index ? book->studies[index - 1].group : 'A'};
    return ech__book_problem(book, study);
}

static ech_status load_study(ech__book *book, const char *dir, size_t index)
{
    char path[ECH_DIR_MAX_PATH], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/studies/%s.json", dir, book->order[index]);
    ech_status status = ech__file_read(book->ctx, path, ECH__STUDY_MAX_BYTES, &text, &bytes);
    if (status < 0)
        return replace_study(book, index);
    status = ech__study_parse(book, path, text, bytes, book->order[index], &book->studies[index]);
    free(text);
    if (status == ECH_E_NOMEM)
        return status;
    return status < 0 ? replace_study(book, index)
                      : ech__records_fill(book, dir, &book->studies[index]);
}

static ech_status load_all(ech__book *book, const char *dir)
{
    char path[ECH_DIR_MAX_PATH], *text;
    size_t bytes;
    if (strlen(dir) > sizeof path - 512)
        return ech__fail(book->ctx, ECH_E_INVALID,
                         "the path of the report has %zu bytes: at most "
                         "%zu are possible",
                         strlen(dir), sizeof path - 512);
    snprintf(path, sizeof path, "%s/lab.json", dir);
    ECH_TRY(ech__file_read(book->ctx, path, ECH__STUDY_MAX_BYTES, &text, &bytes));
    ech_status status = ech__book_parse(book, path, text, bytes);
    free(text);
    size_t readable = 0;
    for (size_t i = 0; status == ECH_OK && i < book->nstudies; i++) {
        status = load_study(book, dir, i);
        readable += !book->studies[i].torn;
    }
    if (status == ECH_OK && !readable)
        return ech__fail(book->ctx, ECH_E_FORMAT, "no study can be read: %s", book->problems[0]);
    return status;
}

ech_status ech__book_load(ech_ctx *ctx, const char *dir, ech__book **out)
{
    ECH_TRY(ech__book_create(ctx, out));
    const ech_status status = load_all(*out, dir);
    if (status < 0) {
        ech__book_destroy(*out);
        *out = NULL;
    }
    return status;
}
