/* lab.json: what was run, where and when. */
#include "base/format.h"
#include "lab/internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, MAX_BYTES = 16 << 20 };

/* ---- machine ---- */

static void add_fact(ech_json **list, const char *name, const char *value)
{
    ech_json *fact = ech__json_object();
    ech__json_set_string(&fact, "name", name);
    ech__json_set_string(&fact, "value", value);
    ech__json_append(list, fact);
}

ech_json *ech__lab_machine_json(const ech__lab *lab)
{
    const ech__machine *m = &lab->machine;
    ech_json *list = ech__json_array();
    char text[256];
    add_fact(&list, "processor", m->processor);
    snprintf(text, sizeof text, "%d, with %d threads, of which %d are usable", m->cores, m->threads,
             m->usable);
    add_fact(&list, "cores", text);
    add_fact(&list, "vectors", *m->vectors ? m->vectors : "none that kernels use");
    snprintf(text, sizeof text, "L1 %s, L2 %s, L3 %s", ech__format_bytes(m->cache_bytes[0]).s,
             ech__format_bytes(m->cache_bytes[1]).s, ech__format_bytes(m->cache_bytes[2]).s);
    add_fact(&list, "caches", text);
    add_fact(&list, "memory", ech__format_bytes(m->memory_bytes).s);
    add_fact(&list, "system", m->system);
    snprintf(text, sizeof text, "%s; %s", m->onednn, m->openblas);
    add_fact(&list, "libraries", text);
    if (lab->images.text)
        add_fact(&list, "images", lab->images.text);
    return list;
}

/* ---- studies ---- */

static bool names(const ech_json *list, const char *id)
{
    for (size_t i = 0; i < ech__json_count(list); i++) {
        const char *name;
        if (ech__json_string(ech__json_at(list, i), &name) && !strcmp(name, id))
            return true;
    }
    return false;
}

static bool is_told(const ech__lab *lab, const ech__study_card *card)
{
    for (size_t i = 0; i < lab->study_count; i++) {
        if (lab->studies[i].card == card)
            return lab->studies[i].stage == ECH__STUDY_TOLD;
    }
    return false;
}

/* What lab.json names by now, if it is of the same profile: quick figures and full ones do not
 * belong into one report. The caller destroys it. */
static ech_json *load_before(ech__lab *lab, const char *path)
{
    ech_json *json;
    const char *profile;
    if (access(path, R_OK) != 0 || ech__json_load(lab->ctx, path, MAX_BYTES, &json) < 0)
        return NULL;
    const ech_json *member = ech__json_find(json, "profile");
    if (member && ech__json_string(member, &profile) &&
        !strcmp(profile, lab->options.quick ? "quick" : "full"))
        return json;
    ech__json_destroy(json);
    return NULL;
}

static ech_json *study_list(ech__lab *lab, const char *path)
{
    ech_json *before = load_before(lab, path), *list = ech__json_array();
    for (size_t i = 0; i < lab->card_count; i++) {
        const ech__study_card *card = lab->cards[i];
        const char *file =
            ech__arena_printf(&lab->arena, "%s/studies/%s.json", lab->options.out, card->id);
        const bool there = file && access(file, R_OK) == 0;
        if (there && (is_told(lab, card) || names(ech__json_find(before, "studies"), card->id)))
            ech__json_append_string(&list, card->id);
    }
    ech__json_destroy(before);
    return list;
}

ech_status ech__lab_save(ech__lab *lab)
{
    const ech__lab_options *o = &lab->options;
    const char *path = ech__arena_printf(&lab->arena, "%s/lab.json", o->out);
    if (!path)
        return ech__no_memory(lab->ctx, "the path of lab.json");
    ech_json *json = ech__json_object(), *seeds = ech__json_array();
    ech__json_append_int(&seeds, o->seed);
    ech__json_set_int(&json, "format", FORMAT);
    ech__json_set_string(&json, "title", ECH__LAB_TITLE);
    ech__json_set_string(&json, "profile", o->quick ? "quick" : "full");
    ech__json_set_string(&json, "date", lab->date);
    ech__json_set_string(&json, "command", o->command);
    ech__json_set_string(&json, "version", ech_version());
    ech__json_set(&json, "machine", ech__lab_machine_json(lab));
    ech__json_set(&json, "seeds", seeds);
    ech__json_set(&json, "noise", ech__lab_noise_json(&lab->figures));
    ech__json_set(&json, "studies", study_list(lab, path));
    const ech_status status = ech__json_save(lab->ctx, path, json, ECH_JSON_INDENT);
    ech__json_destroy(json);
    return status;
}
