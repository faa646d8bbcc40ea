#include "base/system/available.h"
#include "base/format.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number after `name` in a file of lines "name number", or the file's first number if name is
 * empty; -1: none. */
static int64_t read_number(const char *path, const char *name)
{
    char line[256];
    int64_t value = -1;
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    while (value < 0 && fgets(line, sizeof line, f)) {
        const size_t n = strlen(name);
        char *end;
        if (strncmp(line, name, n) != 0)
            continue;
        const long long number = strtoll(line + n, &end, 10);
        if (end != line + n)
            value = number;
    }
    fclose(f);
    return value;
}

/* What is left of a control group's limit; -1: it has none that could be read. What files take up in caches can be
 * had. */
static int64_t group_left(const char *folder, const char *limit_name, const char *usage_name,
                          const char *cache_name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    const int64_t limit = read_number(path, "");
    snprintf(path, sizeof path, "%s/%s", folder, usage_name);
    const int64_t usage = read_number(path, "");
    if (limit < 0 || usage < 0)
        return -1;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const int64_t inactive = read_number(path, cache_name);
    const int64_t left = limit - usage + (inactive > 0 ? inactive : 0);
    return left > 0 ? left : 0;
}

/* The least that is left in this process's control group and those above it. */
static int64_t groups_left(void)
{
    char line[512], folder[640];
    int64_t least = -1;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const bool second = strncmp(line, "0::", 3) == 0;
        char *path = second ? line + 3 : strstr(line, ":memory:");
        if (!path)
            continue;
        path = second ? path : path + strlen(":memory:");
        for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
            *end = '\0';
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", second ? "" : "/memory", path);
            const int64_t left =
                second ? group_left(folder, "memory.max", "memory.current", "inactive_file ")
                       : group_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                    "total_inactive_file ");
            if (left >= 0 && (least < 0 || left < least))
                least = left;
        }
    }
    fclose(f);
    return least;
}

/* What is left of one of this process's limits; INT64_MAX: it has none. used_field is where /proc/self/statm counts
 * it. */
static int64_t limit_left(int limit, int used_field)
{
    struct rlimit most;
    char line[256] = "", *at = line;
    long long pages = 0;
    if (getrlimit(limit, &most) != 0 || most.rlim_cur == RLIM_INFINITY)
        return INT64_MAX;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && !fgets(line, sizeof line, f))
        line[0] = '\0';
    if (f)
        fclose(f);
    for (int i = 0; i <= used_field; i++)
        pages = strtoll(at, &at, 10);
    const int64_t left = (int64_t)most.rlim_cur - (int64_t)pages * sysconf(_SC_PAGESIZE);
    return left > 0 ? left : 0;
}

/* Memory of libraries that is not counted elsewhere, such as code that oneDNN generates, and the
 * stacks of threads. */
static int64_t taken_besides(int threads)
{
    /* The worker of a device, the loader, the live view. */
    enum { LIBRARIES = 64 << 20, OTHER_THREADS = 3 };
    pthread_attr_t attributes;
    size_t stack = 8 << 20;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
    }
    return LIBRARIES + (int64_t)stack * (threads + OTHER_THREADS);
}

/* The smallest remaining amount under the limits of this process, and the shell's name of that
 * limit; INT64_MAX: no limit. */
static int64_t process_left(const char **limit)
{
    const int64_t space = limit_left(RLIMIT_AS, 0), data = limit_left(RLIMIT_DATA, 5);
    *limit = space <= data ? "ulimit -v" : "ulimit -d";
    return space < data ? space : data;
}

int64_t ech__process_available(int threads)
{
    const char *limit;
    const int64_t left = process_left(&limit), besides = taken_besides(threads);
    return left == INT64_MAX ? left : left > besides ? left - besides : 0;
}

bool ech__process_limited(void)
{
    return ech__process_available(1) != INT64_MAX;
}

int64_t ech__machine_available(void)
{
    const int64_t kilobytes = read_number("/proc/meminfo", "MemAvailable:");
    const int64_t machine = kilobytes < 0 ? INT64_MAX : kilobytes * 1024;
    const int64_t group = groups_left();
    return group >= 0 && group < machine ? group : machine;
}

ech_status ech__memory_check(ech_ctx *ctx, const char *what, int64_t bytes, int sharers,
                             int threads)
{
    enum { SMALL = 16 << 20 };
    const char *limit;
    const int64_t left = process_left(&limit);
    if (bytes > ech__process_available(threads))
        return ech__fail(ctx, ECH_E_NOMEM,
                         "%s needs %lld bytes (%s) besides %s for libraries and threads, and %s "
                         "leaves %lld bytes (%s)",
                         what, (long long)bytes, ech__format_bytes(bytes).s,
                         ech__format_bytes(taken_besides(threads)).s, limit, (long long)left,
                         ech__format_bytes(left).s);
    /* Asking the system takes longer than touching so much. */
    if (bytes < SMALL)
        return ECH_OK;
    const int64_t machine = ech__machine_available();
    if (bytes <= machine / sharers)
        return ECH_OK;
    char whose[48] = "";
    if (sharers > 1)
        snprintf(whose, sizeof whose, " on each of %d ranks", sharers);
    return ech__fail(
        ctx, ECH_E_NOMEM,
        "%s needs %lld bytes (%s)%s, and %lld bytes (%s) are available on this machine", what,
        (long long)bytes, ech__format_bytes(bytes).s, whose, (long long)machine,
        ech__format_bytes(machine).s);
}

/* ---- threads ---- */

static void *wait_for(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

ech_status ech__threads_check(ech_ctx *ctx, const char *what, int count)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[ECH__THREADS_MOST];
    int started = 0, error = 0;
    assert(count <= ECH__THREADS_MOST);
    pthread_mutex_lock(&gate); /* so that none is over before the last one has begun */
    while (started < count && !error) {
        error = pthread_create(&threads[started], NULL, wait_for, &gate);
        started += !error;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return error ? ech__fail(ctx, ECH_E_LIMIT,
                             "%s needs %d thread%s, of which %d can be started: %s; see ulimit -u",
                             what, count, count == 1 ? "" : "s", started, strerror(error))
                 : ECH_OK;
}
