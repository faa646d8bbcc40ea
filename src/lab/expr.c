#include "lab/facts.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_WORD = 200 /* bytes of a name, an id or a path */ };

/* An expression on its way. Draws live in scratch until it is done. */
typedef struct parser {
    ech__lab_facts *facts;
    ech__arena scratch;
    const char *text, *at;
    int depth;
    bool *uses; /* [ndefinitions], definitions that occur in it */
} parser;

static ech_status parse_sum(parser *p, ech__lab_value *out);
static ech_status parse_factor(parser *p, ech__lab_value *out);

__attribute__((format(printf, 2, 3))) static ech_status wrong(const parser *p, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return ech__fail(p->facts->ctx, ECH_E_INVALID, "expression '%.200s', character %zu: %s",
                     p->text, (size_t)(p->at - p->text) + 1, what);
}

static void skip_spaces(parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

/* Passes over a character, and spaces around it. */
static bool take(parser *p, char c)
{
    skip_spaces(p);
    if (*p->at != c)
        return false;
    p->at++;
    skip_spaces(p);
    return true;
}

/* ---- arithmetic ---- */

static double apply(char op, double a, double b)
{
    switch (op) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    default:
        return a / b;
    }
}

/* left = left op right */
static ech_status combine(parser *p, char op, ech__lab_value *left, const ech__lab_value *right)
{
    ech__lab_value out = *left;
    ech__lab_join(&out, right);
    out.draws = NULL;
    out.at = out.known ? apply(op, left->at, right->at) : (double)NAN;
    if (out.known && (left->draws || right->draws)) {
        double *draws = ech__arena_array(&p->scratch, ECH__LAB_DRAWS, sizeof *draws);
        if (!draws)
            return ech__no_memory(p->facts->ctx, "'%.200s'", p->text);
        for (size_t d = 0; d < ECH__LAB_DRAWS; d++)
            draws[d] = apply(op, left->draws ? left->draws[d] : left->at,
                             right->draws ? right->draws[d] : right->at);
        out.draws = draws;
    }
    ech__lab_settle(&out, op == '/' && right->at == 0 ? "it would be a division by zero"
                                                      : "the number is too large");
    *left = out;
    return ECH_OK;
}

/* ---- numbers, names and what they stand before ---- */

static ech_status parse_number(parser *p, ech__lab_value *out)
{
    char copy[MAX_WORD], *end;
    size_t n = strspn(p->at, "0123456789.");
    if (p->at[n] == 'e' || p->at[n] == 'E') {
        const size_t sign = p->at[n + 1] == '-' || p->at[n + 1] == '+';
        const size_t digits = strspn(p->at + n + 1 + sign, "0123456789");
        n += digits ? 1 + sign + digits : 0;
    }
    if (n >= sizeof copy)
        return wrong(p, "a number of %zu digits: at most %d are possible", n, MAX_WORD - 1);
    memcpy(copy, p->at, n);
    copy[n] = '\0';
    *out = (ech__lab_value){.at = strtod(copy, &end), .known = true};
    if (*end || !(fabs(out->at) <= ECH__LAB_LARGEST))
        return wrong(p, "'%s' is no number within %g of 0", copy, ECH__LAB_LARGEST);
    p->at += n;
    return ECH_OK;
}

static size_t name_length(const char *text)
{
    size_t n = 0;
    if (isascii(*text) && isalpha((unsigned char)*text)) {
        while (isascii(text[n]) && (isalnum((unsigned char)text[n]) || text[n] == '_'))
            n++;
    }
    return n;
}

/* What stands between brackets: the run, and what is asked of it. */
typedef struct brackets {
    ech__lab_source *source;
    char rest[MAX_WORD];
} brackets;

static ech_status parse_brackets(parser *p, brackets *out)
{
    char run[MAX_WORD];
    const size_t id = strcspn(p->at, " ]");
    *out = (brackets){0};
    if (!id || id >= sizeof run)
        return wrong(p, "an id of a run must stand behind the bracket");
    snprintf(run, sizeof run, "%.*s", (int)id, p->at);
    out->source = ech__lab_source_find(p->facts, run);
    if (!out->source)
        return wrong(p, "there is no run %s in this study", run);
    p->at += id;
    skip_spaces(p);
    size_t length = strcspn(p->at, "]");
    const char *end = p->at + length;
    if (!*end)
        return wrong(p, "a bracket is not closed");
    while (length && p->at[length - 1] == ' ')
        length--;
    if (!length || length >= sizeof out->rest)
        return wrong(p, "from 1 to %d characters must stand behind the run %s", MAX_WORD - 1, run);
    snprintf(out->rest, sizeof out->rest, "%.*s", (int)length, p->at);
    p->at = end + 1;
    return ECH_OK;
}

/* first[RUN FIELD K] */
static ech_status parse_first(parser *p, ech__lab_value *out)
{
    brackets b;
    ECH_TRY(parse_brackets(p, &b));
    char *number = strrchr(b.rest, ' '), *end;
    if (!number)
        return wrong(p, "first wants a run, a field and the number of a step");
    const long long step = strtoll(number + 1, &end, 10);
    if (*end || end == number + 1 || step < 1)
        return wrong(p, "'%s' is no number of a step: they count from 1", number + 1);
    while (number > b.rest && number[-1] == ' ')
        number--;
    *number = '\0';
    return ech__lab_step_of(p->facts, b.source, b.rest, step, out);
}

static ech_status parse_statistic(parser *p, const char *name, size_t length, ech__lab_value *out)
{
    ech__lab_statistic statistic;
    brackets b;
    if (length == 5 && !strncmp(name, "first", 5))
        return parse_first(p, out);
    if (!ech__lab_statistic_find(name, length, &statistic))
        return wrong(p, "there is no statistic '%.*s'", (int)length, name);
    ECH_TRY(parse_brackets(p, &b));
    return ech__lab_statistic_of(p->facts, b.source, statistic, b.rest, out);
}

static ech_status parse_call(parser *p, const char *name, size_t length, ech__lab_value *out)
{
    ech__lab_function function;
    size_t count = 0;
    if (!ech__lab_function_find(name, length, &function))
        return wrong(p, "there is no function '%.*s'", (int)length, name);
    ech__lab_value *args = ech__arena_array(&p->scratch, ECH__LAB_MAX_ARGS, sizeof *args);
    if (!args)
        return ech__no_memory(p->facts->ctx, "'%.200s'", p->text);
    do {
        if (count == ECH__LAB_MAX_ARGS)
            return wrong(p, "more than %d numbers between parentheses", ECH__LAB_MAX_ARGS);
        ECH_TRY(parse_sum(p, &args[count++]));
    } while (take(p, ','));
    if (!take(p, ')'))
        return wrong(p, "a ')' was expected");
    const ech_status status = ech__lab_call(p->facts, &p->scratch, function, args, count, out);
    return status < 0 ? ech__fail_in(p->facts->ctx, status, "expression '%.200s'", p->text)
                      : ECH_OK;
}

static ech_status parse_name(parser *p, ech__lab_value *out)
{
    const char *name = p->at;
    const size_t length = name_length(name);
    p->at += length;
    if (take(p, '['))
        return parse_statistic(p, name, length, out);
    if (take(p, '('))
        return parse_call(p, name, length, out);
    const ech__lab_definition *d = ech__lab_definition_find(p->facts, name, length);
    if (!d)
        return wrong(p, "'%.*s' is no figure that was named before", (int)length, name);
    p->uses[d - p->facts->definitions] = true;
    *out = d->value;
    return ECH_OK;
}

/* ---- terms and sums ---- */

static ech_status parse_inner(parser *p, ech__lab_value *out)
{
    if (take(p, '(')) {
        ECH_TRY(parse_sum(p, out));
        return take(p, ')') ? ECH_OK : wrong(p, "a ')' was expected");
    }
    if (take(p, '[')) {
        brackets b;
        ECH_TRY(parse_brackets(p, &b));
        return ech__lab_number(p->facts, b.source, b.rest, out);
    }
    if (take(p, '-')) {
        ech__lab_value inner;
        *out = (ech__lab_value){.known = true};
        ECH_TRY(parse_factor(p, &inner));
        return combine(p, '-', out, &inner);
    }
    if (isdigit((unsigned char)*p->at) || *p->at == '.')
        return parse_number(p, out);
    if (name_length(p->at))
        return parse_name(p, out);
    return *p->at ? wrong(p, "a number was expected, not '%c'", *p->at)
                  : wrong(p, "a number was expected, not its end");
}

static ech_status parse_factor(parser *p, ech__lab_value *out)
{
    if (++p->depth > MAX_DEPTH)
        return wrong(p, "more than %d levels deep", MAX_DEPTH);
    const ech_status status = parse_inner(p, out);
    p->depth--;
    return status;
}

static ech_status parse_product(parser *p, ech__lab_value *out)
{
    ech__lab_value right;
    ECH_TRY(parse_factor(p, out));
    for (;;) {
        const char op = take(p, '*') ? '*' : take(p, '/') ? '/' : '\0';
        if (!op)
            return ECH_OK;
        ECH_TRY(parse_factor(p, &right));
        ECH_TRY(combine(p, op, out, &right));
    }
}

static ech_status parse_sum(parser *p, ech__lab_value *out)
{
    ech__lab_value right;
    ECH_TRY(parse_product(p, out));
    for (;;) {
        const char op = take(p, '+') ? '+' : take(p, '-') ? '-' : '\0';
        if (!op)
            return ECH_OK;
        ECH_TRY(parse_product(p, &right));
        ECH_TRY(combine(p, op, out, &right));
    }
}

static ech_status parse_all(parser *p, ech__lab_value *out)
{
    const size_t length = strlen(p->text);
    if (length > ECH__LAB_EXPR_MAX)
        return ech__fail(p->facts->ctx, ECH_E_INVALID,
                         "expression '%.60s...' has %zu characters: at most %d are possible",
                         p->text, length, ECH__LAB_EXPR_MAX);
    p->uses = ech__arena_array(&p->scratch, p->facts->ndefinitions + 1, sizeof *p->uses);
    if (!p->uses)
        return ech__no_memory(p->facts->ctx, "'%.200s'", p->text);
    ECH_TRY(parse_sum(p, out));
    skip_spaces(p);
    return *p->at ? wrong(p, "an operator was expected, not '%c'", *p->at) : ECH_OK;
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle 95 % of the draws. A draw that came out as no number says that the value is at the
 * edge of being one: where these are more than a twentieth, there is no interval. */
static void find_interval(const double *draws, ech__lab_figure *out)
{
    double finite[ECH__LAB_DRAWS];
    size_t n = 0;
    for (size_t d = 1; d < ECH__LAB_DRAWS; d++) {
        if (fabs(draws[d]) <= ECH__LAB_LARGEST)
            finite[n++] = draws[d];
    }
    if ((ECH__LAB_DRAWS - 1 - n) * 20 > ECH__LAB_DRAWS - 1) {
        out->low = out->high = NAN;
        out->reason = "no interval: more than a twentieth of the draws gave no number";
        return;
    }
    qsort(finite, n, sizeof *finite, ascending);
    out->low = fmin(finite[n / 40], out->value);
    out->high = fmax(finite[n - 1 - n / 40], out->value);
}

static ech__lab_figure figure_of(const ech__lab_value *v)
{
    ech__lab_figure f = {.value = v->known ? v->at : (double)NAN,
                         .known = v->known,
                         .basis = v->basis,
                         .run = v->run,
                         .reason = v->known ? NULL : v->reason};
    f.low = f.high = f.value;
    if (v->known && v->draws)
        find_interval(v->draws, &f);
    return f;
}

static ech__lab_figure no_figure(void)
{
    return (ech__lab_figure){NAN, NAN, NAN, .reason = "the expression cannot be computed"};
}

ech_status ech__lab_eval(ech__lab_facts *facts, const char *expr, ech__lab_figure *out)
{
    parser p = {.facts = facts, .text = expr, .at = expr};
    ech__lab_value value;
    ech__arena_init(&p.scratch, facts->ctx->alloc);
    const ech_status status = parse_all(&p, &value);
    *out = status < 0 ? no_figure() : figure_of(&value);
    ech__arena_fini(&p.scratch);
    return status;
}

/* ---- named figures ---- */

const ech__lab_definition *ech__lab_definition_find(const ech__lab_facts *facts, const char *name,
                                                    size_t length)
{
    for (size_t i = 0; i < facts->ndefinitions; i++) {
        const char *own = facts->definitions[i].name;
        if (strlen(own) == length && !strncmp(own, name, length))
            return &facts->definitions[i];
    }
    return NULL;
}

/* Takes name, expression, draws and the list of what it uses over into the arena of the facts. */
static bool keep(parser *p, const char *name, ech__lab_definition *d)
{
    ech__lab_facts *facts = p->facts;
    if (d->value.draws) {
        double *draws = ech__arena_array(&facts->arena, ECH__LAB_DRAWS, sizeof *draws);
        if (!draws)
            return false;
        memcpy(draws, d->value.draws, ECH__LAB_DRAWS * sizeof *draws);
        d->value.draws = draws;
    }
    d->name = ech__arena_printf(&facts->arena, "%s", name);
    d->expr = ech__arena_printf(&facts->arena, "%s", p->text);
    d->uses = ech__arena_array(&facts->arena, facts->ndefinitions + 1, sizeof *d->uses);
    for (size_t i = 0; d->uses && i < facts->ndefinitions; i++) {
        if (p->uses[i])
            d->uses[d->nuses++] = i;
    }
    return d->name && d->expr && d->uses &&
           ech__arena_grow(&facts->arena, (void **)&facts->definitions, facts->ndefinitions,
                           &facts->capacity, sizeof *facts->definitions);
}

static ech_status define_new(ech__lab_facts *facts, const char *name, const char *expr,
                             ech__lab_figure *out)
{
    parser p = {.facts = facts, .text = expr, .at = expr};
    ech__lab_definition d = {0};
    ech__arena_init(&p.scratch, facts->ctx->alloc);
    ech_status status = parse_all(&p, &d.value);
    if (status == ECH_OK && !keep(&p, name, &d))
        status = ech__no_memory(p.facts->ctx, "'%.200s'", p.text);
    ech__arena_fini(&p.scratch);
    if (status < 0)
        return ech__fail_in(facts->ctx, status, "figure %.64s", name);
    d.figure = figure_of(&d.value);
    facts->definitions[facts->ndefinitions++] = d;
    *out = d.figure;
    return ECH_OK;
}

ech_status ech__lab_define(ech__lab_facts *facts, const char *name, const char *expr,
                           ech__lab_figure *out)
{
    const size_t length = name_length(name);
    *out = no_figure();
    if (!length || name[length] || length > 64)
        return ech__fail(
            facts->ctx, ECH_E_INVALID,
            "figure '%.64s': a name has up to 64 letters, digits and '_', and a letter "
            "first",
            name);
    const ech__lab_definition *old = ech__lab_definition_find(facts, name, length);
    if (!old)
        return define_new(facts, name, expr, out);
    if (strcmp(old->expr, expr) != 0)
        return ech__fail(facts->ctx, ECH_E_INVALID,
                         "figure %s is '%.200s' already, and cannot be '%.200s' too", name,
                         old->expr, expr);
    *out = old->figure;
    return ECH_OK;
}

const char *ech__lab_explain(const ech__lab_facts *facts, const ech__lab_definition *definition,
                             ech__arena *arena)
{
    const size_t own = (size_t)(definition - facts->definitions);
    bool *wanted = ech__arena_array(arena, facts->ndefinitions + 1, sizeof *wanted);
    if (!wanted)
        return NULL;
    wanted[own] = true;
    for (size_t i = own + 1; i-- > 0;) {
        for (size_t k = 0; wanted[i] && k < facts->definitions[i].nuses; k++)
            wanted[facts->definitions[i].uses[k]] = true;
    }
    const char *text = definition->expr, *between = " where ";
    for (size_t i = 0; text && i < own; i++) {
        const ech__lab_definition *d = &facts->definitions[i];
        if (!wanted[i])
            continue;
        text = ech__arena_printf(arena, "%s%s%s = %s", text, between, d->name, d->expr);
        between = "; ";
    }
    return text;
}
