/* What must happen before the libraries of this program are started. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS "OPENBLAS_NUM_THREADS="

static int is_limited(int what)
{
    struct rlimit limit;
    return getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* OpenBLAS starts a thread for each core while the program is loaded. Each takes a stack and a
 * buffer of 128 MB. Where a limit of this process (ulimit -v, ulimit -d) does not let it have the
 * buffer it tries for ever, and is waited for at the end; where it gets no stack the program is
 * ended. One thread is all we use, so the program is started again with that. Nothing but system
 * calls is ready here, and no sanitizer. */
__attribute__((no_sanitize("address", "undefined"))) static void start_within_limits(int argc,
                                                                                     char **argv,
                                                                                     char **envp)
{
    enum { MOST = 4096, LENGTH = sizeof THREADS - 1 };
    static char one_thread[] = THREADS "1";
    static char one_arena[] = "MALLOC_ARENA_MAX=1"; /* others take 64 MB of addresses each */
    char *all[MOST];
    int count = 0;
    (void)argc;
    if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA))
        return;
    for (char **e = envp; *e; e++) {
        if (!strcmp(*e, one_thread) || count == MOST - 3)
            return;
        if (strncmp(*e, THREADS, LENGTH) != 0)
            all[count++] = *e;
    }
    all[count++] = one_thread;
    all[count++] = one_arena;
    all[count] = NULL;
    execve("/proc/self/exe", argv, all);
}

/* The loader calls these before the constructors of libraries. */
__attribute__((section(".preinit_array"),
               used)) static void (*const early)(int, char **, char **) = start_within_limits;
