#include "comm/mpi/mpi.h"

#include "base/system/clock.h"

#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOW_TO_INSTALL                                                                             \
    "install Open MPI (Debian: libopenmpi-dev) and build again, or name its folder in "            \
    "ECHELON_PLUGIN_DIR"

/* The number in a variable; 0 where there is none. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    const long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value < INT_MAX ? (int)value : 0;
}

/* How many ranks the starter says there are: mpirun of Open MPI, srun, mpiexec of others; 0: it
 * says nothing. */
static int told_size(const char **by)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "mpirun"},
                                           {"SLURM_STEP_NUM_TASKS", "srun"},
                                           {"PMI_SIZE", "mpiexec"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int size = number_of(names[i][0]);
        *by = names[i][1];
        if (size > 0)
            return size;
    }
    return 0;
}

bool ech__mpi_wanted(void)
{
    const char *by;
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK"))
        return true;
    /* A shell inside an allocation has SLURM's variables too, but no tasks beside it. */
    return getenv("SLURM_STEP_ID") && told_size(&by) > 1;
}

/* ---- the plugin ---- */

/* Where the plugin may be, in this order. */
typedef struct places {
    char dirs[12][PATH_MAX];
    int count;
} places;

static void add_place(places *p, const char *dir, const char *below)
{
    char *to = p->dirs[p->count];
    const int length = snprintf(to, PATH_MAX, "%s%s%s", dir, *below ? "/" : "", below);
    p->count += length > 0 && length < PATH_MAX;
}

/* Beside a file (a build), and where it is installed relative to a program or a library. */
static void add_places_of(places *p, const char *file)
{
    static const char *const below[] = {"", "echelon", "../lib/echelon",
#ifdef ECH_LIBDIR
                                        "../" ECH_LIBDIR "/echelon"
#endif
    };
    char path[PATH_MAX];
    if (!realpath(file, path))
        return;
    char *slash = strrchr(path, '/');
    if (!slash)
        return;
    *slash = '\0';
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        add_place(p, path, below[i]);
}

static void find_places(places *p)
{
    Dl_info here;
    const char *told = getenv("ECHELON_PLUGIN_DIR");
    p->count = 0;
    if (told && *told)
        add_place(p, told, "");
    /* The library by its own address. In a program dladdr says what argv[0] said, which /proc knows
     * better. */
    if (dladdr((const void *)&number_of, &here) && here.dli_fname && strchr(here.dli_fname, '/'))
        add_places_of(p, here.dli_fname);
    add_places_of(p, "/proc/self/exe");
}

static ech_status load_table(ech_ctx *ctx, const char *path, const ech__mpi_table **out)
{
    /* Open MPI opens components of its own, which look for its symbols: they must be global. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle)
        return ech__fail(ctx, ECH_E_IO, "%s cannot be loaded: %s", path, dlerror());
    void *symbol = dlsym(handle, ECH__MPI_PLUGIN_SYMBOL);
    ech__mpi_plugin_fn plugin = NULL;
    memcpy(&plugin, &symbol, sizeof plugin);
    *out = plugin ? plugin(ECH__MPI_PLUGIN_VERSION) : NULL;
    if (!*out)
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s belongs to another version of Echelon", path);
    return ECH_OK;
}

static ech_status load_plugin(ech_ctx *ctx, const ech__mpi_table **out)
{
    places *p = malloc(sizeof *p);
    char path[PATH_MAX + 32] = "";
    bool found = false;
    if (!p)
        return ech__no_memory(ctx, "the places of " ECH__MPI_PLUGIN_FILE);
    find_places(p);
    for (int i = 0; i < p->count && !found; i++) {
        snprintf(path, sizeof path, "%s/" ECH__MPI_PLUGIN_FILE, p->dirs[i]);
        found = access(path, R_OK) == 0;
    }
    free(p);
    if (!found)
        return ech__fail(ctx, ECH_E_UNSUPPORTED,
                         "this is a rank of MPI, but " ECH__MPI_PLUGIN_FILE
                         " was not found: " HOW_TO_INSTALL);
    return load_table(ctx, path, out);
}

/* ---- starting ---- */

/* MPI is started by a thread of its own: it waits for all ranks, for ever where one of them does
 * not come, and nothing can end that. The memory stays with that thread where nobody waits for it
 * any more. */
typedef struct starter {
    const ech__mpi_table *mpi;
    int rank, size, code;
    int *first; /* [size] the first rank on the node of each; NULL: no memory */
    _Atomic uint32_t done;
} starter;

static void *start(void *arg)
{
    starter *s = arg;
    s->code = s->mpi->init(&s->rank, &s->size);
    s->first = s->code == 0 ? malloc((size_t)s->size * sizeof *s->first) : NULL;
    if (s->first)
        s->code = s->mpi->nodes(s->first);
    atomic_store(&s->done, 1);
    syscall(SYS_futex, &s->done, FUTEX_WAKE, 1, NULL, NULL, 0);
    return NULL;
}

/* False once that has taken longer than the time-out. */
static bool wait_for(starter *s, double timeout_s)
{
    const int64_t limit = (int64_t)(timeout_s * 1e9);
    ech__waited waited = ech__waited_start();
    while (!atomic_load(&s->done)) {
        if (ech__waited_look(&waited) >= limit)
            return false;
        const struct timespec slice = {.tv_nsec = ech__waited_slice(&waited, limit)};
        syscall(SYS_futex, &s->done, FUTEX_WAIT, 0, &slice, NULL, 0);
    }
    return true;
}

static ech_status does_not_start(ech_ctx *ctx, double timeout_s)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank)
        rank = getenv("PMIX_RANK");
    if (!rank)
        rank = getenv("PMI_RANK");
    return ech__fail(ctx, ECH_E_IO,
                     "rank %.16s waited %g s in MPI_Init for the other ranks: at least one of them "
                     "has not started MPI",
                     rank ? rank : "?", timeout_s);
}

static ech_status start_mpi(ech_ctx *ctx, const ech__mpi_table *mpi, double timeout_s,
                            starter **out)
{
    pthread_t thread;
    starter *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return ech__no_memory(ctx, "the start of MPI");
    s->mpi = mpi;
    const int error = pthread_create(&thread, NULL, start, s);
    if (error) {
        free(s);
        return ech__fail(ctx, ECH_E_IO, "no thread to start MPI: %s", strerror(error));
    }
    if (!wait_for(s, timeout_s)) {
        pthread_detach(thread);
        return does_not_start(ctx, timeout_s);
    }
    pthread_join(thread, NULL);
    *out = s;
    return ECH_OK;
}

/* ---- opening ---- */

/* An MPI that was started by something it does not know thinks that it is alone, and N ranks would
 * train N models. */
static ech_status check_size(ech_ctx *ctx, const ech__mpi_table *mpi, int size)
{
    const char *by;
    const int told = told_size(&by);
    if (told == 0 || told == size)
        return ECH_OK;
    return ech__fail(ctx, ECH_E_INVALID,
                     "%s started %d ranks, but %s sees %d: start them with its own mpirun, or with "
                     "srun --mpi=pmix",
                     by, told, mpi->library(), size);
}

ech_status ech__mpi_open(ech_ctx *ctx, const ech__comm_options *options, ech__comm **out)
{
    const ech__mpi_table *mpi;
    starter *s;
    *out = NULL;
    ECH_TRY(load_plugin(ctx, &mpi));
    ECH_TRY(start_mpi(ctx, mpi, options->timeout_s, &s));
    ech_status status = ECH_OK;
    if (s->code != 0) {
        char text[256];
        mpi->error_text(s->code, text, sizeof text);
        status = ech__fail(ctx, ECH_E_IO, "MPI_Init failed: %s", text);
    } else if (!s->first) {
        status = ech__no_memory(ctx, "the nodes of %d ranks", s->size);
    }
    if (status == ECH_OK)
        status = check_size(ctx, mpi, s->size);
    if (status == ECH_OK)
        status = ech__hier_open(ctx, mpi, s->rank, s->size, s->first, options, out);
    free(s->first);
    free(s);
    return status;
}
