/* Studies run one after the other, each run in a process of its own, and what they leave is told as records.
 *
 *     ech__lab_options options = ech__lab_options_default();
 *     options.out = "lab";
 *     ech__lab *lab;
 *     ECH_TRY(ech__lab_create(ctx, &options, &lab));
 *     ech_status s = ech__lab_execute(lab);            lab.json, studies/, runs/ below options.out
 *     ech__lab_destroy(lab);
 *
 * Another thread may take snapshots meanwhile (ech__lab_snapshot), and the live view does.
 */
#pragma once

#include "base/file/json.h"
#include "lab/study.h"

enum { ECH__LAB_MAX_DEVICES = 16, ECH__LAB_MAX_SETS = 64, ECH__LAB_MAX_STUDIES = 100 };

typedef struct ech__lab ech__lab;

/* What happens, for whoever shows it. */
typedef struct ech__lab_event {
    enum {
        ECH__LAB_EVENT_NOISE, /* the machine's noise is measured */
        ECH__LAB_EVENT_IMAGES, /* CIFAR-10 is fetched; with a reason: it could not be, and pictures are synthetic */
        ECH__LAB_EVENT_STUDY,   /* a study begins */
        ECH__LAB_EVENT_RUN,     /* a run begins */
        ECH__LAB_EVENT_RUN_END, /* it is over, or was reused or skipped; reason says why it failed */
        ECH__LAB_EVENT_TICK,    /* a second has passed in a run */
        ECH__LAB_EVENT_TOLD, /* records of a study are written; with a reason: they could not be */
    } kind;
    const ech__study_card *card; /* NULL for the noise */
    size_t study, studies;       /* from 0 */
    const char *run;             /* its id, or NULL */
    size_t run_number, run_count;
    const char *state, *reason; /* "running", "done", "reused", "failed", "skipped" */
    double run_s;               /* that a run took; of a reused one, when it was first run */
    double elapsed_s, left_s;   /* of all studies; left_s < 0: not known yet */
} ech__lab_event;

typedef struct ech__lab_options {
    const char *out;            /* made where it is not there */
    const char *program;        /* that runs are started with; NULL: this one */
    const char *command;        /* that repeats all of it, for the report */
    const char *const *studies; /* ids; NULL: all */
    size_t study_count;
    bool quick, force;
    int64_t devices[ECH__LAB_MAX_DEVICES]; /* ascending; the first is 1 */
    size_t device_count;
    const char *sets[ECH__LAB_MAX_SETS]; /* "dim=512" or "strong-scaling.dim=512" */
    size_t set_count;
    int64_t seed;
    const char *data_dir; /* CIFAR-10; NULL: looked for and fetched below out */
    double run_limit_s;   /* a run that takes longer is stopped, and failed; 0: by profile */
    /* Cards beyond those of the program; for tests. */
    const ech__study_card *const *cards; /* NULL: ech__lab_cards */
    size_t card_count;
    void (*show)(const ech__lab_event *event, void *user); /* may be NULL */
    void *user;
} ech__lab_options;

ech__lab_options ech__lab_options_default(void);

/* Checks everything that can be checked before the first run: studies, sizes, directories. Keeps
 * copies of the strings. */
ech_status ech__lab_create(ech_ctx *ctx, const ech__lab_options *options, ech__lab **out);
/* Runs and tells, in the thread that lives as long as the program. Failed runs are in the records.
 * Fails where the lab itself cannot go on, and at its end where a study could not be told: the
 * sentence is that of the first. */
ech_status ech__lab_execute(ech__lab *lab);
/* From a signal handler or another thread: the running run is stopped, nothing more is started, and execute returns. */
void ech__lab_stop(ech__lab *lab);
/* Studies that are going to be run. */
size_t ech__lab_studies(const ech__lab *lab);
/* Runs that failed, after execute. */
size_t ech__lab_failures(const ech__lab *lab);
void ech__lab_destroy(ech__lab *lab);

/* The card of a study, or a sentence that names the nearest. */
ech_status ech__lab_find_card(ech_ctx *ctx, const ech__study_card *const *cards, size_t count,
                              const char *id, const ech__study_card **out);

/* What is going on, as one JSON object; from any thread. The caller destroys it:
 * {"title", "profile", "elapsed_s", "left_s", "finished", "machine": [{"name","value"}],
 *  "studies": [{"id","group","title","state": "waiting|running|told|failed", "runs": [{"id","state","reason","dir","seconds"}]}],
 *  "current": null | {"study","run","command","dir","pid","seconds"}} */
ech_status ech__lab_snapshot(ech__lab *lab, ech_ctx *ctx, ech_json **out);
