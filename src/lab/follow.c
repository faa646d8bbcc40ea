#include "lab/follow.h"
#include "base/file/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ech__follow {
    ech_ctx *ctx;
    char dir[ECH_DIR_MAX_PATH];
    int dir_fd; /* the directory that had this name: it is renamed when its run is over; -1: none yet */
    dev_t device;
    ino_t inode;
    int64_t
        offset; /* of what has not been read yet: the beginning of a line, or inside of one that is too long */
    bool is_passing;       /* over a line that is too long */
    bool has_plan;         /* run.json has been read */
    int64_t steps, warmup; /* as it says; -1: it does not */
    ech__curve curve;
    char buffer[ECH__FOLLOW_LINE];
};

ech__follow *ech__follow_create(ech_ctx *ctx)
{
    ech__follow *f = ech__new(ctx, sizeof *f);
    if (f) {
        f->ctx = ctx;
        f->dir_fd = -1;
    }
    return f;
}

void ech__follow_destroy(ech__follow *f)
{
    if (!f)
        return;
    if (f->dir_fd >= 0)
        close(f->dir_fd);
    ech__delete(f->ctx, f, sizeof *f);
}

const ech__curve *ech__follow_curve(const ech__follow *f)
{
    return &f->curve;
}

static void begin(ech__follow *f)
{
    f->offset = 0;
    f->is_passing = f->has_plan = false;
    f->steps = f->warmup = -1;
    ech__curve_init(&f->curve);
}

/* ---- the directory ---- */

static bool is_same(int fd, int other)
{
    struct stat a, b;
    return fd >= 0 && fstat(fd, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Takes the directory that has the name now. Where there is none, the one that had it before stays. */
static void find_directory(ech__follow *f, const char *dir)
{
    if (strcmp(dir, f->dir) != 0) {
        strcpy(f->dir, dir);
        if (f->dir_fd >= 0)
            close(f->dir_fd);
        f->dir_fd = -1;
        begin(f);
    }
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || is_same(f->dir_fd, fd)) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (f->dir_fd >= 0)
        close(f->dir_fd);
    f->dir_fd = fd;
}

/* ---- run.json ---- */

static int64_t count_of(const ech_json *config, const char *key)
{
    int64_t value;
    return ech__json_int(ech__json_find(config, key), &value) && value >= 0 ? value : -1;
}

/* A run writes it before its first step, in place of what an earlier run left there: with a step at
 * hand it is its own. */
static void read_plan(ech__follow *f)
{
    char path[64];
    ech_json *run;
    if (f->has_plan || !f->curve.total)
        return;
    f->has_plan = true;
    snprintf(path, sizeof path, "/proc/self/fd/%d/run.json", f->dir_fd);
    if (ech__json_load(f->ctx, path, 4 << 20, &run) < 0)
        return;
    const ech_json *config = ech__json_find(run, "config");
    f->steps = count_of(config, "steps");
    f->warmup = count_of(config, "warmup");
    if (f->steps == 0) /* the run counts in epochs */
        f->steps = -1;
    ech__json_destroy(run);
}

/* ---- steps.jsonl ---- */

static double real_of(const ech_json *line, const char *key)
{
    double value;
    return ech__json_real(ech__json_find(line, key), &value) ? value : NAN;
}

static void read_line(ech__follow *f, const char *text, size_t bytes)
{
    ech_json *line;
    ech__curve_step s;
    if (ech__json_parse(f->ctx, "a line", text, bytes, &line) < 0)
        return;
    s.loss = real_of(line, "loss");
    s.time_s = real_of(line, "time_s");
    s.lr = real_of(line, "lr");
    if (ech__json_int(ech__json_find(line, "step"), &s.step))
        ech__curve_add(&f->curve, &s);
    ech__json_destroy(line);
}

/* The lines of the buffer that have an end. Returns the bytes of them. */
static size_t read_lines(ech__follow *f, size_t bytes)
{
    size_t done = 0;
    for (const char *end; (end = memchr(f->buffer + done, '\n', bytes - done));) {
        const size_t length = (size_t)(end - (f->buffer + done));
        if (!f->is_passing)
            read_line(f, f->buffer + done, length);
        f->is_passing = false;
        done += length + 1;
    }
    return done;
}

/* Lines from the offset on, of `most` bytes. */
static void read_new(ech__follow *f, int fd, int64_t most)
{
    while (most > 0) {
        const size_t want = most < ECH__FOLLOW_LINE ? (size_t)most : ECH__FOLLOW_LINE;
        const ssize_t bytes = pread(fd, f->buffer, want, (off_t)f->offset);
        if (bytes <= 0)
            return;
        size_t done = read_lines(f, (size_t)bytes);
        if (!done && bytes == ECH__FOLLOW_LINE) { /* no line has so many bytes */
            f->is_passing = true;
            done = (size_t)bytes;
        }
        if (!done)
            return; /* the last line is still being written */
        f->offset += (int64_t)done;
        most -= (int64_t)done;
    }
}

/* Where there is too much to read, pieces of it that lie equally far apart, the last one at the end. */
static void read_pieces(ech__follow *f, int fd, int64_t end)
{
    enum { PIECES = 32, PIECE = ECH__FOLLOW_LOOK / PIECES };
    const int64_t begin = f->offset, apart = (end - PIECE - begin) / (PIECES - 1);
    for (int k = 0; k < PIECES; k++) {
        f->offset = k == PIECES - 1 ? end - PIECE : begin + k * apart;
        f->is_passing |= k > 0; /* it begins within a line */
        read_new(f, fd, PIECE);
    }
}

/* A file that is another one or shorter than before belongs to another run. */
static void look_at(ech__follow *f, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    if (st.st_dev != f->device || st.st_ino != f->inode || st.st_size < f->offset)
        begin(f);
    f->device = st.st_dev;
    f->inode = st.st_ino;
    if (st.st_size - f->offset > ECH__FOLLOW_LOOK)
        read_pieces(f, fd, st.st_size);
    else
        read_new(f, fd, st.st_size - f->offset);
}

void ech__follow_look(ech__follow *f, const char *dir)
{
    if (strlen(dir) >= sizeof f->dir)
        return;
    find_directory(f, dir);
    if (f->dir_fd < 0)
        return;
    const int fd = openat(f->dir_fd, "steps.jsonl", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    look_at(f, fd);
    close(fd);
    read_plan(f);
}

/* ---- as JSON ---- */

static void append_point(ech_json **points, const ech__curve_bin *bin)
{
    ech_json *point = ech__json_array();
    ech__json_append_int(&point, bin->first);
    ech__json_append_int(&point, bin->last);
    ech__json_append_real(&point, ech__curve_loss(bin));
    ech__json_append_real(&point, ech__curve_time(bin));
    ech__json_append_real(&point, bin->time_low);
    ech__json_append_real(&point, bin->time_high);
    ech__json_append_real(&point, bin->lr);
    ech__json_append(points, point);
}

ech_json *ech__follow_json(const ech__follow *f)
{
    ech_json *json = ech__json_object(), *points = ech__json_array();
    ech__json_set_int(&json, "done", f->curve.count ? f->curve.bins[f->curve.count - 1].last : 0);
    ech__json_set_real(&json, "steps", f->steps < 0 ? NAN : (double)f->steps);
    ech__json_set_real(&json, "warmup", f->warmup < 0 ? NAN : (double)f->warmup);
    for (size_t i = 0; i < f->curve.count; i++)
        append_point(&points, &f->curve.bins[i]);
    ech__json_set(&json, "points", points);
    return json;
}
