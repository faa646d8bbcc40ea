#include "lab/sheet_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- errors and texts ---- */

bool ech__sheet_fail(ech__sheet *sheet, ech_status status)
{
    if (sheet->status == ECH_OK)
        sheet->status = status;
    return false;
}

bool ech__sheet_wrong(ech__sheet *sheet, const char *fmt, ...)
{
    char text[512];
    if (sheet->status < 0)
        return false;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ech__sheet_fail(sheet, ech__fail(sheet->ctx, ECH_E_INVALID, "%s", text));
}

static bool no_memory(ech__sheet *sheet)
{
    if (sheet->status < 0)
        return false;
    return ech__sheet_fail(sheet, ech__no_memory(sheet->ctx, "a study"));
}

bool ech__sheet_grow(ech__sheet *sheet, void *array, size_t used, size_t *capacity, size_t size)
{
    void *place;
    memcpy(&place, array, sizeof place);
    if (!ech__arena_grow(&sheet->arena, &place, used, capacity, size))
        return no_memory(sheet);
    memcpy(array, &place, sizeof place);
    return true;
}

const char *ech__sheet_line(ech__sheet *sheet, const char *text, size_t most)
{
    size_t length = strlen(text);
    const bool cut = length > most;
    if (cut) {
        length = most - 3;
        while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    char *line = ech__arena_printf(&sheet->arena, "%.*s%s", (int)length, text, cut ? "..." : "");
    if (!line) {
        no_memory(sheet);
        return "";
    }
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    }
    return line;
}

const char *ech__sheet_print(ech__sheet *sheet, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = length < 0 ? NULL : ech__arena_alloc(&sheet->arena, (size_t)length + 1);
    if (!text) {
        no_memory(sheet);
        return "";
    }
    vsnprintf(text, (size_t)length + 1, fmt, args);
    return text;
}

/* ---- what was asked for ---- */

bool ech__tell_quick(const ech__sheet *sheet)
{
    return sheet->options->quick;
}

bool ech__tell_real_images(const ech__sheet *sheet)
{
    return sheet->options->real_images;
}

int64_t ech__tell_cores(const ech__sheet *sheet)
{
    return sheet->options->cores;
}

size_t ech__tell_devices(const ech__sheet *sheet)
{
    return sheet->options->device_count;
}

int64_t ech__tell_device(const ech__sheet *sheet, size_t index)
{
    return index < sheet->options->device_count ? sheet->options->devices[index] : 0;
}

int64_t ech__tell_param(ech__sheet *sheet, const char *name)
{
    const ech__lab_param *p = sheet->options->card->params;
    while (p && p->name && strcmp(p->name, name) != 0)
        p++;
    if (p && p->name && sheet->options->param)
        return sheet->options->param(sheet->options->user, name);
    ech__sheet_wrong(sheet, "'%.64s' is no size of this study", name);
    return 0;
}

bool ech__tell_has(ech__sheet *sheet, const char *run)
{
    return sheet->status == ECH_OK && ech__lab_record(sheet->facts, run) != NULL;
}

bool ech__tell_asked(ech__sheet *sheet, const char *run)
{
    return sheet->status == ECH_OK && ech__lab_source_find(sheet->facts, run) != NULL;
}

const ech_json *ech__tell_record(ech__sheet *sheet, const char *run)
{
    if (sheet->status < 0)
        return NULL;
    if (!ech__lab_source_find(sheet->facts, run)) {
        ech__sheet_wrong(sheet, "there is no run %.64s in this study", run);
        return NULL;
    }
    return ech__lab_record(sheet->facts, run);
}

const char *ech__tell_text(ech__sheet *sheet, const char *run, const char *path)
{
    const char *text = "";
    ech__json_string(ech__lab_path(ech__tell_record(sheet, run), path), &text);
    return text;
}

/* ---- figures ---- */

static const ech__lab_figure nothing = {NAN, NAN, NAN, .reason = "the study has an error"};

bool ech__sheet_has_interval(const ech__lab_figure *figure)
{
    return figure->known && figure->low < figure->high;
}

bool ech__sheet_eval(ech__sheet *sheet, const char *expr, va_list args, ech__lab_figure *out)
{
    *out = nothing;
    if (sheet->status < 0)
        return false;
    const char *text = ech__sheet_print(sheet, expr, args);
    if (sheet->status == ECH_OK)
        ech__sheet_fail(sheet, ech__lab_eval(sheet->facts, text, out));
    return sheet->status == ECH_OK;
}

/* The names of docs/records.md. */
static bool is_format(const char *name)
{
    static const char *const plain[] = {"general", "integer", "bytes", "seconds"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (!strcmp(name, plain[i]))
            return true;
    }
    const size_t digits = !strncmp(name, "fixed", 5) ? 5 : !strncmp(name, "percent", 7) ? 7 : 0;
    return digits && name[digits] >= '0' && name[digits] <= '9' && !name[digits + 1];
}

bool ech__sheet_split(ech__sheet *sheet, const char *format, ech__sheet_format *out)
{
    const size_t length = strcspn(format, " ");
    *out = (ech__sheet_format){"general", ""};
    const char *name = ech__arena_printf(&sheet->arena, "%.*s", (int)length, format);
    const char *unit =
        ech__arena_printf(&sheet->arena, "%s", format + length + (format[length] == ' '));
    if (!name || !unit)
        return no_memory(sheet);
    if (!is_format(name))
        return ech__sheet_wrong(
            sheet,
            "format '%.40s': there are general, integer, fixed0 to fixed9, "
            "percent0 to percent9, bytes and seconds, each with a unit behind a "
            "space",
            format);
    *out = (ech__sheet_format){name, !*unit && !strncmp(name, "percent", 7) ? "%" : unit};
    return true;
}

const ech__sheet_name *ech__sheet_find(const ech__sheet *sheet, const char *name, size_t length)
{
    for (size_t i = 0; i < sheet->nnames; i++) {
        const char *own = sheet->names[i].name;
        if (strlen(own) == length && !strncmp(own, name, length))
            return &sheet->names[i];
    }
    return NULL;
}

static bool add_name(ech__sheet *sheet, ech__sheet_name entry)
{
    entry.name = ech__sheet_line(sheet, entry.name, 64);
    if (sheet->status < 0 || !ech__sheet_grow(sheet, &sheet->names, sheet->nnames,
                                              &sheet->names_capacity, sizeof *sheet->names))
        return false;
    sheet->names[sheet->nnames++] = entry;
    return true;
}

ech__lab_figure ech__tell_let(ech__sheet *sheet, const char *name, const char *format,
                              const char *expr, ...)
{
    ech__lab_figure figure = nothing;
    ech__sheet_name entry = {.name = name};
    if (sheet->status < 0 || !ech__sheet_split(sheet, format, &entry.format))
        return nothing;
    const ech__sheet_name *old = ech__sheet_find(sheet, name, strlen(name));
    if (old && old->is_text) {
        ech__sheet_wrong(sheet, "figure %.64s is a text already", name);
        return nothing;
    }
    va_list args;
    va_start(args, expr);
    const char *text = ech__sheet_print(sheet, expr, args);
    va_end(args);
    if (sheet->status == ECH_OK)
        ech__sheet_fail(sheet, ech__lab_define(sheet->facts, name, text, &figure));
    if (sheet->status < 0 || (!old && !add_name(sheet, entry)))
        return nothing;
    return figure;
}

void ech__tell_let_text(ech__sheet *sheet, const char *name, const char *run, const char *path)
{
    ech__sheet_name entry = {.name = name, .is_text = true, .format = {"general", ""}};
    const ech_json *record = ech__tell_record(sheet, run);
    if (sheet->status < 0)
        return;
    if (ech__sheet_find(sheet, name, strlen(name))) {
        ech__sheet_wrong(sheet, "figure %.64s is named twice", name);
        return;
    }
    if (ech__json_string(ech__lab_path(record, path), &entry.text))
        entry.text = ech__sheet_line(sheet, entry.text, ECH__SHEET_LINE);
    const char *missing = ech__lab_source_find(sheet->facts, run)->no_record;
    entry.basis = ech__lab_basis_of(sheet->facts, run);
    entry.source = ech__arena_printf(&sheet->arena, "[%s %s]", run, path);
    entry.reason = missing
                       ? missing
                       : ech__lab_reason(sheet->facts, "%s: its record has no text %s", run, path);
    if (entry.source)
        add_name(sheet, entry);
    else
        no_memory(sheet);
}

ech__lab_figure ech__tell_value(ech__sheet *sheet, const char *expr, ...)
{
    ech__lab_figure figure;
    va_list args;
    va_start(args, expr);
    ech__sheet_eval(sheet, expr, args, &figure);
    va_end(args);
    return figure;
}

int ech__tell_side(ech__sheet *sheet, const char *name, double bound)
{
    if (sheet->status < 0)
        return 0;
    const ech__lab_definition *d = ech__lab_definition_find(sheet->facts, name, strlen(name));
    if (!d) {
        ech__sheet_wrong(sheet, "'%.64s' is no figure that was named before", name);
        return 0;
    }
    return (d->figure.low > bound) - (d->figure.high < bound);
}

/* ---- the study ---- */

static ech_json *runs_of(ech__sheet *sheet)
{
    static const char *const states[] = {[ECH__LAB_DONE] = "done",
                                         [ECH__LAB_REUSED] = "reused",
                                         [ECH__LAB_FAILED] = "failed",
                                         [ECH__LAB_SKIPPED] = "skipped"};
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < sheet->options->count; i++) {
        const ech__lab_result *r = &sheet->options->results[i];
        const bool good = r->state == ECH__LAB_DONE || r->state == ECH__LAB_REUSED;
        ech_json *run = ech__json_object();
        ech__json_set_string(&run, "id", r->id);
        if (r->command)
            ech__json_set_string(&run, "command",
                                 ech__sheet_line(sheet, r->command, ECH__SHEET_TEXT));
        if (r->record)
            ech__json_set_string(&run, "record", r->record);
        if (good && r->record)
            ech__json_set_string(&run, "clock",
                                 ech__lab_basis_name(ech__lab_basis_of(sheet->facts, r->id)));
        ech__json_set_string(&run, "status", states[r->state]);
        const char *diverged =
            good ? ech__lab_diverged(sheet->facts, ech__lab_source_find(sheet->facts, r->id))
                 : NULL;
        if (diverged)
            ech__json_set_string(&run, "reason", diverged + strlen(r->id) + 2);
        if (!good)
            ech__json_set_string(&run, "reason",
                                 r->reason && *r->reason
                                     ? ech__sheet_line(sheet, r->reason, ECH__SHEET_TEXT)
                                     : "no reason was given");
        ech__json_append(&list, run);
    }
    return list;
}

static ech_json *study_of(ech__sheet *sheet)
{
    const ech__study_card *card = sheet->options->card;
    ech_json *study = ech__json_object();
    ech__json_set_int(&study, "format", 1);
    ech__json_set_string(&study, "id", card->id);
    ech__json_set_string(&study, "group", (char[]){card->group, '\0'});
    ech__json_set_string(&study, "title", card->title);
    ech__json_set_string(&study, "about", card->about);
    ech__json_set_string(&study, "command", sheet->options->command);
    ech__json_set(&study, "runs", runs_of(sheet));
    ech__json_set(&study, "tables", sheet->tables);
    ech__json_set(&study, "plots", sheet->plots);
    ech__json_set(&study, "answers", sheet->answers);
    sheet->tables = sheet->plots = sheet->answers = NULL;
    if (ech__json_count(sheet->missing)) {
        ech__json_set(&study, "missing", sheet->missing);
        sheet->missing = NULL;
    }
    return study;
}

static void fini(ech__sheet *sheet)
{
    ech__json_destroy(sheet->tables);
    ech__json_destroy(sheet->plots);
    ech__json_destroy(sheet->answers);
    ech__json_destroy(sheet->missing);
    ech__json_destroy(sheet->plot.bands);
    ech__json_destroy(sheet->plot.marks);
    ech__json_destroy(sheet->plot.traces);
    ech__json_destroy(sheet->plot.panels);
    ech__lab_facts_destroy(sheet->facts);
    ech__arena_fini(&sheet->arena);
}

ech_status ech__sheet_tell(ech_ctx *ctx, const ech__sheet_options *options, ech_json **out)
{
    ech__sheet sheet = {.ctx = ctx,
                        .options = options,
                        .tables = ech__json_array(),
                        .plots = ech__json_array(),
                        .answers = ech__json_array(),
                        .missing = ech__json_array()};
    *out = NULL;
    ech__arena_init(&sheet.arena, ctx->alloc);
    ech__sheet_fail(&sheet, ech__lab_facts_create(ctx, options->results, options->count,
                                                  options->noise, &sheet.facts));
    if (sheet.status == ECH_OK)
        options->card->tell(&sheet);
    ech__sheet_end_table(&sheet);
    ech__sheet_end_plot(&sheet);
    ech__sheet_end_answer(&sheet);
    if (sheet.status == ECH_OK)
        *out = study_of(&sheet);
    if (sheet.status == ECH_OK && !*out)
        no_memory(&sheet);
    const ech_status status = sheet.status;
    fini(&sheet);
    return status < 0 ? ech__fail_in(ctx, status, "study %s", options->card->id) : ECH_OK;
}
