/* The parts that a build can do without; the build writes the list (CMakeLists.txt, from tools/packages). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct ech__build_part {
    const char *name;    /* "Open MPI" */
    const char *package; /* of Debian: "libopenmpi-dev" */
    const char *cost;    /* of doing without: "ranks run on one node only; mpirun is refused" */
    bool is_here;
} ech__build_part;

extern const ech__build_part ech__build_parts[];
extern const size_t ech__build_part_count;
