#include "cli/lab/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- durations ---- */

typedef struct duration {
    char s[32];
} duration;

/* "45 s", "3:20 min", "2:05 h" */
static duration duration_of(double seconds)
{
    duration d;
    const long whole = (long)(seconds + 0.5);
    if (whole < 100)
        snprintf(d.s, sizeof d.s, "%ld s", whole);
    else if (whole < 6000)
        snprintf(d.s, sizeof d.s, "%ld:%02ld min", whole / 60, whole % 60);
    else
        snprintf(d.s, sizeof d.s, "%ld:%02ld h", whole / 3600, whole / 60 % 60);
    return d;
}

/* ---- progress ---- */

ech_status ech__lab_shown_init(ech_ctx *ctx, ech__lab_shown *shown, size_t count)
{
    *shown = (ech__lab_shown){.count = count};
    shown->studies = ech__new(ctx, (count + 1) * sizeof *shown->studies);
    return shown->studies ? ECH_OK : ech__no_memory(ctx, "the table of %zu studies", count);
}

void ech__lab_shown_fini(ech_ctx *ctx, ech__lab_shown *shown)
{
    if (shown->studies)
        ech__delete(ctx, shown->studies, (shown->count + 1) * sizeof *shown->studies);
    shown->studies = NULL;
}

static ech__lab_tally *tally_of(ech__lab_shown *shown, const ech__lab_event *e)
{
    ech__lab_tally *tally = &shown->studies[e->card ? e->study : shown->count];
    tally->id = e->card ? e->card->id : "noise";
    return tally;
}

enum { WIDTH = 79 }; /* of the progress line, whatever the terminal has */

void ech__lab_show_end(ech__lab_shown *shown)
{
    if (shown->open)
        fprintf(stderr, "\r%*s\r", WIDTH, "");
    shown->open = false;
}

typedef struct words {
    char s[160];
} words;

/* "[3/24] strong-scaling" */
static words place_of(const ech__lab_event *e)
{
    words w = {"[noise]"};
    if (e->card)
        snprintf(w.s, sizeof w.s, "[%zu/%zu] %s", e->study + 1, e->studies, e->card->id);
    return w;
}

/* "1:20 min, about 3:10 min left" */
static words time_of(const ech__lab_event *e)
{
    words w;
    const int used = snprintf(w.s, sizeof w.s, "%s", duration_of(e->elapsed_s).s);
    if (e->left_s >= 0)
        snprintf(w.s + used, sizeof w.s - (size_t)used, ", about %s left",
                 duration_of(e->left_s).s);
    return w;
}

/* "run 2/6 n2" */
static words run_of(const ech__lab_event *e)
{
    words w = {""};
    if (e->run)
        snprintf(w.s, sizeof w.s, "run %zu/%zu %s  ", e->run_number + 1, e->run_count, e->run);
    return w;
}

/* The line that is written over. */
static void show_line(ech__lab_shown *shown, const ech__lab_event *e)
{
    char line[512];
    ech__lab_show_end(shown);
    snprintf(line, sizeof line, "%s  %s%s", place_of(e).s, run_of(e).s, time_of(e).s);
    fprintf(stderr, "%.*s", WIDTH, line);
    fflush(stderr);
    shown->open = true;
}

static void show_run(const ech__lab_event *e)
{
    fprintf(stderr, "%s  %s%s", place_of(e).s, run_of(e).s, e->state);
    if (!strcmp(e->state, "done"))
        fprintf(stderr, " in %.1f s", e->run_s);
    if (e->reason)
        fprintf(stderr, ": %s", e->reason);
    fputc('\n', stderr);
}

static void count_run(ech__lab_tally *tally, const char *state)
{
    tally->done += !strcmp(state, "done");
    tally->reused += !strcmp(state, "reused");
    tally->failed += !strcmp(state, "failed");
    tally->skipped += !strcmp(state, "skipped");
}

/* A study, or the noise, begins: what stood here before is over. */
static void show_beginning(ech__lab_shown *shown, const ech__lab_event *e, bool terminal)
{
    ech__lab_tally *noise = &shown->studies[shown->count];
    if (e->card && e->study == 0)
        noise->seconds = e->elapsed_s;
    shown->began_s = e->elapsed_s;
    tally_of(shown, e);
    if (!terminal)
        fprintf(stderr, "%s  %s\n", place_of(e).s, time_of(e).s);
}

static void show_told(ech__lab_shown *shown, const ech__lab_event *e)
{
    ech__lab_tally *tally = tally_of(shown, e);
    tally->told = !e->reason;
    tally->seconds = e->elapsed_s - shown->began_s;
    if (!e->reason)
        return;
    ech__lab_show_end(shown);
    fprintf(stderr, "%s  cannot be told: %s\n", place_of(e).s, e->reason);
}

void ech__lab_show_event(const ech__lab_event *e, void *user)
{
    ech__lab_shown *shown = user;
    const bool terminal = isatty(STDERR_FILENO);
    switch (e->kind) {
    case ECH__LAB_EVENT_NOISE:
    case ECH__LAB_EVENT_STUDY:
        show_beginning(shown, e, terminal);
        break;
    case ECH__LAB_EVENT_IMAGES:
        ech__lab_show_end(shown);
        fprintf(stderr,
                e->reason ? "CIFAR-10 cannot be had, pictures are synthetic: %s\n"
                          : "fetching CIFAR-10%s\n",
                e->reason ? e->reason : "");
        break;
    case ECH__LAB_EVENT_RUN_END:
        count_run(tally_of(shown, e), e->state);
        if (terminal && !e->reason)
            break;
        ech__lab_show_end(shown);
        show_run(e);
        break;
    case ECH__LAB_EVENT_TOLD:
        show_told(shown, e);
        break;
    case ECH__LAB_EVENT_RUN:
    case ECH__LAB_EVENT_TICK:
        break;
    }
    if (terminal)
        show_line(shown, e);
}

/* ---- table ---- */

size_t ech__lab_shown_told(const ech__lab_shown *shown)
{
    size_t told = 0;
    for (size_t i = 0; i < shown->count; i++)
        told += shown->studies[i].told;
    return told;
}

static void show_tally(const ech__lab_tally *t, const char *remark)
{
    printf("%-24s  %5zu  %6zu  %6zu  %7zu  %8.1f%s\n", t->id, t->done, t->reused, t->failed,
           t->skipped, t->seconds, remark);
}

void ech__lab_show_table(const ech__lab_shown *shown)
{
    printf("%-24s  %5s  %6s  %6s  %7s  %8s\n", "study", "done", "reused", "failed", "skipped",
           "seconds");
    if (shown->studies[shown->count].id)
        show_tally(&shown->studies[shown->count], "");
    for (size_t i = 0; i < shown->count; i++) {
        if (shown->studies[i].id)
            show_tally(&shown->studies[i], shown->studies[i].told ? "" : "  not told");
    }
}

/* ---- list ---- */

void ech__lab_show_list(const ech__study_card *const *cards, size_t count)
{
    printf("%-24s  %5s  %9s  %9s  %s\n", "study", "group", "quick", "full", "title");
    for (size_t i = 0; i < count; i++)
        printf("%-24s  %5c  %9s  %9s  %s\n", cards[i]->id, cards[i]->group,
               duration_of(cards[i]->quick_seconds).s, duration_of(cards[i]->full_seconds).s,
               cards[i]->title);
}

void ech__lab_show_card(const ech__study_card *card)
{
    printf("%s: %s\n%s\n", card->id, card->title, card->about);
    printf("takes about %s quick", duration_of(card->quick_seconds).s);
    printf(", %s full\n", duration_of(card->full_seconds).s);
    const ech__lab_param *param = card->params;
    if (param && param->name)
        printf("%20s  %12s  %12s  %20s\n", "--set", "quick", "full", "from .. to");
    for (; param && param->name; param++) {
        char range[48];
        snprintf(range, sizeof range, "%" PRId64 " .. %" PRId64, param->min, param->max);
        printf("%20s  %12" PRId64 "  %12" PRId64 "  %20s  %s\n", param->name, param->quick,
               param->full, range, param->help ? param->help : "");
    }
}

static ech_json *card_json(const ech__study_card *card)
{
    const char group[2] = {card->group, '\0'};
    ech_json *params = ech__json_array();
    for (const ech__lab_param *p = card->params; p && p->name; p++) {
        ech_json *param = ECH__JSON(ech__string("name", p->name), ech__int("quick", p->quick),
                                    ech__int("full", p->full), ech__int("min", p->min),
                                    ech__int("max", p->max), ech__string("help", p->help));
        ech__json_append(&params, param);
    }
    return ECH__JSON(ech__string("id", card->id), ech__string("group", group),
                     ech__string("title", card->title), ech__string("about", card->about),
                     ech__real("quick_seconds", card->quick_seconds),
                     ech__real("full_seconds", card->full_seconds), ech__member("params", params));
}

ech_json *ech__lab_list_json(const ech__study_card *const *cards, size_t count)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < count; i++)
        ech__json_append(&list, card_json(cards[i]));
    return ECH__JSON(ech__member("studies", list));
}
