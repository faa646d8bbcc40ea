/* A process and all that it has started, which stop and go on together.
 *
 *     ech__tree tree = {.root = pid};
 *     ech__tree_stop(&tree);                   no process in it runs any more
 *     ech__tree_continue(&tree);
 *     double cpu = ech__tree_cpu_s(&tree);     of those that live
 *     ech__tree_kill(&tree);                   stopped or not; the caller reaps
 *
 * A child is looked for under its parent only after the parent was stopped, so none can escape by forking. One
 * whose parent has died belongs to the caller where that is a subreaper (prctl), and is found by its environment
 * (comm/launch/leftovers.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ECH__TREE_MOST = 1024 };

typedef struct ech__tree {
    pid_t root;
    size_t count; /* found so far, with the root */
    pid_t pids[ECH__TREE_MOST];
} ech__tree;

void ech__tree_stop(ech__tree *tree);
void ech__tree_continue(ech__tree *tree);
void ech__tree_kill(ech__tree *tree);
double ech__tree_cpu_s(const ech__tree *tree);
/* Bytes that are resident, those that processes share counted once. */
int64_t ech__tree_memory(const ech__tree *tree);
