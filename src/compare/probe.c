#include "compare/probe.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "base/system/cpus.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_CORES = 256, LOOPS = 5, CHAINS = 6, LOOP_STEPS = 20000, HISTORY = 64 };

typedef struct core {
    int cpu;
    double now_s;              /* of the loop */
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
    uint64_t turn; /* that the cores are to measure */
    int waiting;   /* cores that have not measured it yet */
    bool ends;
    int count, started;
    core cores[MOST_CORES];
    int64_t wall_ns;
    double own_s; /* of this process and the arm, at begin */
    double before_busy_s[MOST_CORES], before_stolen_s[MOST_CORES];
};

/* ---- speed ---- */

/* Multiplications that keep the core's multiplier busy all the time, so that a neighbour on the same physical core is seen too. */
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
        pthread_mutex_unlock(&p->mutex);
        double times[LOOPS];
        for (int i = 0; i < LOOPS; i++)
            times[i] = time_loop();
        const double median = ech__stats_of(times, LOOPS).median;
        pthread_mutex_lock(&p->mutex);
        c->now_s = median;
        c->history_s[c->measured++ % HISTORY] = median;
        if (--p->waiting == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* What the loop usually takes: a processor that is always slower than its best is not disturbed. */
static double usual_s(const core *c)
{
    double sorted[HISTORY];
    const size_t count = c->measured < HISTORY ? (size_t)c->measured : HISTORY;
    memcpy(sorted, c->history_s, sizeof sorted);
    return ech__stats_of(sorted, count).median;
}

/* The time on the core that is most behind, by what it usually takes there. */
static double slowness(ech__probe *p)
{
    double slow = 1;
    pthread_mutex_lock(&p->mutex);
    p->turn++;
    p->waiting = p->started;
    pthread_cond_broadcast(&p->go);
    while (p->waiting)
        pthread_cond_wait(&p->done, &p->mutex);
    for (int i = 0; i < p->started; i++)
        slow = fmax(slow, p->cores[i].now_s / usual_s(&p->cores[i]));
    pthread_mutex_unlock(&p->mutex);
    return slow;
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
    *out = (ech__disturbance){.seconds = seconds, .slow = slowness(p)};
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
    for (; p->started < p->count; p->started++) {
        core *c = &p->cores[p->started];
        const int error = pthread_create(&c->thread, NULL, watch_core, c);
        if (error) {
            ech__probe_close(p);
            return ech__fail(ctx, ECH_E_IO, "no thread to probe core %d with: %s", c->cpu,
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
