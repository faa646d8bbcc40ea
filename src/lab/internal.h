/* What the files of the lab share: a lab, its studies, and the runs that they asked for.
 *
 * The thread that calls ech__lab_execute owns everything here. Others see it through
 * ech__lab_snapshot only, so the owner holds the mutex where it changes what a snapshot reads
 * (marked below), and reads without it. Strings are in the arena and stay until the lab is
 * destroyed.
 */
#pragma once

#include "base/arena.h"
#include "base/file/dir.h"
#include "device/machine.h"
#include "lab/expr.h"
#include "lab/images.h"
#include "lab/lab.h"
#include "lab/noise.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum {
    ECH__LAB_MAX_RUNS = 1000, /* of a study, as a report takes them */
    ECH__LAB_ROUNDS = 4,      /* calls of a card's runs */
};

#define ECH__LAB_TITLE "Echelon lab"

typedef enum ech__lab_stage { ECH__LAB_WAITING, ECH__LAB_RUNNING, ECH__LAB_OVER } ech__lab_stage;

/* A run that a study asked for. */
typedef struct ech__lab_task {
    const char *id;
    const char *words;    /* as the study wrote them; NULL: to be skipped */
    ech__lab_stage stage; /* under the mutex, and all that follows */
    ech__lab_state state; /* when it is over */
    const char *reason;   /* of one that failed or was skipped */
    const char *command;  /* that repeats it; until it has begun, its words */
    const char *name;     /* of its directory below runs; NULL: it has none */
    double seconds;       /* that it took, now or when it was first run */
} ech__lab_task;

/* A size as the command line wants it. */
typedef struct ech__lab_set {
    const ech__study_card *card; /* NULL: of every study */
    const char *name;
    int64_t value;
    bool whole; /* what was given is a whole number at all */
} ech__lab_set;

typedef struct ech__lab_study {
    ech__lab *lab;
    const ech__study_card *card; /* NULL: the runs that measure noise */
    ech__lab_task *tasks;        /* under the mutex, and all that follows */
    size_t count, capacity;
    enum { ECH__STUDY_WAITING, ECH__STUDY_RUNNING, ECH__STUDY_TOLD, ECH__STUDY_BROKEN } stage;
    int64_t began_ns;
    double seconds; /* that its runs took, those reused as they took once */
} ech__lab_study;

/* What came of words in this lab, so that no study runs them again. */
typedef struct ech__lab_known_run {
    const char *key;
    ech__lab_state state;
    const char *reason;
    double seconds;
} ech__lab_known_run;

struct ech__lab {
    ech_ctx *ctx;
    ech__arena arena;
    ech__lab_options options; /* with copies of the strings */
    ech__lab_set sets[ECH__LAB_MAX_SETS];
    char **env; /* of every run */
    const ech__study_card *cards[ECH__LAB_MAX_STUDIES];
    size_t card_count; /* all there are, in the order of the report */
    ech__lab_study studies[ECH__LAB_MAX_STUDIES];
    size_t study_count;   /* to be run, in that order */
    ech__lab_study noise; /* the runs of equal words */
    ech__lab_noise figures;
    ech__lab_images images;
    ech__machine machine;
    int64_t cores;
    char date[32];
    ech__lab_known_run *known;
    size_t known_count, known_capacity;
    size_t failures;

    atomic_bool stopped;
    ech__claim claim; /* on the directory of the lab */
    int stop_fd;      /* an eventfd: readable when the lab is to stop */

    pthread_mutex_t mutex;
    int64_t began_ns; /* under the mutex, and all that follows; 0: not yet */
    int64_t ended_ns; /* 0: not yet */
    struct {
        const ech__lab_study *study; /* NULL: nothing runs */
        const ech__lab_task *task;
        const char *dir;
        pid_t pid;
        int64_t began_ns;
    } current;
};

/* ---- set-up (setup.c) ---- */

/* Studies, sizes and devices as the options want them; copies their strings. */
ech_status ech__lab_setup(ech__lab *lab, const ech__lab_options *options);
/* A size of a study: by the command line, else by its profile. False where the card has no such size. */
bool ech__lab_param_value(const ech__lab *lab, const ech__study_card *card, const char *name,
                          int64_t *out);
/* "echelon lab run ID --quick ...", which repeats one study. */
const char *ech__lab_study_command(ech__lab *lab, const ech__study_card *card);

/* ---- asking (ask.c) ---- */

/* Calls the card's runs once more. *added says how many runs are new. */
ech_status ech__lab_ask(ech__lab_study *study, size_t *added);
/* A new task of the study; NULL when memory is out. */
ech__lab_task *ech__lab_add_task(ech__lab_study *study, const char *id, const char *words);
/* The tasks as results; those that are not over are skipped ones. In the arena. */
ech__lab_result *ech__lab_results(ech__lab_study *study);

/* ---- running (perform.c) ---- */

/* Runs a task, or finds that it need not or cannot be run. An error only where the lab cannot go on or the words are
 * wrong. */
ech_status ech__lab_perform(ech__lab_study *study, ech__lab_task *task);

/* ---- a study (lab.c) ---- */

/* Runs what it asks for, tells it, and writes its record and lab.json. */
ech_status ech__lab_do_study(ech__lab_study *study);

/* ---- telling (record.c) ---- */

/* lab.json: with the studies that are told by now, and those that it named before. */
ech_status ech__lab_save(ech__lab *lab);
/* [{"name", "value"}]; the caller owns it. */
ech_json *ech__lab_machine_json(const ech__lab *lab);

/* ---- events and time (lab.c) ---- */

void ech__lab_show(ech__lab *lab, int kind, const ech__lab_study *study, const ech__lab_task *task,
                   const char *reason);
/* Seconds since execute began, and those that are left; with the mutex held or by the owner. */
double ech__lab_elapsed(const ech__lab *lab);
double ech__lab_left(const ech__lab *lab);
/* "waiting", "running", "done", "reused", "failed", "skipped" */
const char *ech__lab_task_state(const ech__lab_task *task);
bool ech__lab_is_stopped(const ech__lab *lab);
/* A copy in the arena; NULL of NULL, or when memory is out. */
char *ech__lab_keep(ech__lab *lab, const char *text);
