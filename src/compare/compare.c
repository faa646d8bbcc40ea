#include "compare/compare.h"
#include "base/file/dir.h"
#include "base/format.h"
#include "base/system/available.h"
#include "base/system/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LOOK_S = 0.4;      /* of a look at the idle machine */
static const double QUIET_SHARE = 0.2; /* of the budget that is waited at most for a quiet moment */
static const double MEMORY_SHARE = 0.9;   /* of the available memory that arms may take together */
static const double TRIAL_BLOCK_S = 0.02; /* a few steps: their memory is touched then */

ech__compare_options ech__compare_defaults(void)
{
    return (ech__compare_options){.budget_s = 60,
                                  .threshold = 1,
                                  .half_width = 0.05,
                                  .block_s = 0.15,
                                  .limit_s = 120,
                                  .stop_fd = -1};
}

double ech__compare_elapsed(const ech__compare *c)
{
    return ech__seconds(ech__clock_wall() - c->begin_ns);
}

static bool is_stopped(const ech__compare *c)
{
    struct pollfd fd = {.fd = c->options.stop_fd, .events = POLLIN};
    return c->options.stop_fd >= 0 && poll(&fd, 1, 0) > 0;
}

static void progress(void *self)
{
    const ech__compare *c = self;
    if (c->options.on_progress)
        c->options.on_progress(c->options.user, c);
}

__attribute__((format(printf, 2, 3))) static void warn(const ech__compare *c, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (c->options.on_warning)
        c->options.on_warning(c->options.user, line);
}

/* ---- creating ---- */

static ech_status add_arm(ech__compare *c, const ech__arm_spec *spec)
{
    ech__arm *arm = &c->arms[c->narms];
    *arm = (ech__arm){.ctx = c->ctx,
                      .spec = *spec,
                      .dir = c->dir,
                      .mark = c->mark,
                      .number = c->narms,
                      .stop_fd = c->options.stop_fd,
                      .limit_s = c->options.limit_s};
    c->narms++;
    return ech__arm_init(arm);
}

/* A path short enough for sockets. */
static ech_status make_dir(ech__compare *c)
{
    const char *temp = getenv("TMPDIR");
    snprintf(c->dir, sizeof c->dir, "%s/echelon-XXXXXX",
             temp && *temp && strlen(temp) < 40 ? temp : "/tmp");
    if (mkdtemp(c->dir))
        return ECH_OK;
    const ech_status status =
        ech__fail(c->ctx, ECH_E_IO, "directory %s for the arms: %s", c->dir, strerror(errno));
    c->dir[0] = '\0';
    return status;
}

static ech_status set_up(ech__compare *c)
{
    const ech__compare_options *o = &c->options;
    if (o->count < 2 || o->count > ECH__COMPARE_ARMS - 1)
        return ech__fail(c->ctx, ECH_E_INVALID, "%d arms: a comparison has 2 to %d", o->count,
                         ECH__COMPARE_ARMS - 1);
    ECH_TRY(make_dir(c));
    ECH_TRY(ech__mark_make(c->ctx, "ECHELON_ARM", c->mark));
    for (int i = 0; i < o->count; i++)
        ECH_TRY(add_arm(c, &o->arms[i]));
    ech__arm_spec copy = o->arms[0];
    snprintf(c->copy_name, sizeof c->copy_name, "the copy of %s", copy.name);
    copy.name = c->copy_name;
    ECH_TRY(add_arm(c, &copy));
    ECH_TRY(ech__watch_open(c->ctx, c->mark, &c->watch));
    return ech__probe_open(c->ctx, &c->probe);
}

ech_status ech__compare_create(ech_ctx *ctx, const ech__compare_options *options,
                               ech__compare **out)
{
    *out = NULL;
    ech__compare *c = ech__new(ctx, sizeof *c);
    if (!c)
        return ech__no_memory(ctx, "a comparison");
    c->ctx = ctx;
    c->options = *options;
    c->watch.fd = -1;
    c->begin_ns = ech__clock_wall();
    const ech_status status = set_up(c);
    if (status < 0) {
        ech__compare_destroy(c);
        return status;
    }
    *out = c;
    return ECH_OK;
}

/* All arms that run, and what has escaped from them. */
static void end_arms(void *self)
{
    ech__compare *c = self;
    for (int i = 0; i < c->narms; i++)
        ech__arm_ask(&c->arms[i]);
    for (int i = 0; i < c->narms; i++)
        ech__arm_end(&c->arms[i]);
    ech__leftovers_signal(c->mark, SIGKILL);
}

void ech__compare_destroy(ech__compare *c)
{
    if (!c)
        return;
    if (c->mark[0])
        end_arms(c);
    for (int i = 0; i < c->narms; i++)
        ech__arm_fini(&c->arms[i]);
    ech__watch_close(&c->watch);
    ech__probe_close(c->probe);
    if (c->dir[0])
        ech__dir_remove(NULL, c->dir);
    ech__delete(c->ctx, c, sizeof *c);
}

/* ---- before the turns ---- */

static void wait_for_quiet(ech__compare *c)
{
    const double most = QUIET_SHARE * c->options.budget_s;
    const double start = ech__compare_elapsed(c);
    c->phase = ECH__COMPARE_QUIET;
    for (bool warned = false; !is_stopped(c); warned = true) {
        progress(c);
        ech__probe_watch(c->probe, LOOK_S, &c->before);
        c->waited_s = ech__compare_elapsed(c) - start;
        if (!ech__is_disturbed(&c->before) || c->waited_s >= most)
            break;
        if (!warned)
            warn(c, "other programs use %.2f of %d cores: waiting up to %.0f s for a quiet moment",
                 c->before.foreign, ech__probe_cores(c->probe), most);
    }
    if (ech__is_disturbed(&c->before))
        warn(c, "other programs still use %.2f of %d cores: ratios will be biased",
             c->before.foreign, ech__probe_cores(c->probe));
}

/* Every arm alone: kernels are timed, memory is measured. */
static ech_status try_arms(ech__compare *c)
{
    int64_t sum = 0;
    c->phase = ECH__COMPARE_TRIAL;
    for (int i = 0; i + 1 < c->narms && !is_stopped(c); i++) {
        ech__arm *arm = &c->arms[i];
        ech__block block;
        c->trial = i;
        progress(c);
        ECH_TRY(ech__arm_launch(arm));
        ECH_TRY(ech__arm_await(arm));
        ECH_TRY(ech__arm_block(arm, TRIAL_BLOCK_S * 1e3, &block));
        c->memory[i] = ech__tree_memory(&arm->tree);
        sum += c->memory[i];
        end_arms(c);
    }
    c->memory[c->narms - 1] = c->memory[0];
    sum += c->memory[0];
    const bool too_large = (double)sum > MEMORY_SHARE * (double)ech__machine_available();
    c->apart = c->options.apart || too_large;
    if (too_large)
        warn(c, "the arms take %s together and %s are available: each is started for every block",
             ech__format_bytes(sum).s, ech__format_bytes(ech__machine_available()).s);
    return ECH_OK;
}

/* ---- turns ---- */

/* An arm that fails because the user has stopped the comparison has not failed. */
static ech_status unless_stopped(const ech__compare *c, ech_status status)
{
    return status < 0 && is_stopped(c) ? ECH_OK : status;
}

static ech_status launch_all(ech__compare *c)
{
    for (int i = 0; i < c->narms; i++)
        ECH_TRY(ech__arm_launch(&c->arms[i]));
    for (int i = 0; i < c->narms; i++)
        ECH_TRY(ech__arm_await(&c->arms[i]));
    return ECH_OK;
}

static ech_status start_arms(void *self)
{
    ech__compare *c = self;
    return c->apart ? ECH_OK : unless_stopped(c, launch_all(c));
}

static ech_status run_block(ech__compare *c, ech__arm *arm, double seconds, ech__block *out)
{
    const int64_t start = ech__clock_wall();
    ech__probe_begin(c->probe, ech__tree_cpu_s(&arm->tree));
    ECH_TRY(ech__arm_block(arm, seconds * 1e3, out));
    ech__probe_end(c->probe, ech__tree_cpu_s(&arm->tree), &out->seen);
    out->seconds = ech__seconds(ech__clock_wall() - start);
    return ECH_OK;
}

/* Alone: started, warmed up, measured and ended. */
static ech_status run_apart(ech__compare *c, ech__arm *arm, double seconds, ech__block *out)
{
    ECH_TRY(ech__arm_launch(arm));
    ECH_TRY(ech__arm_await(arm));
    ECH_TRY(ech__arm_block(arm, seconds * 1e3, out));
    ECH_TRY(run_block(c, arm, seconds, out));
    end_arms(c);
    return ECH_OK;
}

static ech_status block(void *self, int number, double seconds, ech__block *out)
{
    ech__compare *c = self;
    ech__arm *arm = &c->arms[number];
    out->step_s = (double)NAN;
    return unless_stopped(c, c->apart ? run_apart(c, arm, seconds, out)
                                      : run_block(c, arm, seconds, out));
}

static double now(void *self)
{
    (void)self;
    return ech__seconds(ech__clock_wall());
}

static bool is_over(void *self)
{
    return is_stopped(self);
}

ech_status ech__compare_run(ech__compare *c)
{
    static const ech__rounds_ops ops = {.start = start_arms,
                                        .block = block,
                                        .end = end_arms,
                                        .now = now,
                                        .is_over = is_over,
                                        .progress = progress};
    /* First, because an arm that was called wrongly is to be refused at once. */
    ech_status status = unless_stopped(c, try_arms(c));
    if (status == ECH_OK)
        wait_for_quiet(c);
    if (status == ECH_OK) {
        ech__rounds_options o = {.arms = c->narms,
                                 .budget_s = c->options.budget_s,
                                 .begin_s = ech__seconds(c->begin_ns),
                                 .block_s = c->options.block_s,
                                 .half_width = c->options.half_width,
                                 .seed = (uint64_t)c->begin_ns};
        for (int i = 0; i < c->narms; i++)
            o.thresholds[i] = ech__compare_threshold(c, i);
        c->phase = ECH__COMPARE_TURNS;
        status = ech__rounds_run(&o, &ops, c, &c->rounds);
    }
    if (status < 0) { /* keep the arm's error message: nothing may overwrite it */
        char kept[sizeof c->ctx->error];
        memcpy(kept, c->ctx->error, sizeof kept);
        end_arms(c);
        memcpy(c->ctx->error, kept, sizeof kept);
    }
    return status;
}

double ech__compare_threshold(const ech__compare *c, int arm)
{
    const double own = c->arms[arm].spec.threshold;
    return own > 0 ? own : c->options.threshold;
}

ech__ratio ech__compare_noise(const ech__compare *c)
{
    return ech__compare_ratio(c->rounds.logs[c->narms - 1], c->rounds.starts,
                              ECH__COMPARE_NOISE_SHARE);
}
