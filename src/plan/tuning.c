#include "plan/tuning.h"
#include "base/arena.h"
#include "base/file/json.h"
#include "base/file/dir.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 64 << 20, VERSION = 1 };
static const double LOCK_SECONDS = 5; /* timings that are not kept cost less than a long wait */

typedef struct entry {
    const char *machine, *work, *kernel;
    double seconds;
} entry;

struct ech__tuning {
    ech_ctx *ctx;
    ech__arena arena;
    const char *path; /* NULL: in memory only */
    entry *entries;
    size_t count, cap;
    int added;
    bool frozen;
};

static entry *look_up(const ech__tuning *tuning, const char *machine, const char *work,
                      const char *kernel)
{
    for (size_t i = 0; i < tuning->count; i++) {
        entry *e = &tuning->entries[i];
        if (!strcmp(e->work, work) && !strcmp(e->kernel, kernel) && !strcmp(e->machine, machine))
            return e;
    }
    return NULL;
}

static void insert(ech__tuning *tuning, const entry *e)
{
    if (!ech__arena_grow(&tuning->arena, (void **)&tuning->entries, tuning->count, &tuning->cap,
                         sizeof *tuning->entries))
        return; /* a timing that is not remembered is measured again */
    entry copy = {.machine = ech__arena_printf(&tuning->arena, "%s", e->machine),
                  .work = ech__arena_printf(&tuning->arena, "%s", e->work),
                  .kernel = ech__arena_printf(&tuning->arena, "%s", e->kernel),
                  .seconds = e->seconds};
    if (copy.machine && copy.work && copy.kernel)
        tuning->entries[tuning->count++] = copy;
}

static bool is_time(double seconds)
{
    return isfinite(seconds) && seconds > 0;
}

/* Takes over the kernels' times for one work; where a key is known already, the document's time
 * wins. Values that are not times are skipped and measured again. */
static void merge_work(ech__tuning *tuning, const char *machine, const char *work,
                       const ech_json *kernels)
{
    for (ech__json_iter k = ech__json_begin(kernels); k.key; ech__json_next(&k)) {
        double seconds;
        if (!ech__json_real(k.value, &seconds) || !is_time(seconds))
            continue;
        entry *known = look_up(tuning, machine, work, k.key);
        if (known)
            known->seconds = seconds;
        else
            insert(tuning, &(entry){machine, work, k.key, seconds});
    }
}

static ech_status merge(ech__tuning *tuning, const ech_json *doc)
{
    ech_ctx *ctx = tuning->ctx;
    int64_t version;
    const ech_json *machines, *works, *kernels;
    ECH_TRY(ech__json_get_int(ctx, doc, "version", &version));
    if (version != VERSION)
        return ech__fail(ctx, ECH_E_FORMAT, "version is %lld; this program reads %d",
                         (long long)version, VERSION);
    ECH_TRY(ech__json_get_object(ctx, doc, "machines", &machines));
    for (ech__json_iter m = ech__json_begin(machines); m.key; ech__json_next(&m)) {
        ECH_TRY(ech__json_get_object(ctx, machines, m.key, &works));
        for (ech__json_iter w = ech__json_begin(works); w.key; ech__json_next(&w)) {
            ECH_TRY(ech__json_get_object(ctx, works, w.key, &kernels));
            merge_work(tuning, m.key, w.key, kernels);
        }
    }
    return ECH_OK;
}

static ech_status merge_file(ech__tuning *tuning)
{
    if (access(tuning->path, F_OK) != 0 && errno == ENOENT)
        return ECH_OK;
    ech_json *doc = NULL;
    ech_status status = ech__json_load(tuning->ctx, tuning->path, MAX_BYTES, &doc);
    if (status == ECH_OK) {
        status = merge(tuning, doc);
        if (status < 0)
            ech__fail_in(tuning->ctx, status, "%s", tuning->path);
    }
    ech__json_destroy(doc);
    if (status < 0)
        return ech__fail_in(tuning->ctx, status,
                            "tuning file (delete it to time the kernels anew)");
    return ECH_OK;
}

ech_status ech__tuning_open(ech_ctx *ctx, const char *path, ech__tuning **out)
{
    *out = NULL;
    ech__tuning *tuning = ech__new(ctx, sizeof *tuning);
    if (!tuning)
        return ech__no_memory(ctx, "the tuning store");
    tuning->ctx = ctx;
    ech__arena_init(&tuning->arena, ctx->alloc);
    *out = tuning;
    if (!path || !*path)
        return ECH_OK;
    tuning->path = ech__arena_printf(&tuning->arena, "%s", path);
    if (!tuning->path) {
        ech__tuning_close(tuning);
        *out = NULL;
        return ech__no_memory(ctx, "the tuning store");
    }
    if (merge_file(tuning) < 0) {
        ech__log(ctx, "starting without kernel timings: %s", ctx->error);
        ctx->error[0] = 0;
        tuning->count = 0;
    }
    return ECH_OK;
}

void ech__tuning_close(ech__tuning *tuning)
{
    if (!tuning)
        return;
    ech__arena_fini(&tuning->arena);
    ech__delete(tuning->ctx, tuning, sizeof *tuning);
}

bool ech__tuning_find(const ech__tuning *tuning, const char *machine, const char *work,
                      const char *kernel, double *seconds)
{
    const entry *e = look_up(tuning, machine, work, kernel);
    if (e)
        *seconds = e->seconds;
    return e != NULL;
}

void ech__tuning_put(ech__tuning *tuning, const char *machine, const char *work, const char *kernel,
                     double seconds)
{
    if (!is_time(seconds) || look_up(tuning, machine, work, kernel))
        return; /* the first time is kept */
    insert(tuning, &(entry){machine, work, kernel, seconds});
    tuning->added++;
}

void ech__tuning_freeze(ech__tuning *tuning)
{
    tuning->frozen = true;
}

bool ech__tuning_frozen(const ech__tuning *tuning)
{
    return tuning->frozen;
}

int ech__tuning_added(const ech__tuning *tuning)
{
    return tuning->added;
}

/* The child object with this key, made when it is not there. Children are built apart and set once
 * each, in the order of the entries, so one pass per level is enough. */
static ech_json *works_of(const ech__tuning *tuning, const char *machine)
{
    ech_json *works = ech__json_object();
    for (size_t i = 0; i < tuning->count; i++) {
        const entry *e = &tuning->entries[i];
        if (strcmp(e->machine, machine) || ech__json_find(works, e->work))
            continue;
        ech_json *kernels = ech__json_object();
        for (size_t k = i; k < tuning->count; k++) {
            const entry *other = &tuning->entries[k];
            if (!strcmp(other->machine, machine) && !strcmp(other->work, e->work))
                ech__json_set_real(&kernels, other->kernel, other->seconds);
        }
        ech__json_set(&works, e->work, kernels);
    }
    return works;
}

static ech_json *to_json(const ech__tuning *tuning)
{
    ech_json *doc = ech__json_object(), *machines = ech__json_object();
    for (size_t i = 0; i < tuning->count; i++) {
        const char *machine = tuning->entries[i].machine;
        if (!ech__json_find(machines, machine))
            ech__json_set(&machines, machine, works_of(tuning, machine));
    }
    ech__json_set_int(&doc, "version", VERSION);
    ech__json_set(&doc, "machines", machines);
    return doc;
}

static ech_status write_file(ech__tuning *tuning)
{
    ech_json *doc = to_json(tuning);
    const ech_status status = ech__json_save(tuning->ctx, tuning->path, doc, ECH_JSON_INDENT);
    ech__json_destroy(doc);
    return status;
}

ech_status ech__tuning_text(const ech__tuning *tuning, char **out)
{
    ech_json *doc = to_json(tuning);
    const ech_status status = ech__json_dump(tuning->ctx, doc, ECH_JSON_LINE, out, NULL);
    ech__json_destroy(doc);
    return status;
}

ech_status ech__tuning_merge_text(ech__tuning *tuning, const char *text)
{
    ech_json *doc = NULL;
    ECH_TRY(ech__json_parse(tuning->ctx, "shared timings", text, strlen(text), &doc));
    const ech_status status = merge(tuning, doc);
    ech__json_destroy(doc);
    return status;
}

ech_status ech__tuning_save(ech__tuning *tuning)
{
    if (!tuning->path || !tuning->added)
        return ECH_OK;
    int lock; /* one writer at a time reads, merges and replaces */
    ECH_TRY(ech__store_lock(tuning->ctx, tuning->path, LOCK_SECONDS, &lock));
    ech_status status = merge_file(tuning);
    if (status == ECH_OK)
        status = write_file(tuning);
    if (status == ECH_OK)
        tuning->added = 0;
    close(lock);
    return status;
}

/* Makes dir if it is not there; its parent must be. */
static bool ensure_dir(const char *dir)
{
    return mkdir(dir, 0700) == 0 || errno == EEXIST;
}

ech_status ech__tuning_default_path(ech_ctx *ctx, char *out, size_t bytes)
{
    const char *given = getenv("ECHELON_TUNING"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char dir[2048];
    int length;
    out[0] = 0;
    if (given && *given) {
        length = snprintf(out, bytes, "%s", given);
    } else if ((cache && *cache) || (home && *home)) {
        snprintf(dir, sizeof dir, cache && *cache ? "%s" : "%s/.cache",
                 cache && *cache ? cache : home);
        const bool parent = ensure_dir(dir);
        const size_t used = strlen(dir);
        snprintf(dir + used, sizeof dir - used, "/echelon");
        if (!parent || !ensure_dir(dir))
            return ECH_OK; /* nowhere to keep it: timed again each run */
        length = snprintf(out, bytes, "%s/tuning.json", dir);
    } else {
        return ECH_OK;
    }
    if (length < 0 || (size_t)length >= bytes)
        return ech__fail(ctx, ECH_E_INVALID, "the path of the tuning file is longer than %zu bytes",
                         bytes);
    return ECH_OK;
}
