#include "lab/live.h"
#include "base/file/dir.h"
#include "base/system/clock.h"
#include "lab/busy.h"
#include "lab/follow.h"
#include "report/study/study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double FRESH_S = 0.25; /* how long a state is handed out again */

/* A run that is followed. */
typedef struct watched {
    ech__follow *follow;
    char study[80], run[80], dir[ECH_DIR_MAX_PATH]; /* "": none yet */
} watched;

struct ech__live {
    ech_ctx *ctx;
    ech__lab *lab;
    char out[ECH_DIR_MAX_PATH];
    watched now, before; /* the newest run, and the last one before it that has steps */
    ech__busy busy;
    char *state; /* the last text; NULL: none yet */
    size_t bytes;
    int64_t made_ns;
    bool was_over;
};

/* ---- life ---- */

ech_status ech__live_create(ech_ctx *ctx, ech__lab *lab, const char *out_dir, ech__live **out)
{
    *out = NULL;
    if (strlen(out_dir) >= ECH_DIR_MAX_PATH)
        return ech__fail(ctx, ECH_E_INVALID, "directory '%.60s...': its path may have %d bytes",
                         out_dir, ECH_DIR_MAX_PATH - 1);
    ech__live *live = ech__new(ctx, sizeof *live);
    if (!live)
        return ech__no_memory(ctx, "the live view");
    live->ctx = ctx;
    live->lab = lab;
    strcpy(live->out, out_dir);
    live->now.follow = ech__follow_create(ctx);
    live->before.follow = ech__follow_create(ctx);
    if (!live->now.follow || !live->before.follow) {
        ech__live_destroy(live);
        return ech__no_memory(ctx, "the live view");
    }
    *out = live;
    return ECH_OK;
}

void ech__live_destroy(ech__live *live)
{
    if (!live)
        return;
    free(live->state);
    ech__follow_destroy(live->now.follow);
    ech__follow_destroy(live->before.follow);
    ech__delete(live->ctx, live, sizeof *live);
}

/* ---- state ---- */

/* Copies the string of a member where there is one that fits; false else. */
static bool copy_string(const ech_json *object, const char *key, char *out, size_t size)
{
    const char *text;
    if (!ech__json_string(ech__json_find(object, key), &text) || strlen(text) >= size)
        return false;
    strcpy(out, text);
    return true;
}

static bool has_steps(const watched *w)
{
    return w->dir[0] && ech__follow_curve(w->follow)->total > 0;
}

/* Another run has begun. The one before stays to be seen until this one has steps, and its last ones are read. */
static void turn_to(ech__live *live, const char *dir, const ech_json *current)
{
    if (live->now.dir[0])
        ech__follow_look(live->now.follow, live->now.dir);
    if (has_steps(&live->now)) {
        const watched last = live->now;
        live->now = live->before;
        live->before = last;
    }
    watched *w = &live->now;
    if (!copy_string(current, "study", w->study, sizeof w->study) ||
        !copy_string(current, "run", w->run, sizeof w->run) || strlen(dir) >= sizeof w->dir)
        w->dir[0] = '\0';
    else
        strcpy(w->dir, dir);
}

/* What is new of the run that goes on. */
static void look(ech__live *live, const ech_json *current)
{
    int64_t pid = 0;
    const char *dir;
    ech__json_int(ech__json_find(current, "pid"), &pid);
    if (ech__json_string(ech__json_find(current, "dir"), &dir) && strcmp(dir, live->now.dir) != 0)
        turn_to(live, dir, current);
    ech__busy_look(&live->busy, pid);
    if (live->now.dir[0])
        ech__follow_look(live->now.follow, live->now.dir);
}

static ech_json *series_json(const watched *w)
{
    ech_json *json = ech__follow_json(w->follow);
    ech__json_set_string(&json, "study", w->study);
    ech__json_set_string(&json, "run", w->run);
    return json;
}

/* The whole path: the page may be looked at from anywhere. */
static ech_json *report_json(const ech__live *live)
{
    char path[2 * ECH_DIR_MAX_PATH];
    char *whole = realpath(live->out, NULL);
    ech_json *json = ech__json_object();
    snprintf(path, sizeof path, "%s/report.html", whole ? whole : live->out);
    free(whole);
    ech__json_set_string(&json, "path", path);
    ech__json_set_bool(&json, "ready", access(path, R_OK) == 0);
    return json;
}

static ech_json *groups_json(void)
{
    ech_json *json = ech__json_object();
    for (const char *group = "ABCDE"; *group; group++)
        ech__json_set_string(&json, (const char[]){*group, '\0'}, ech__group_title(*group));
    return json;
}

static ech_status make_state(ech__live *live, bool is_over)
{
    ech_json *state;
    ECH_TRY(ech__lab_snapshot(live->lab, live->ctx, &state));
    look(live, ech__json_find(state, "current"));
    const watched *w = has_steps(&live->now) ? &live->now : &live->before;
    if (has_steps(w))
        ech__json_set(&state, "series", series_json(w));
    ech__json_set(&state, "devices", ech__busy_json(&live->busy));
    ech__json_set(&state, "report", report_json(live));
    ech__json_set(&state, "groups", groups_json());
    ech__json_set_bool(&state, "over", is_over);
    char *text;
    size_t bytes;
    const ech_status status = ech__json_dump(live->ctx, state, ECH_JSON_LINE, &text, &bytes);
    ech__json_destroy(state);
    ECH_TRY(status);
    free(live->state);
    live->state = text;
    live->bytes = bytes;
    live->made_ns = ech__clock_wall();
    live->was_over = is_over;
    return ECH_OK;
}

ech_status ech__live_state(ech__live *live, bool is_over, ech__live_text *out)
{
    const bool is_fresh = live->state && live->was_over == is_over &&
                          ech__seconds(ech__clock_wall() - live->made_ns) < FRESH_S;
    if (!is_fresh)
        ECH_TRY(make_state(live, is_over));
    *out = (ech__live_text){live->state, live->bytes};
    return ECH_OK;
}
