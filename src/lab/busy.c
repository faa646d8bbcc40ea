#include "lab/busy.h"
#include "base/system/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A device's threads are called "device N". */
static const char device_name[] = "device ";

/* What fits of a small file of /proc, with a NUL behind it; false where there is nothing. */
static bool read_small(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t bytes = read(fd, text, size - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

/* ---- processes and threads ---- */

typedef struct thread {
    char name[16];
    int64_t ticks; /* user and system */
} thread;

/* A number behind so many words, which have one space before each; 0 where there are fewer. */
static int64_t word_at(const char *text, int words)
{
    for (; text && words > 0; words--)
        text = strchr(text + 1, ' ');
    return text ? strtoll(text, NULL, 10) : 0;
}

/* "PID (NAME) STATE ..." with the times as the 14th and 15th word. A name may hold spaces and brackets. */
static bool read_stat(const char *path, thread *out)
{
    char text[1024];
    if (!read_small(path, text, sizeof text))
        return false;
    const char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    if (!open_at || !close_at || close_at < open_at)
        return false;
    const size_t length = (size_t)(close_at - open_at - 1);
    snprintf(out->name, sizeof out->name, "%.*s", (int)(length < 15 ? length : 15), open_at + 1);
    out->ticks = word_at(close_at, 12) + word_at(close_at, 13);
    return true;
}

/* The numbers that name the entries of /proc/PID/task, in their order. */
static size_t list_threads(int64_t pid, int64_t *out, size_t most)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/task", pid);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (const struct dirent *e; count < most && (e = readdir(dir));) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            out[count++] = strtoll(e->d_name, NULL, 10);
    }
    closedir(dir);
    return count;
}

static size_t list_children(int64_t pid, int64_t *out, size_t most)
{
    int64_t threads[ECH__BUSY_PROCESSES];
    const size_t nthreads = list_threads(pid, threads, ECH__BUSY_PROCESSES);
    size_t count = 0;
    for (size_t i = 0; i < nthreads; i++) {
        char path[96], text[1024], *end;
        snprintf(path, sizeof path, "/proc/%" PRId64 "/task/%" PRId64 "/children", pid, threads[i]);
        if (!read_small(path, text, sizeof text))
            continue;
        for (const char *at = text; count < most; at = end) {
            const int64_t child = strtoll(at, &end, 10);
            if (end == at)
                break;
            out[count++] = child;
        }
    }
    return count;
}

/* ---- lanes ---- */

static ech__busy_lane *lane_of(ech__busy *b, int64_t pid, const char *name)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->lanes[i].pid == pid && strcmp(b->lanes[i].name, name) == 0)
            return &b->lanes[i];
    }
    if (b->count == ECH__BUSY_LANES)
        return NULL;
    ech__busy_lane *lane = &b->lanes[b->count++];
    *lane = (ech__busy_lane){.pid = pid, .share = NAN};
    snprintf(lane->name, sizeof lane->name, "%s", name);
    return lane;
}

static void add_devices(ech__busy *b, int64_t pid)
{
    int64_t threads[256];
    const size_t count = list_threads(pid, threads, sizeof threads / sizeof *threads);
    for (size_t i = 0; i < count; i++) {
        char path[96];
        thread t;
        snprintf(path, sizeof path, "/proc/%" PRId64 "/task/%" PRId64 "/stat", pid, threads[i]);
        if (!read_stat(path, &t) || strncmp(t.name, device_name, sizeof device_name - 1) != 0)
            continue;
        ech__busy_lane *lane = lane_of(b, pid, t.name);
        if (!lane)
            return;
        lane->ticks += t.ticks;
        lane->threads++;
    }
}

static void add_process(ech__busy *b, int64_t pid)
{
    const size_t before = b->count;
    char path[64];
    thread t;
    add_devices(b, pid);
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    if (b->count > before || !read_stat(path, &t))
        return;
    ech__busy_lane *lane = lane_of(b, pid, "");
    if (lane)
        *lane = (ech__busy_lane){.pid = pid, .ticks = t.ticks, .threads = 1, .share = NAN};
}

/* Beside ranks with devices the launcher has a process that watches over them, which is none of the devices. */
static void keep_devices(ech__busy *b)
{
    size_t devices = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->lanes[i].name[0])
            b->lanes[devices++] = b->lanes[i];
    }
    b->count = devices ? devices : b->count;
}

static void find_share(ech__busy_lane *lane, const ech__busy *before, double seconds)
{
    const double hertz = (double)sysconf(_SC_CLK_TCK);
    for (size_t i = 0; i < before->count; i++) {
        const ech__busy_lane *old = &before->lanes[i];
        if (old->pid != lane->pid || strcmp(old->name, lane->name) != 0)
            continue;
        const double busy = (double)(lane->ticks - old->ticks) / hertz;
        lane->share = fmin(fmax(busy / (seconds * lane->threads), 0), 1);
    }
}

void ech__busy_look(ech__busy *b, int64_t pid)
{
    const int64_t now = ech__clock_wall();
    const double seconds = ech__seconds(now - b->seen_ns);
    if (pid <= 0) {
        *b = (ech__busy){0};
        return;
    }
    if (pid == b->pid && seconds < ECH__BUSY_LEAST_S)
        return;
    ech__busy next = {.pid = pid, .seen_ns = now};
    int64_t processes[ECH__BUSY_PROCESSES];
    size_t count = list_children(pid, processes, ECH__BUSY_PROCESSES);
    if (!count)
        processes[count++] = pid;
    for (size_t i = 0; i < count; i++)
        add_process(&next, processes[i]);
    keep_devices(&next);
    for (size_t i = 0; i < next.count; i++)
        find_share(&next.lanes[i], b, seconds);
    *b = next;
}

ech_json *ech__busy_json(const ech__busy *b)
{
    ech_json *array = ech__json_array();
    int devices = 0, processes = 0;
    for (size_t i = 0; i < b->count; i++) {
        const bool is_device = b->lanes[i].name[0] != '\0';
        ech_json *lane = ech__json_object();
        char name[32];
        snprintf(name, sizeof name, "%s %d", is_device ? "device" : "process",
                 is_device ? devices++ : processes++);
        ech__json_set_string(&lane, "name", name);
        ech__json_set_real(&lane, "busy", b->lanes[i].share);
        ech__json_append(&array, lane);
    }
    return array;
}
