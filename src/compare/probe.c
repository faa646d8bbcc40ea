#include "compare/probe.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "base/system/cpus.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_CORES = 256, LOOPS = 5, CHAINS = 6, LOOP_STEPS = 20000, HISTORY = 64 };
enum { MESSAGES = 200 };                /* between two cores in one look */
enum { MOST_ALONE = 4 };                /* cores that are timed alone in one look */
static const int64_t MEET_NS = 1000000; /* that cores wait for each other at most */

typedef struct core {
    int cpu;
    double now_s;              /* of the loop, on all cores at once */
    double alone_s;            /* and on this core alone */
    double message_s;          /* to the next core and back; 0: not known */
    double shortest_s;         /* of all that were seen; 0: none yet */
    double history_s[HISTORY]; /* the last ones, in a ring */
    uint64_t measured;
    double busy_s, stolen_s;
    pthread_t thread;
    ech__probe *probe;
} core;

struct ech__probe {
    ech_ctx *ctx;
    pthread_mutex_t mutex;
    pthread_cond_t go, done;
    uint64_t turn;      /* that the cores are to measure */
    int first, last;    /* the cores that are to measure */
    bool messages;      /* these two send messages instead of running the loop */
    int waiting;        /* cores that have not measured it yet */
    atomic_int arrived; /* cores that are about to measure */
    int next;           /* core of the next turn that is not for all */
    char before[128];   /* nothing else is in the cache line of the ball */
    atomic_int ball;    /* number of the message under way */
    char after[128];
    bool hyperthreads; /* the system says that cores share one: that is no disturbance */
    bool ends;
    int count, started;
    core cores[MOST_CORES];
    int64_t wall_ns;
    double own_s; /* of this process and the arm, at begin */
    double before_busy_s[MOST_CORES], before_stolen_s[MOST_CORES];
};

/* ---- speed ---- */

/* Multiplications that keep the core's multiplier busy all the time, so that a neighbour on the same physical core
 * is seen too. */
static double time_loop(void)
{
    const int64_t start = ech__clock_wall();
    uint64_t x[CHAINS];
    for (int k = 0; k < CHAINS; k++)
        x[k] = (uint64_t)start + (uint64_t)k;
    for (int i = 0; i < LOOP_STEPS; i++) {
        for (int k = 0; k < CHAINS; k++) {
            x[k] = x[k] * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x[k]));
        }
    }
    return ech__seconds(ech__clock_wall() - start);
}

static double median_loop(void)
{
    double times[LOOPS];
    for (int i = 0; i < LOOPS; i++)
        times[i] = time_loop();
    return ech__stats_of(times, LOOPS).median;
}

/* Waking a thread may take longer than the loop does, so the cores wait for each other. */
static void meet(ech__probe *p)
{
    const int64_t start = ech__clock_wall();
    atomic_fetch_add(&p->arrived, 1);
    while (atomic_load(&p->arrived) <= p->last - p->first && ech__clock_wall() - start < MEET_NS)
        ;
}

/* Until the other core has answered with this number. False: it does not, in any time that counts. */
static bool await_ball(ech__probe *p, int number)
{
    for (int i = 0; i < 1 << 20; i++) {
        if (atomic_load_explicit(&p->ball, memory_order_acquire) == number)
            return true;
    }
    return false;
}

/* Seconds of a message and its answer, for the core that begins; 0 where that was not found out. */
static double send_messages(ech__probe *p, bool begins)
{
    const int64_t start = ech__clock_wall();
    for (int i = 0; i < MESSAGES; i++) {
        if (!begins && !await_ball(p, 2 * i + 1))
            return 0;
        atomic_store_explicit(&p->ball, 2 * i + (begins ? 1 : 2), memory_order_release);
        if (begins && !await_ball(p, 2 * i + 2))
            return 0;
    }
    return begins ? ech__seconds(ech__clock_wall() - start) / MESSAGES : 0;
}

static void *watch_core(void *arg)
{
    core *c = arg;
    ech__probe *p = c->probe;
    ech__cpus one = {{0}};
    ech__cpus_add(&one, c->cpu);
    ech__cpus_bind(&one);
    uint64_t turn = 0;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (p->turn == turn && !p->ends)
            pthread_cond_wait(&p->go, &p->mutex);
        if (p->ends)
            break;
        turn = p->turn;
        const int index = (int)(c - p->cores), first = p->first, last = p->last;
        const bool messages = p->messages;
        if (index < first || index > last)
            continue;
        pthread_mutex_unlock(&p->mutex);
        if (last > first)
            meet(p);
        const double seconds = messages ? send_messages(p, index == first) : median_loop();
        pthread_mutex_lock(&p->mutex);
        if (messages && index == first) {
            c->message_s = seconds;
        } else if (!messages && last == first) {
            c->alone_s = seconds;
        } else if (!messages) {
            c->now_s = seconds;
            c->history_s[c->measured++ % HISTORY] = seconds;
        }
        if (--p->waiting == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* With the mutex held: these cores run the loop, or send messages. */
static void take_turn(ech__probe *p, int first, int last, bool messages)
{
    p->turn++;
    p->first = first;
    p->last = last;
    p->messages = messages;
    p->waiting = last - first + 1;
    atomic_store(&p->arrived, 0);
    atomic_store(&p->ball, 0);
    pthread_cond_broadcast(&p->go);
    while (p->waiting)
        pthread_cond_wait(&p->done, &p->mutex);
}

/* How long messages from a core to the next one take, by the shortest that were ever seen. */
static double distance(ech__probe *p, int index)
{
    core *c = &p->cores[index];
    take_turn(p, index, index + 1, true);
    if (c->message_s > 0 && (c->shortest_s == 0 || c->message_s < c->shortest_s))
        c->shortest_s = c->message_s;
    return c->message_s > 0 ? c->message_s / c->shortest_s : 1;
}

/* What the loop usually takes: a processor that is always slower than its best is not disturbed. */
static double usual_s(const core *c)
{
    double sorted[HISTORY];
    const size_t count = c->measured < HISTORY ? (size_t)c->measured : HISTORY;
    memcpy(sorted, c->history_s, sizeof sorted);
    return ech__stats_of(sorted, count).median;
}

/* The core that is slowest compared with its usual time, the one that loses most when all work, and the two that are
 * farthest apart. Threads of one core are nearer to each other than cores ever are, so messages are not timed while
 * there are such. */
static void look_at_speed(ech__probe *p, ech__disturbance *out)
{
    const int count = p->started < MOST_ALONE ? p->started : MOST_ALONE;
    out->slow = out->crowded = out->far = 1;
    pthread_mutex_lock(&p->mutex);
    take_turn(p, 0, p->started - 1, false);
    for (int i = 0; i < p->started; i++)
        out->slow = fmax(out->slow, p->cores[i].now_s / usual_s(&p->cores[i]));
    for (int i = 0; i < count && p->started > 1 && !p->hyperthreads; i++) {
        const int k = (p->next + i) % p->started;
        take_turn(p, k, k, false);
        out->crowded = fmax(out->crowded, p->cores[k].now_s / p->cores[k].alone_s);
    }
    for (int i = 0; i < count && out->crowded < ECH__DISTURBED_CROWDED; i++) {
        const int k = (p->next + i) % p->started;
        if (k + 1 < p->started)
            out->far = fmax(out->far, distance(p, k));
    }
    p->next = (p->next + count) % p->started;
    pthread_mutex_unlock(&p->mutex);
}

/* ---- what the kernel counts ---- */

/* "cpu3 user nice system idle iowait irq softirq steal ...", in ticks. */
static void read_counters(ech__probe *p)
{
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STOLEN, KINDS };
    const double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    char line[512];
    FILE *file = fopen("/proc/stat", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *at = line + 3;
        if (strncmp(line, "cpu", 3) != 0 || *at < '0' || *at > '9')
            continue;
        const long cpu = strtol(at, &at, 10);
        double ticks[KINDS];
        for (int k = 0; k < KINDS; k++)
            ticks[k] = (double)strtoull(at, &at, 10);
        for (int i = 0; i < p->count; i++) {
            if (p->cores[i].cpu != cpu)
                continue;
            p->cores[i].busy_s =
                (ticks[USER] + ticks[NICE] + ticks[SYSTEM] + ticks[IRQ] + ticks[SOFTIRQ]) * tick_s;
            p->cores[i].stolen_s = ticks[STOLEN] * tick_s;
        }
    }
    if (file)
        fclose(file);
}

static double own_s(double arm_cpu_s)
{
    return ech__seconds(ech__clock_read(CLOCK_PROCESS_CPUTIME_ID)) + arm_cpu_s;
}

void ech__probe_begin(ech__probe *p, double arm_cpu_s)
{
    read_counters(p);
    for (int i = 0; i < p->count; i++) {
        p->before_busy_s[i] = p->cores[i].busy_s;
        p->before_stolen_s[i] = p->cores[i].stolen_s;
    }
    p->own_s = own_s(arm_cpu_s);
    p->wall_ns = ech__clock_wall();
}

void ech__probe_end(ech__probe *p, double arm_cpu_s, ech__disturbance *out)
{
    const double seconds = ech__seconds(ech__clock_wall() - p->wall_ns);
    const double own = own_s(arm_cpu_s) - p->own_s;
    double busy = 0, stolen = 0;
    read_counters(p);
    for (int i = 0; i < p->count; i++) {
        busy += p->cores[i].busy_s - p->before_busy_s[i];
        stolen = fmax(stolen, p->cores[i].stolen_s - p->before_stolen_s[i]);
    }
    *out = (ech__disturbance){.seconds = seconds};
    look_at_speed(p, out);
    if (seconds > 0) {
        out->foreign = fmax(busy - own, 0) / seconds;
        out->stolen = stolen / seconds;
    }
}

void ech__probe_watch(ech__probe *p, double seconds, ech__disturbance *out)
{
    ech__probe_begin(p, 0);
    ech__clock_sleep(seconds);
    ech__probe_end(p, 0, out);
}

int ech__probe_cores(const ech__probe *p)
{
    return p->count;
}

/* ---- opening ---- */

/* Whether the system knows of two of the cores that they are threads of one. */
static bool has_hyperthreads(const ech__probe *p, const ech__cpus *mine)
{
    for (int i = 0; i < p->count; i++) {
        char path[96], list[256] = "";
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 p->cores[i].cpu);
        FILE *file = fopen(path, "re");
        if (file && !fgets(list, sizeof list, file))
            list[0] = '\0';
        if (file)
            fclose(file);
        /* "3", "3,35" or "6-7" */
        for (char *at = list; *at >= '0' && *at <= '9'; at += *at == ',' || *at == '-') {
            const long other = strtol(at, &at, 10);
            if (other != p->cores[i].cpu && other < ECH__MAX_CPUS &&
                ech__cpus_has(mine, (int)other))
                return true;
        }
    }
    return false;
}

ech_status ech__probe_open(ech_ctx *ctx, ech__probe **out)
{
    ech__cpus mine;
    *out = NULL;
    ech__probe *p = ech__new(ctx, sizeof *p);
    if (!p)
        return ech__no_memory(ctx, "a probe of the cores");
    p->ctx = ctx;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->go, NULL);
    pthread_cond_init(&p->done, NULL);
    ech__cpus_read(&mine);
    for (int cpu = 0; cpu < ECH__MAX_CPUS && p->count < MOST_CORES; cpu++) {
        if (ech__cpus_has(&mine, cpu))
            p->cores[p->count++] = (core){.cpu = cpu, .probe = p};
    }
    p->hyperthreads = has_hyperthreads(p, &mine);
    for (; p->started < p->count; p->started++) {
        core *c = &p->cores[p->started];
        const int error = pthread_create(&c->thread, NULL, watch_core, c);
        if (error) {
            ech__probe_close(p);
            return ech__fail(ctx, ECH_E_IO, "cannot create a thread to probe core %d: %s", c->cpu,
                             strerror(error));
        }
    }
    *out = p;
    return ECH_OK;
}

void ech__probe_close(ech__probe *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->mutex);
    p->ends = true;
    pthread_cond_broadcast(&p->go);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->cores[i].thread, NULL);
    pthread_cond_destroy(&p->go);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->mutex);
    ech__delete(p->ctx, p, sizeof *p);
}
