#include "compare/tree.h"
#include "base/system/clock.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const ech__tree *tree, pid_t pid)
{
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->pids[i] == pid)
            return true;
    }
    return false;
}

/* "PID (NAME) STATE PPID ...": a name may hold spaces and brackets. 0: it is gone. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *end = strrchr(text, ')');
    return end && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : 0; /* after ") S " */
}

/* Adds and signals children of what is in the tree; returns how many there were. */
static size_t add_children(ech__tree *tree, int number)
{
    const size_t before = tree->count;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (const struct dirent *e; (e = readdir(proc));) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid <= 0 || tree->count == ECH__TREE_MOST || has(tree, pid) ||
            !has(tree, parent_of(e->d_name)))
            continue;
        tree->pids[tree->count++] = pid;
        kill(pid, number);
    }
    closedir(proc);
    return tree->count - before;
}

/* Forgets those that are gone: their numbers may be others' by now. So only a child of the tree is kept. */
static void drop_gone(ech__tree *tree)
{
    size_t kept = 0;
    for (size_t i = 0; i < tree->count; i++) {
        char pid[24];
        snprintf(pid, sizeof pid, "%d", (int)tree->pids[i]);
        if (tree->pids[i] == tree->root || has(tree, parent_of(pid)))
            tree->pids[kept++] = tree->pids[i];
    }
    tree->count = kept;
}

static void signal_known(const ech__tree *tree, int number)
{
    for (size_t i = 0; i < tree->count; i++)
        kill(tree->pids[i], number);
}

static void signal_all(ech__tree *tree, int number)
{
    if (!tree->count)
        tree->pids[tree->count++] = tree->root;
    drop_gone(tree);
    signal_known(tree, number);
    while (add_children(tree, number))
        ;
}

void ech__tree_stop(ech__tree *tree)
{
    signal_all(tree, SIGSTOP);
}

void ech__tree_continue(ech__tree *tree)
{
    signal_known(tree, SIGCONT);
}

void ech__tree_kill(ech__tree *tree)
{
    signal_all(tree, SIGSTOP); /* so that none starts another while it is killed */
    signal_known(tree, SIGKILL);
}

double ech__tree_cpu_s(const ech__tree *tree)
{
    double sum = 0;
    for (size_t i = 0; i < tree->count; i++) {
        clockid_t clock;
        if (clock_getcpuclockid(tree->pids[i], &clock) == 0)
            sum += ech__seconds(ech__clock_read(clock));
    }
    return sum;
}

int64_t ech__tree_memory(const ech__tree *tree)
{
    int64_t sum = 0;
    for (size_t i = 0; i < tree->count; i++) {
        char path[64], line[256];
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)tree->pids[i]);
        FILE *file = fopen(path, "re");
        while (file && fgets(line, sizeof line, file)) {
            if (!strncmp(line, "Pss:", 4))
                sum += 1024 * strtoll(line + 4, NULL, 10);
        }
        if (file)
            fclose(file);
    }
    return sum;
}
