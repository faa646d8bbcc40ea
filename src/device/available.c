#include "device/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind `name` in a file of lines "name number", or the file's first number where name is empty; -1: none. */
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

int64_t ech__machine_available(void)
{
    const int64_t kilobytes = read_number("/proc/meminfo", "MemAvailable:");
    const int64_t machine = kilobytes < 0 ? INT64_MAX : kilobytes * 1024;
    const int64_t group = groups_left();
    return group >= 0 && group < machine ? group : machine;
}
