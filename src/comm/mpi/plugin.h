/* What the program asks of MPI, as a table that a shared object of its own hands out. Messages
 * between two ranks and the layout of the nodes are all: collectives are built of messages
 * (wire.h), so that every wait can be bounded and can name the rank that it waits for.
 *
 *     ech__mpi_plugin_fn plugin = dlsym(handle, ECH__MPI_PLUGIN_SYMBOL);
 *     const ech__mpi_table *mpi = plugin(ECH__MPI_PLUGIN_VERSION);      NULL: built for another version
 *     if (mpi->init(&rank, &size) != 0) ...
 *
 * Functions return 0 or a code for error_text. They may be called from different threads, but never
 * from two at once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ECH__MPI_PLUGIN_VERSION = 1 };

#define ECH__MPI_PLUGIN_FILE "echelon_mpi.so"
#define ECH__MPI_PLUGIN_SYMBOL "ech__mpi_plugin"

/* Large enough for the handle of any MPI; active tells a started message from none. */
typedef struct ech__mpi_request {
    uintptr_t word;
    bool active;
} ech__mpi_request;

typedef struct ech__mpi_table {
    /* Starts MPI, unless the program has, and takes a communicator for this table alone. Waits for
     * all ranks. Whoever starts MPI must end it, and only all ranks together can: that is done when
     * the process exits with 0. A process that exits with another code waits for nobody; mpirun
     * sees it and stops the others. */
    int (*init)(int *rank, int *size);
    /* first[r]: the lowest rank on the node of rank r. Waits for all ranks. */
    int (*nodes)(int *first);
    /* Messages of bytes <= INT_MAX; the memory must stay as it is until test says done. */
    int (*isend)(const void *data, int64_t bytes, int peer, int tag, ech__mpi_request *request);
    int (*irecv)(void *data, int64_t bytes, int peer, int tag, ech__mpi_request *request);
    /* A request that is not active is done. */
    int (*test)(ech__mpi_request *request, bool *done);
    /* Moves on what MPI has accepted but not yet sent. */
    int (*progress)(void);
    /* Messages in progress are given up: MPI must not be ended any more, since it would wait for
     * them. */
    void (*abandon)(void);
    void (*error_text)(int code, char *text, size_t bytes);
    const char *(*library)(void); /* name and version of the MPI behind it */
    int max_tag;                  /* tags 0 to max_tag are good on every MPI */
} ech__mpi_table;

typedef const ech__mpi_table *(*ech__mpi_plugin_fn)(int version);
