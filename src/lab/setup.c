/* What a lab is asked for, checked before anything runs: studies, their sizes, devices and places. */
#include "base/file/dir.h"
#include "base/option/option.h"
#include "comm/collective/reduce.h"
#include "lab/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

ech__lab_options ech__lab_options_default(void)
{
    return (ech__lab_options){
        .out = "lab", .command = "echelon lab all", .devices = {1, 2, 4}, .device_count = 3};
}

void ech__lab_sort(const ech__study_card **cards, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const ech__study_card *card = cards[i];
        size_t at = i;
        for (; at > 0; at--) {
            const ech__study_card *other = cards[at - 1];
            const bool before = card->group != other->group   ? card->group < other->group
                                : card->place != other->place ? card->place < other->place
                                                              : strcmp(card->id, other->id) < 0;
            if (!before)
                break;
            cards[at] = other;
        }
        cards[at] = card;
    }
}

/* ---- studies ---- */

static ech_status take_cards(ech__lab *lab, const ech__lab_options *o)
{
    const ech__study_card *const *from = o->cards ? o->cards : ech__lab_cards;
    lab->card_count = o->cards ? o->card_count : ech__lab_card_count;
    if (lab->card_count > ECH__LAB_MAX_STUDIES)
        return ech__fail(lab->ctx, ECH_E_LIMIT, "%zu studies: at most %d are possible",
                         lab->card_count, ECH__LAB_MAX_STUDIES);
    for (size_t i = 0; i < lab->card_count; i++)
        lab->cards[i] = from[i];
    ech__lab_sort(lab->cards, lab->card_count);
    for (size_t i = 0; i < lab->card_count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (!strcmp(lab->cards[i]->id, lab->cards[k]->id))
                return ech__fail(lab->ctx, ECH_E_INVALID, "two studies are called %s",
                                 lab->cards[i]->id);
        }
    }
    return lab->card_count ? ECH_OK
                           : ech__fail(lab->ctx, ECH_E_UNSUPPORTED, "this program has no studies");
}

ech_status ech__lab_find_card(ech_ctx *ctx, const ech__study_card *const *cards, size_t count,
                              const char *id, const ech__study_card **out)
{
    const char *ids[ECH__LAB_MAX_STUDIES];
    for (size_t i = 0; i < count; i++) {
        ids[i] = cards[i]->id;
        *out = cards[i];
        if (!strcmp(ids[i], id))
            return ECH_OK;
    }
    const char *near = ech__option_nearest(id, ids, count);
    return near ? ech__fail(ctx, ECH_E_INVALID, "%s: no such study; did you mean %s?", id, near)
                : ech__fail(ctx, ECH_E_INVALID, "%s: no such study; see echelon lab list", id);
}

static ech_status find_card(ech__lab *lab, const char *id, const ech__study_card **out)
{
    return ech__lab_find_card(lab->ctx, lab->cards, lab->card_count, id, out);
}

/* Whether the study of a card was named. */
static bool is_wanted(const ech__lab_options *o, const ech__study_card *card)
{
    for (size_t i = 0; i < o->study_count; i++) {
        if (!strcmp(o->studies[i], card->id))
            return true;
    }
    return !o->studies;
}

static ech_status choose_studies(ech__lab *lab, const ech__lab_options *o)
{
    for (size_t i = 0; i < o->study_count; i++) {
        const ech__study_card *card;
        ECH_TRY(find_card(lab, o->studies[i], &card));
    }
    for (size_t i = 0; i < lab->card_count; i++) {
        if (is_wanted(o, lab->cards[i]))
            lab->studies[lab->study_count++] = (ech__lab_study){.lab = lab, .card = lab->cards[i]};
    }
    lab->noise = (ech__lab_study){.lab = lab};
    return ECH_OK;
}

/* ---- sizes ---- */

static const ech__lab_param *find_param(const ech__study_card *card, const char *name)
{
    for (const ech__lab_param *p = card->params; p && p->name; p++) {
        if (!strcmp(p->name, name))
            return p;
    }
    return NULL;
}

bool ech__lab_param_value(const ech__lab *lab, const ech__study_card *card, const char *name,
                          int64_t *out)
{
    const ech__lab_param *param = find_param(card, name);
    if (!param)
        return false;
    *out = lab->options.quick ? param->quick : param->full;
    for (int own = 0; own < 2; own++) { /* what is said of one study binds more */
        for (size_t i = 0; i < lab->options.set_count; i++) {
            const ech__lab_set *set = &lab->sets[i];
            if (set->card == (own ? card : NULL) && !strcmp(set->name, name))
                *out = set->value;
        }
    }
    return true;
}

static ech_status check_value(ech__lab *lab, const char *text, const ech__study_card *card,
                              const ech__lab_param *param, const ech__lab_set *set)
{
    return set->whole && set->value >= param->min && set->value <= param->max
               ? ECH_OK
               : ech__fail(lab->ctx, ECH_E_INVALID,
                           "--set %.200s: %s of %s must be a whole number from %" PRId64
                           " to %" PRId64,
                           text, param->name, card->id, param->min, param->max);
}

/* Some study that is going to be run must have the size, and all that have it must take the value. */
static ech_status check_set(ech__lab *lab, const char *text, const ech__lab_set *set)
{
    const char *names[256];
    size_t count = 0;
    bool run = !set->card, found = false;
    for (size_t i = 0; i < lab->study_count; i++) {
        const ech__study_card *card = lab->studies[i].card;
        if (set->card && set->card != card)
            continue;
        run = true;
        const ech__lab_param *param = find_param(card, set->name);
        if (param)
            ECH_TRY(check_value(lab, text, card, param, set));
        found |= param != NULL;
        for (const ech__lab_param *p = card->params; p && p->name && count < 256; p++)
            names[count++] = p->name;
    }
    if (found)
        return ECH_OK;
    if (!run)
        return ech__fail(lab->ctx, ECH_E_INVALID,
                         "--set %s: %s is not among the studies that are "
                         "run",
                         text, set->card->id);
    const char *near = ech__option_nearest(set->name, names, count);
    if (near)
        return ech__fail(lab->ctx, ECH_E_INVALID, "--set %s: no such size; did you mean %s?", text,
                         near);
    return ech__fail(lab->ctx, ECH_E_INVALID,
                     "--set %s: %s has no size %s; see echelon lab list STUDY", text,
                     set->card ? set->card->id : "no study that is run", set->name);
}

/* A whole number, whatever its size: beyond 64 bits it is as far off as it can be. False for anything else. */
static bool read_value(const char *text, int64_t *out)
{
    const bool minus = *text == '-';
    const size_t digits = strspn(text + minus, "0123456789");
    *out = strtoll(text, NULL, 10);
    return digits > 0 && !text[minus + digits];
}

/* "dim=512" or "strong-scaling.dim=512" */
static ech_status read_set(ech__lab *lab, const char *text, ech__lab_set *out)
{
    char *name = ech__lab_keep(lab, text);
    if (!name)
        return ech__no_memory(lab->ctx, "a lab");
    char *equals = strchr(name, '=');
    if (!equals || equals == name)
        return ech__fail(lab->ctx, ECH_E_INVALID,
                         "--set %s: must be NAME=VALUE or "
                         "STUDY.NAME=VALUE",
                         text);
    *equals = '\0';
    out->whole = read_value(equals + 1, &out->value);
    char *dot = strrchr(name, '.');
    out->name = dot ? dot + 1 : name;
    if (dot) {
        *dot = '\0';
        if (find_card(lab, name, &out->card) < 0)
            return ech__fail_in(lab->ctx, ECH_E_INVALID, "--set %s", text);
    }
    return check_set(lab, text, out);
}

static ech_status take_sets(ech__lab *lab, const ech__lab_options *o)
{
    if (o->set_count > ECH__LAB_MAX_SETS)
        return ech__fail(lab->ctx, ECH_E_LIMIT, "--set: %zu were given, at most %d are possible",
                         o->set_count, ECH__LAB_MAX_SETS);
    for (size_t i = 0; i < o->set_count; i++) {
        ECH_TRY(read_set(lab, o->sets[i], &lab->sets[i]));
        lab->options.sets[i] = ech__lab_keep(lab, o->sets[i]);
        if (!lab->options.sets[i])
            return ech__no_memory(lab->ctx, "a lab");
    }
    return ECH_OK;
}

static ech_status check_devices(ech__lab *lab, const ech__lab_options *o)
{
    if (o->device_count == 0 || o->device_count > ECH__LAB_MAX_DEVICES)
        return ech__fail(lab->ctx, ECH_E_INVALID,
                         "--devices: %zu numbers, from 1 to %d are "
                         "possible",
                         o->device_count, ECH__LAB_MAX_DEVICES);
    if (o->devices[0] != 1)
        return ech__fail(lab->ctx, ECH_E_INVALID,
                         "--devices: begins with %" PRId64
                         "; it must begin with 1, which speedups are against",
                         o->devices[0]);
    for (size_t i = 1; i < o->device_count; i++) {
        if (o->devices[i] <= o->devices[i - 1] || o->devices[i] > ECH__MAX_RANKS_PER_NODE)
            return ech__fail(lab->ctx, ECH_E_INVALID,
                             "--devices: %" PRId64 " behind %" PRId64
                             "; numbers must ascend, up to %d",
                             o->devices[i], o->devices[i - 1], ECH__MAX_RANKS_PER_NODE);
    }
    return ECH_OK;
}

/* ---- places ---- */

static ech_status check_places(ech__lab *lab, const ech__lab_options *o)
{
    const size_t longest = ECH_DIR_MAX_PATH - 512;
    if (!o->out || !*o->out || strlen(o->out) > longest)
        return ech__fail(lab->ctx, ECH_E_INVALID, "--out: must be a path of 1 to %zu bytes",
                         longest);
    if (o->data_dir && (!*o->data_dir || strlen(o->data_dir) > longest))
        return ech__fail(lab->ctx, ECH_E_INVALID, "--data-dir: must be a path of 1 to %zu bytes",
                         longest);
    if (o->data_dir && !ech__images_are_in(o->data_dir))
        return ech__fail(lab->ctx, ECH_E_IO,
                         "--data-dir %s: the six files of CIFAR-10 are not there; "
                         "see echelon data cifar10",
                         o->data_dir);
    const ech__claim_options claim = {"directory of the lab", o->out, ".lab.lock"};
    return ech__claim_take(lab->ctx, &lab->claim, &claim);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* Kernel timings and costs belong to the lab, so that it finds its own again, unless the user has a place for them. */
static ech_status make_environment(ech__lab *lab)
{
    static const struct {
        const char *name, *file;
    } own[] = {{"ECHELON_TUNING", "tuning.json"}, {"ECHELON_COSTS", "costs.json"}};
    size_t count = 0, n = 0;
    while (environ[count])
        count++;
    lab->env = ech__arena_array(&lab->arena, count + 3, sizeof *lab->env);
    if (!lab->env)
        return ech__no_memory(lab->ctx, "a lab");
    for (size_t i = 0; i < 2; i++) {
        if (is_set(own[i].name))
            continue;
        lab->env[n] =
            ech__arena_printf(&lab->arena, "%s=%s/%s", own[i].name, lab->options.out, own[i].file);
        if (!lab->env[n++])
            return ech__no_memory(lab->ctx, "a lab");
    }
    for (size_t i = 0; i < count; i++)
        lab->env[n++] = environ[i];
    return ECH_OK;
}

static ech_status take_strings(ech__lab *lab, const ech__lab_options *o)
{
    ech__lab_options *own = &lab->options;
    *own = *o;
    own->out = ech__lab_keep(lab, o->out);
    own->program = ech__lab_keep(lab, o->program ? o->program : "/proc/self/exe");
    own->command = ech__lab_keep(lab, o->command ? o->command : "echelon lab all");
    own->data_dir = ech__lab_keep(lab, o->data_dir);
    own->studies = NULL;
    own->cards = NULL;
    return own->out && own->program && own->command && (own->data_dir || !o->data_dir)
               ? ECH_OK
               : ech__no_memory(lab->ctx, "a lab");
}

ech_status ech__lab_setup(ech__lab *lab, const ech__lab_options *o)
{
    ech__cores cores;
    ECH_TRY(take_cards(lab, o));
    ECH_TRY(choose_studies(lab, o));
    ECH_TRY(check_devices(lab, o));
    ECH_TRY(check_places(lab, o));
    ECH_TRY(take_strings(lab, o));
    ECH_TRY(take_sets(lab, o));
    ECH_TRY(make_environment(lab));
    ECH_TRY(ech__machine_read(lab->ctx, &lab->machine));
    ECH_TRY(ech__machine_cores(lab->ctx, &cores));
    lab->cores = cores.cores;
    return ECH_OK;
}

/* ---- the command that repeats a study ---- */

static bool is_plain(const char *text)
{
    return *text && !text[strcspn(text, " \t\n'\"\\$`*?[]{}()<>|&;#~!")];
}

static void append(char *line, size_t bytes, const char *option, const char *value)
{
    const size_t used = strlen(line);
    const char *quote = is_plain(value) ? "" : "'";
    snprintf(line + used, bytes - used, " %s %s%s%s", option, quote, value, quote);
}

const char *ech__lab_study_command(ech__lab *lab, const ech__study_card *card)
{
    const ech__lab_options *o = &lab->options;
    char line[8192], list[256] = "", number[32];
    snprintf(line, sizeof line, "echelon lab run %s%s", card->id, o->quick ? " --quick" : "");
    append(line, sizeof line, "--out", o->out);
    for (size_t i = 0; i < o->device_count; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%" PRId64, i ? "," : "", o->devices[i]);
    }
    if (strcmp(list, "1,2,4") != 0)
        append(line, sizeof line, "--devices", list);
    snprintf(number, sizeof number, "%" PRId64, o->seed);
    if (o->seed)
        append(line, sizeof line, "--seed", number);
    for (size_t i = 0; i < o->set_count; i++) {
        if (find_param(card, lab->sets[i].name) &&
            (!lab->sets[i].card || lab->sets[i].card == card))
            append(line, sizeof line, "--set", o->sets[i]);
    }
    if (o->data_dir)
        append(line, sizeof line, "--data-dir", o->data_dir);
    return ech__lab_keep(lab, line);
}
