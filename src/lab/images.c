#include "lab/images.h"
#include "base/file/dir.h"
#include "data/cifar.h"
#include "lab/internal.h"
#include "lab/runner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const double FETCH_LIMIT = 120; /* seconds */

static bool complete(const char *dir, const char *below)
{
    char path[ECH_DIR_MAX_PATH];
    for (int i = 0; i < ECH__CIFAR_FILES; i++) {
        struct stat info;
        const int length =
            snprintf(path, sizeof path, "%s%s/%s", dir, below, ech__cifar_file_name(i));
        if (length >= (int)sizeof path || stat(path, &info) != 0 || info.st_size != ECH__CIFAR_FILE)
            return false;
    }
    return true;
}

bool ech__images_are_in(const char *dir)
{
    return complete(dir, "") || complete(dir, "/cifar-10-batches-bin");
}

static void tick(void *user, pid_t pid, double seconds)
{
    ech__lab *lab = user;
    (void)pid;
    (void)seconds;
    ech__lab_show(lab, ECH__LAB_EVENT_TICK, NULL, NULL, NULL);
}

/* echelon data cifar10 --dir DIR; its words go beside the set. */
static ech_status fetch(ech__lab *lab, const char *dir, char *reason, size_t bytes)
{
    char *out = ech__arena_printf(&lab->arena, "%s/output.txt", dir);
    char *err = ech__arena_printf(&lab->arena, "%s/errors.txt", dir);
    char *own = ech__lab_keep(lab, dir);
    if (!out || !err || !own)
        return ech__no_memory(lab->ctx, "fetching CIFAR-10");
    ECH_TRY(ech__dir_make(lab->ctx, "directory of CIFAR-10", dir));
    char *const argv[] = {"echelon", "data", "cifar10", "--dir", own, NULL};
    const ech__runner_job job = {.program = lab->options.program,
                                 .argv = argv,
                                 .env = lab->env,
                                 .out = out,
                                 .err = err,
                                 .limit_s = FETCH_LIMIT,
                                 .stop_fd = lab->stop_fd,
                                 .tick = tick,
                                 .user = lab};
    ech__runner_end end;
    ECH_TRY(ech__runner_run(lab->ctx, &job, &end));
    *reason = '\0';
    if (end.how != ECH__RUNNER_EXITED || end.code != 0)
        ech__runner_reason(&end, err, reason, bytes);
    return ECH_OK;
}

static ech_status decide(ech__lab *lab, const char *dir, const char *reason)
{
    const char *place = ech__lab_keep(lab, dir), *text = "CIFAR-10";
    if (reason)
        text = ech__arena_printf(&lab->arena, "synthetic, because CIFAR-10 could not be had: %s",
                                 reason);
    if (!text || (dir && !place))
        return ech__no_memory(lab->ctx, "the place of CIFAR-10");
    pthread_mutex_lock(&lab->mutex);
    lab->images.kind = dir ? ECH__LAB_IMAGES_REAL : ECH__LAB_IMAGES_SYNTHETIC;
    lab->images.dir = place;
    lab->images.text = text;
    pthread_mutex_unlock(&lab->mutex);
    return ECH_OK;
}

ech_status ech__lab_find_images(ech__lab *lab)
{
    const char *given = lab->options.data_dir, *set = getenv("ECH_CIFAR");
    if (lab->images.kind != ECH__LAB_IMAGES_UNASKED)
        return ECH_OK;
    if (given) /* looked at when the lab was made */
        return decide(lab, given, NULL);
    if (set && *set && ech__images_are_in(set))
        return decide(lab, set, NULL);
    const char *own = ech__arena_printf(&lab->arena, "%s/cifar10", lab->options.out);
    if (!own)
        return ech__no_memory(lab->ctx, "the place of CIFAR-10");
    if (ech__images_are_in(own))
        return decide(lab, own, NULL);
    char reason[240] = "";
    ech__lab_show(lab, ECH__LAB_EVENT_IMAGES, NULL, NULL, NULL);
    ECH_TRY(fetch(lab, own, reason, sizeof reason));
    if (*reason && !ech__lab_is_stopped(lab))
        ech__lab_show(lab, ECH__LAB_EVENT_IMAGES, NULL, NULL, reason);
    return *reason ? decide(lab, NULL, reason) : decide(lab, own, NULL);
}
