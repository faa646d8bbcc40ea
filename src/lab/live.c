#include "lab/live.h"
#include "base/clock.h"
#include "base/dir.h"
#include "lab/busy.h"
#include "lab/follow.h"
#include "report/study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double FRESH_S = 0.25; /* how long a state is handed out again */

struct ech__live {
    ech_ctx *ctx;
    ech__lab *lab;
    char out[ECH_DIR_MAX_PATH];
    ech__follow *follow;
    ech__busy busy;
    char study[80], run[80], dir[ECH_DIR_MAX_PATH]; /* of the run that is followed; "": none yet */
    char *state;                                    /* the last text; NULL: none yet */
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
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for the live view");
    live->ctx = ctx;
    live->lab = lab;
    strcpy(live->out, out_dir);
    live->follow = ech__follow_create(ctx);
    if (!live->follow) {
        ech__live_destroy(live);
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for the live view");
    }
    *out = live;
    return ECH_OK;
}

void ech__live_destroy(ech__live *live)
{
    if (!live)
        return;
    free(live->state);
    ech__follow_destroy(live->follow);
    ech__delete(live->ctx, live, sizeof *live);
}

/* ---- state ---- */

/* Copies the string of a member where there is one that fits; false else. */
static bool copy_string(const ech_json *object, const char *key, char *out, size_t room)
{
    const char *text;
    if (!ech__json_string(ech__json_find(object, key), &text) || strlen(text) >= room)
        return false;
    strcpy(out, text);
    return true;
}

/* What is new of the run that goes on; one that is over stays to be seen until the next begins. */
static void look(ech__live *live, const ech_json *current)
{
    int64_t pid = 0;
    if (ech__json_kind_of(current) == ECH_JSON_OBJECT) {
        ech__json_int(ech__json_find(current, "pid"), &pid);
        if (!copy_string(current, "study", live->study, sizeof live->study) ||
            !copy_string(current, "run", live->run, sizeof live->run) ||
            !copy_string(current, "dir", live->dir, sizeof live->dir))
            live->dir[0] = '\0';
    }
    ech__busy_look(&live->busy, pid);
    if (live->dir[0])
        ech__follow_look(live->follow, live->dir);
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
    for (char group = 'A'; group <= 'E'; group++)
        ech__json_set_string(&json, (const char[]){group, '\0'}, ech__group_title(group));
    return json;
}

static ech_status make_state(ech__live *live, bool is_over)
{
    ech_json *state;
    ECH_TRY(ech__lab_snapshot(live->lab, live->ctx, &state));
    look(live, ech__json_find(state, "current"));
    if (live->dir[0]) {
        ech_json *series = ech__follow_json(live->follow);
        ech__json_set_string(&series, "study", live->study);
        ech__json_set_string(&series, "run", live->run);
        ech__json_set(&state, "series", series);
    }
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
