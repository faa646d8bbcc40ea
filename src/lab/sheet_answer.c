#include "lab/sheet_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ech__tell_ask(ech__sheet *sheet, const char *question)
{
    ech__sheet_end_answer(sheet);
    if (sheet->status == ECH_OK)
        sheet->answer =
            (ech__sheet_answer){.question = ech__sheet_line(sheet, question, ECH__SHEET_LINE)};
}

static bool in_answer(ech__sheet *sheet)
{
    if (sheet->status < 0)
        return false;
    return sheet->answer.question ||
           ech__sheet_wrong(sheet, "a question must be asked before something is said");
}

void ech__tell_paragraph(ech__sheet *sheet)
{
    if (in_answer(sheet))
        sheet->answer.paragraph = sheet->answer.text != NULL;
}

/* ---- sentences ---- */

static void append(ech__sheet *sheet, const char *sentence)
{
    ech__sheet_answer *a = &sheet->answer;
    const char *between = !a->text ? "" : a->paragraph ? "\n\n" : " ";
    a->text = ech__arena_printf(&sheet->arena, "%s%s%s", a->text ? a->text : "", between, sentence);
    a->paragraph = false;
    if (!a->text)
        ech__sheet_wrong(sheet, "no memory for an answer");
}

/* What stands between braces. */
typedef struct mention {
    const ech__sheet_name *name;
    bool end; /* .low or .high */
} mention;

static bool ends_in(const char *text, size_t *length, const char *end)
{
    const size_t own = strlen(end);
    if (*length <= own || strncmp(text + *length - own, end, own) != 0)
        return false;
    *length -= own;
    return true;
}

/* The next {name} at or after *at, which goes behind it. False at the end of the sentence or where
 * something is wrong. */
static bool next_mention(ech__sheet *sheet, const char *sentence, const char **at, mention *out)
{
    for (const char *c = *at + strcspn(*at, "{}"); *c; c += strcspn(c, "{}")) {
        if (c[0] == c[1]) {
            c += 2;
            continue;
        }
        size_t length = *c == '{' ? strcspn(c + 1, "{}") : 0;
        if (!length || c[1 + length] != '}') {
            ech__sheet_wrong(sheet, "'%.200s' has a brace that names no figure", sentence);
            return false;
        }
        *at = c + length + 2;
        const int all = (int)(length < 64 ? length : 64);
        out->end = ends_in(c + 1, &length, ".low") || ends_in(c + 1, &length, ".high");
        out->name = ech__sheet_find(sheet, c + 1, length);
        if (out->name)
            return true;
        ech__sheet_wrong(sheet, "'%.200s' names {%.*s}, which is no figure", sentence, all, c + 1);
        return false;
    }
    return false;
}

/* Why it cannot be printed; NULL where it can. */
static const char *why_not(ech__sheet *sheet, mention m)
{
    if (m.name->is_text)
        return !m.name->text ? m.name->reason : m.end ? "a text has no interval" : NULL;
    const ech__lab_figure *f =
        &ech__lab_definition_find(sheet->facts, m.name->name, strlen(m.name->name))->figure;
    if (!f->known || (m.end && isnan(f->low)))
        return f->reason ? f->reason : "no reason was given";
    return NULL;
}

static void remember(ech__sheet *sheet, mention m)
{
    ech__sheet_answer *a = &sheet->answer;
    for (size_t i = 0; i < a->nmentions; i++) {
        if (!strcmp(a->mentions[i].name, m.name->name)) {
            a->mentions[i].interval |= m.end;
            return;
        }
    }
    if (ech__sheet_grow(sheet, &a->mentions, a->nmentions, &a->mentions_capacity,
                        sizeof *a->mentions))
        a->mentions[a->nmentions++] = (ech__sheet_mention){m.name->name, m.end};
}

/* Once in an answer, however many sentences it takes the place of. */
static void say_why(ech__sheet *sheet, const char *reason)
{
    ech__sheet_answer *a = &sheet->answer;
    char text[2 * ECH__SHEET_LINE + 1];
    size_t n = 0;
    for (size_t i = 0; i < a->nreasons; i++) {
        if (!strcmp(a->reasons[i], reason))
            return;
    }
    if (!ech__sheet_grow(sheet, &a->reasons, a->nreasons, &a->reasons_capacity, sizeof *a->reasons))
        return;
    a->reasons[a->nreasons++] = reason;
    const char *line = ech__sheet_line(sheet, reason, ECH__SHEET_LINE);
    for (const char *c = line; *c; c++) {
        text[n++] = *c;
        if (*c == '{' || *c == '}')
            text[n++] = *c;
    }
    while (n && (text[n - 1] == '.' || text[n - 1] == ' '))
        n--;
    text[n] = '\0';
    const char *sentence = ech__arena_printf(&sheet->arena, "No result: %s.", text);
    if (sentence)
        append(sheet, sentence);
}

void ech__tell_say(ech__sheet *sheet, const char *sentence)
{
    const char *at = sentence, *reason = NULL;
    mention m;
    if (!in_answer(sheet))
        return;
    while (!reason && next_mention(sheet, sentence, &at, &m))
        reason = why_not(sheet, m);
    if (sheet->status < 0)
        return;
    if (reason) {
        say_why(sheet, reason);
        return;
    }
    for (at = sentence; next_mention(sheet, sentence, &at, &m);)
        remember(sheet, m);
    append(sheet, sentence);
}

/* ---- as records have it ---- */

static void set_number(ech__sheet *sheet, ech_json **json, ech__sheet_mention mentioned)
{
    const ech__lab_definition *d =
        ech__lab_definition_find(sheet->facts, mentioned.name, strlen(mentioned.name));
    const ech__lab_figure *f = &d->figure;
    const char *source = ech__lab_explain(sheet->facts, d, &sheet->arena);
    ech__json_set_real(json, "value", f->value);
    if (mentioned.interval || ech__sheet_has_interval(f)) {
        ech__json_set_real(json, "low", f->low);
        ech__json_set_real(json, "high", f->high);
    }
    if (f->run)
        ech__json_set_string(json, "clock", ech__lab_basis_name(f->basis));
    if (source)
        ech__json_set_string(json, "source", source);
    else
        ech__sheet_wrong(sheet, "no memory for an answer");
}

static ech_json *figures_of(ech__sheet *sheet)
{
    const ech__sheet_answer *a = &sheet->answer;
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < a->nmentions; i++) {
        const char *own = a->mentions[i].name;
        const ech__sheet_name *name = ech__sheet_find(sheet, own, strlen(own));
        ech_json *figure = ech__json_object();
        ech__json_set_string(&figure, "name", own);
        if (name->is_text) {
            ech__json_set_string(&figure, "value", name->text);
            ech__json_set_string(&figure, "clock", ech__lab_basis_name(name->basis));
            ech__json_set_string(&figure, "source", name->source);
        } else {
            set_number(sheet, &figure, a->mentions[i]);
            ech__json_set_string(&figure, "format", name->format.format);
        }
        if (*name->format.unit)
            ech__json_set_string(&figure, "unit", name->format.unit);
        ech__json_append(&list, figure);
    }
    return list;
}

void ech__sheet_end_answer(ech__sheet *sheet)
{
    const ech__sheet_answer *a = &sheet->answer;
    if (sheet->status < 0 || !a->question)
        return;
    if (!a->text)
        append(sheet, "Nothing can be said of it from these records.");
    ech_json *answer = ech__json_object();
    ech__json_set_string(&answer, "question", a->question);
    ech__json_set_string(&answer, "text", a->text);
    ech__json_set(&answer, "figures", figures_of(sheet));
    ech__json_append(&sheet->answers, answer);
    sheet->answer = (ech__sheet_answer){0};
}
