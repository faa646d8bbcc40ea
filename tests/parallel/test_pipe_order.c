/* The orders of a pipeline as pure functions: what each device does when, how many micro-batches it
 * holds, what it costs. */
#include "parallel/pipe/order.h"
#include "support/cmocka_first.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 12 };

static const char *text_of(ech_pipeline order, int device, int devices, int micros)
{
    static char text[8 * MOST];
    ech__task tasks[2 * MOST];
    size_t used = 0;
    ech__pipe_tasks(order, device, devices, micros, tasks);
    for (int i = 0; i < 2 * micros; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%c%d", i ? " " : "",
                                 tasks[i].kind == ECH__TASK_FORWARD ? 'F' : 'B', tasks[i].micro);
    return text;
}

static void orders_are_those_of_the_papers(void **state)
{
    (void)state;
    assert_string_equal(text_of(ECH_PIPELINE_GPIPE, 0, 2, 3), "F0 F1 F2 B0 B1 B2");
    assert_string_equal(text_of(ECH_PIPELINE_GPIPE, 1, 2, 3), "F0 F1 F2 B0 B1 B2");
    assert_string_equal(text_of(ECH_PIPELINE_ONE_F_ONE_B, 2, 3, 4), "F0 B0 F1 B1 F2 B2 F3 B3");
    assert_string_equal(text_of(ECH_PIPELINE_ONE_F_ONE_B, 1, 3, 4), "F0 F1 B0 F2 B1 F3 B2 B3");
    assert_string_equal(text_of(ECH_PIPELINE_ONE_F_ONE_B, 0, 3, 4), "F0 F1 F2 B0 F3 B1 B2 B3");
    assert_string_equal(text_of(ECH_PIPELINE_ONE_F_ONE_B, 0, 5, 2), "F0 F1 B0 B1");
    assert_string_equal(text_of(ECH_PIPELINE_ONE_F_ONE_B, 3, 5, 1), "F0 B0");
}

/* Every micro-batch comes once each way, in order, forward first; and no more are alive than there
 * are slots, so that one may take the memory of the one that many before it. */
static void slots_hold_what_is_alive(void **state)
{
    (void)state;
    for (int order = 0; order <= ECH_PIPELINE_ONE_F_ONE_B; order++) {
        for (int devices = 1; devices <= 6; devices++) {
            for (int micros = 1; micros <= MOST; micros++) {
                for (int d = 0; d < devices; d++) {
                    ech__task tasks[2 * MOST];
                    const int slots = ech__pipe_slots((ech_pipeline)order, d, devices, micros);
                    int forward = 0, backward = 0, most = 0;
                    ech__pipe_tasks((ech_pipeline)order, d, devices, micros, tasks);
                    for (int i = 0; i < 2 * micros; i++) {
                        int *count = tasks[i].kind == ECH__TASK_FORWARD ? &forward : &backward;
                        assert_int_equal(tasks[i].micro, (*count)++);
                        assert_true(backward <= forward);
                        most = forward - backward > most ? forward - backward : most;
                    }
                    assert_int_equal(forward, micros);
                    assert_int_equal(backward, micros);
                    /* The one that is going backward still has its memory. */
                    assert_int_equal(most, slots);
                    const int promised = order == ECH_PIPELINE_GPIPE ? micros : devices - d;
                    assert_int_equal(slots, promised < micros ? promised : micros);
                }
            }
        }
    }
}

static ech__pipe_times simulate(ech_pipeline order, int devices, int micros,
                                const ech__stage_time *stages)
{
    ech_ctx *ctx;
    ech__pipe_times times;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__pipe_simulate(ctx, order, devices, micros, stages, &times), ECH_OK);
    ech_ctx_destroy(ctx);
    return times;
}

static void equal_stages_have_the_bubble_of_the_formula(void **state)
{
    (void)state;
    ech__stage_time stages[6];
    for (int d = 0; d < 6; d++)
        stages[d] = (ech__stage_time){.forward_s = 1, .backward_s = 2};
    for (int order = 0; order <= ECH_PIPELINE_ONE_F_ONE_B; order++) {
        for (int devices = 1; devices <= 6; devices++) {
            for (int micros = 1; micros <= MOST; micros++) {
                const ech__pipe_times t = simulate((ech_pipeline)order, devices, micros, stages);
                assert_true(fabs(t.bubble - ech__pipe_bubble(devices, micros)) < 1e-12);
                assert_true(fabs(t.step_s - 3.0 * (micros + devices - 1)) < 1e-9);
            }
        }
    }
}

/* One micro-batch: the baton goes there and back, and each device updates when it is done. */
static void a_baton_takes_the_sum(void **state)
{
    (void)state;
    const ech__stage_time stages[] = {
        {.forward_s = 1, .backward_s = 2, .update_s = 0.5, .send_s = 0.25, .send_back_s = 9},
        {.forward_s = 3, .backward_s = 4, .update_s = 30, .send_s = 9, .send_back_s = 0.125},
    };
    const ech__pipe_times t = simulate(ECH_PIPELINE_ONE_F_ONE_B, 2, 1, stages);
    assert_true(fabs(t.flush_s - (1 + 0.25 + 3 + 4 + 0.125 + 2)) < 1e-12);
    assert_true(fabs(t.step_s - (1 + 0.25 + 3 + 4 + 30)) < 1e-12); /* the second is the last */
    assert_true(fabs(t.busy_s[0] - 3.5) < 1e-12);
    assert_true(fabs(t.busy_s[1] - 37) < 1e-12);
}

static void the_slowest_stage_sets_the_pace(void **state)
{
    (void)state;
    const ech__stage_time stages[] = {{.forward_s = 1, .backward_s = 1},
                                      {.forward_s = 5, .backward_s = 5},
                                      {.forward_s = 1, .backward_s = 1}};
    const ech__pipe_times t = simulate(ECH_PIPELINE_ONE_F_ONE_B, 3, 8, stages);
    assert_true(t.flush_s >= 80 && t.flush_s < 80 + 10);
    assert_true(fabs(t.busy_s[1] - 80) < 1e-9);
    const ech__stage_time nothing[2] = {{0}};
    assert_true(simulate(ECH_PIPELINE_GPIPE, 2, 3, nothing).step_s == 0);
}

static void defaults_divide_the_batch(void **state)
{
    (void)state;
    assert_int_equal(ech__pipe_default_micros(64, 2), 8);
    assert_int_equal(ech__pipe_default_micros(60, 2), 6);
    assert_int_equal(ech__pipe_default_micros(7, 2), 7);
    assert_int_equal(ech__pipe_default_micros(13, 3), 1);
    assert_int_equal(ech__pipe_default_micros(1, 4), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_those_of_the_papers),
        cmocka_unit_test(slots_hold_what_is_alive),
        cmocka_unit_test(equal_stages_have_the_bubble_of_the_formula),
        cmocka_unit_test(a_baton_takes_the_sum),
        cmocka_unit_test(the_slowest_stage_sets_the_pace),
        cmocka_unit_test(defaults_divide_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
