/* The one file that is compiled against MPI. It becomes a shared object that the program loads when
 * it is a rank of MPI. */
#include "comm/mpi/plugin.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "a request fits into a word");

/* MPI is one per process, and so is its state here: set by init, read by all others. */
static struct {
    MPI_Comm
        comm; /* a copy of the world: messages of the program's own cannot be mixed up with ours */
    bool open;
    pid_t starter; /* the process that has started MPI here, and ends it */
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
} state;

/* All ranks are needed to end MPI, so it is left to the end of a process that has nothing to
 * complain about. */
static void end_mpi(int status, void *unused)
{
    int ended = 1;
    (void)unused;
    if (status == 0 && state.starter == getpid() && MPI_Finalized(&ended) == MPI_SUCCESS && !ended)
        MPI_Finalize();
}

static int start_mpi(void)
{
    int started = 0, given = 0, code = MPI_Initialized(&started);
    if (code != MPI_SUCCESS)
        return code;
    if (started) {
        code = MPI_Query_thread(&given);
    } else {
        /* The main thread and the worker of the device call in turn. */
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
        if (code == MPI_SUCCESS) {
            state.starter = getpid();
            on_exit(end_mpi, NULL);
        }
    }
    if (code != MPI_SUCCESS)
        return code;
    return given < MPI_THREAD_SERIALIZED ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_SUCCESS;
}

static int plugin_init(int *rank, int *size)
{
    int code = state.open ? MPI_SUCCESS : start_mpi();
    if (code == MPI_SUCCESS && !state.open)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &state.comm);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(state.comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(state.comm, rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(state.comm, size);
    state.open = code == MPI_SUCCESS;
    return code;
}

static int plugin_nodes(int *first)
{
    MPI_Comm node;
    int rank, lowest;
    int code = MPI_Comm_rank(state.comm, &rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_split_type(state.comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_free(&node);
    if (code != MPI_SUCCESS)
        return code;
    return MPI_Allgather(&lowest, 1, MPI_INT, first, 1, MPI_INT, state.comm);
}

/* The request's word as MPI sees it. */
static MPI_Request *handle_of(ech__mpi_request *request)
{
    return (MPI_Request *)(void *)&request->word;
}

/* Messages end in another function than they begin, which the analyzer does not follow.
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
static int plugin_isend(const void *data, int64_t bytes, int peer, int tag,
                        ech__mpi_request *request)
{
    const int code =
        MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, state.comm, handle_of(request));
    request->active = code == MPI_SUCCESS;
    return code;
}

static int plugin_irecv(void *data, int64_t bytes, int peer, int tag, ech__mpi_request *request)
{
    const int code =
        MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, state.comm, handle_of(request));
    request->active = code == MPI_SUCCESS;
    return code;
}
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static int plugin_test(ech__mpi_request *request, bool *done)
{
    int flag = 1;
    const int code =
        request->active ? MPI_Test(handle_of(request), &flag, MPI_STATUS_IGNORE) : MPI_SUCCESS;
    request->active = !flag;
    *done = flag != 0;
    return code;
}

static int plugin_progress(void)
{
    int flag;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state.comm, &flag, MPI_STATUS_IGNORE);
}

static void plugin_abandon(void)
{
    state.starter = 0;
}

static void plugin_error_text(int code, char *text, size_t bytes)
{
    char all[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, all, &length) != MPI_SUCCESS)
        length = 0;
    if ((size_t)length >= bytes)
        length = (int)bytes - 1;
    memcpy(text, all, (size_t)length);
    text[length] = '\0';
}

/* "Open MPI v4.1.4", without the place where it was built. */
static const char *plugin_library(void)
{
    int length = 0;
    if (MPI_Get_library_version(state.library, &length) != MPI_SUCCESS)
        return "an unknown MPI";
    state.library[strcspn(state.library, ",\n")] = '\0';
    return state.library;
}

__attribute__((visibility("default"))) const ech__mpi_table *ech__mpi_plugin(int version);

const ech__mpi_table *ech__mpi_plugin(int version)
{
    static const ech__mpi_table table = {
        .init = plugin_init,
        .nodes = plugin_nodes,
        .isend = plugin_isend,
        .irecv = plugin_irecv,
        .test = plugin_test,
        .progress = plugin_progress,
        .abandon = plugin_abandon,
        .error_text = plugin_error_text,
        .library = plugin_library,
        .max_tag = 32767, /* what the standard promises */
    };
    return version == ECH__MPI_PLUGIN_VERSION ? &table : NULL;
}
