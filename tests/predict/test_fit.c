/* Tables of runs and the model that is fitted to them: known parameters are found again, intervals hold what they promise,
 * and wrong tables are refused by line and column. */
#include "predict/fit.h"
#include "base/rng.h"
#include "base/stats.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 44695848, SAMPLES = 50000 };

typedef struct state_of {
    ech_ctx *ctx;
    ech__table table;
    ech__fit fit;
} state_of;

static int setup(void **state)
{
    static state_of s;
    s = (state_of){0};
    assert_int_equal(ech_ctx_create(NULL, &s.ctx), ECH_OK);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    ech_ctx_destroy(((state_of *)*state)->ctx);
    return 0;
}

/* ---- tables ---- */

#define HEAD "devices,batch,samples,bytes,time\n"

static void refuses(state_of *s, const char *text, const char *sentence)
{
    assert_int_not_equal(ech__table_parse(s->ctx, "t.csv", text, strlen(text), &s->table), ECH_OK);
    assert_string_equal(ech_ctx_error(s->ctx), sentence);
}

static void a_table_is_read(void **state)
{
    state_of *s = *state;
    const char text[] = "\xef\xbb\xbf# runs\r\n\r\n time , bytes,samples,batch,devices\r\n"
                        "1.5e1,0,50000,32,1\r\n\n# more\n8, 10 ,50000,32,2\n8.5,10,50000,32,2";
    assert_int_equal(ech__table_parse(s->ctx, "t.csv", text, sizeof text - 1, &s->table), ECH_OK);
    assert_int_equal(s->table.count, 3);
    assert_int_equal(s->table.row[0].devices, 1);
    assert_true(s->table.row[0].time == 15);
    assert_int_equal(s->table.row[1].bytes, 10);
    assert_int_equal(s->table.row[1].line, 7);
    assert_true(s->table.row[2].time == 8.5);
}

static void wrong_tables_are_refused_by_name(void **state)
{
    state_of *s = *state;
    static const char columns[] = "devices, batch, samples, bytes, time";
    char sentence[300], text[3000];
    snprintf(sentence, sizeof sentence, "t.csv is empty; its first line must name the columns %s",
             columns);
    refuses(s, "", sentence);
    refuses(s, "\n# only this\n", sentence);
    snprintf(sentence, sizeof sentence,
             "t.csv, line 1, column speed: there is no such column; they are %s", columns);
    refuses(s, "devices,batch,speed\n", sentence);
    snprintf(sentence, sizeof sentence,
             "t.csv, line 1, column without a name: there is no such column; they are %s", columns);
    refuses(s, "devices,batch,samples,bytes,time,\n", sentence);
    snprintf(sentence, sizeof sentence, "t.csv, line 1, column bytes: is missing; needed are %s",
             columns);
    refuses(s, "devices,batch,samples,time\n", sentence);
    refuses(s, "devices,batch,batch\n", "t.csv, line 1, column batch: occurs twice");
    refuses(s, HEAD, "t.csv, line 1: no row follows the names of the columns");
    refuses(s, HEAD "1,32,50000,0\n",
            "t.csv, line 2, column time: is missing; the line has 4 values and needs 5");
    refuses(s, HEAD "1,32,50000,0,3,4\n", "t.csv, line 2, after column time: more than 5 values");
    refuses(s, HEAD "\n1,32,50000,,3\n",
            "t.csv, line 3, column bytes: nothing is not a whole number");
    refuses(s, HEAD "two,32,50000,0,3\n",
            "t.csv, line 2, column devices: two is not a whole number");
    refuses(s, HEAD "1,32.5,50000,0,3\n",
            "t.csv, line 2, column batch: 32.5 is not a whole number");
    refuses(s, HEAD "1,32,50000,0,nan\n",
            "t.csv, line 2, column time: nan is not a number of seconds");
    refuses(s, HEAD "1,32,50000,0,0\n",
            "t.csv, line 2, column time: 0 must be at least 1e-09 and at most 1e+09");
    refuses(s, HEAD "0,32,50000,0,1\n",
            "t.csv, line 2, column devices: 0 must be at least 1 and at most 1e+06");
    refuses(s, HEAD "1,32,50000,-5,1\n",
            "t.csv, line 2, column bytes: -5 must be at least 0 and at most 1e+15");
    refuses(s, HEAD "4,32,100,5,1\n",
            "t.csv, line 2, column samples: 100 is less than one step of 4 devices with 32 samples "
            "each");
    refuses(s, HEAD "1,32,50000,0,1\n2,32,50000,1,1\n1,32,50000,0,1.0\n",
            "t.csv, line 4: is the same as line 2");
    strcpy(text, HEAD);
    memset(text + strlen(text), '1', 2000);
    text[strlen(HEAD) + 2000] = '\0';
    refuses(s, text, "t.csv, line 2: 2000 bytes; a line may have 1000");
}

static void tables_that_say_too_little_are_refused(void **state)
{
    state_of *s = *state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {HEAD "1,32,50000,0,2\n2,32,50000,1,1\n", "t.csv: 2 rows; a fit needs at least 3"},
        {HEAD "2,32,50000,1,2\n2,64,50000,1,1\n2,128,50000,1,1\n",
         "t.csv, column devices: is 2 in every row; a fit needs two numbers of devices at least"},
        {HEAD "1,32,50000,0,2\n2,32,50000,0,1\n4,32,50000,0,0.5\n",
         "t.csv, column bytes: is 0 in every row of several devices; nothing says what an exchange "
         "costs"},
    };
    const ech__fit_options o = ech__fit_defaults();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            ech__table_parse(s->ctx, "t.csv", cases[i].text, strlen(cases[i].text), &s->table),
            ECH_OK);
        assert_int_equal(ech__fit_table(s->ctx, "t.csv", &s->table, &o, &s->fit), ECH_E_INVALID);
        assert_string_equal(ech_ctx_error(s->ctx), cases[i].sentence);
    }
}

/* ---- small linear algebra ---- */

static void least_squares_are_not_negative(void **state)
{
    (void)state;
    double x[ECH__LEAST_MAX];
    ech__normal n = {.unknowns = 2};
    ech__normal_add(&n, (double[]){1, 1}, 1);
    ech__normal_add(&n, (double[]){1, 2}, 3);
    ech__normal_add(&n, (double[]){1, 3}, 5);
    /* Freely it would be -1 and 2. */
    ech__normal_solve(&n, x);
    assert_true(x[0] == 0);
    assert_float_equal(x[1], 22.0 / 14, 1e-12);
    n = (ech__normal){.unknowns = 3};
    ech__normal_add(&n, (double[]){1e-9, 0, 1e-9}, 2e-9);
    ech__normal_add(&n, (double[]){0, 1e6, 0}, 3e6);
    ech__normal_solve(&n, x);
    assert_float_equal(x[0] + x[2], 2, 1e-9);
    assert_float_equal(x[1], 3, 1e-9);
    double inverse[ECH__LEAST_MAX][ECH__LEAST_MAX];
    assert_false(ech__normal_inverse(&n, (bool[]){true, true, true}, inverse));
    assert_true(ech__normal_inverse(&n, (bool[]){true, true, false}, inverse));
    assert_float_equal(inverse[1][1] * 1e12, 1, 1e-9);
}

static void quantiles_are_students(void **state)
{
    (void)state;
    assert_float_equal(ech__student(0.95, 1), 12.7062, 1e-4);
    assert_float_equal(ech__student(0.95, 2), 4.30265, 1e-4);
    assert_float_equal(ech__student(0.95, 3), 3.18245, 1e-4);
    assert_float_equal(ech__student(0.95, 10), 2.22814, 1e-4);
    assert_float_equal(ech__student(0.9, 5), 2.01505, 1e-4);
    assert_float_equal(ech__student(0.99, 30), 2.74999, 1e-4);
}

/* ---- fits ---- */

/* The truth behind a table: seconds, bytes per second, a share. */
typedef struct truth {
    double fixed, bandwidth, latency, overlap;
} truth;

static double compute_of(int64_t batch)
{
    return 0.003 + 0.00035 * (double)batch;
}

static double time_of(truth t, int64_t devices, int64_t batch)
{
    const double n = (double)devices, compute = compute_of(batch);
    double step = compute;
    if (devices > 1) {
        const double link = t.bandwidth > 0 ? BYTES * 2 * (n - 1) / n / t.bandwidth : 0;
        step += t.fixed + t.latency * 2 * (n - 1) + fmax(0, link - t.overlap * compute);
    }
    return step * SAMPLES / (n * (double)batch);
}

static void make_table(truth t, int counts, int batches, double noise, uint64_t seed,
                       ech__table *out)
{
    out->count = 0;
    for (int b = 0; b < batches; b++) {
        for (int d = 0; d < counts; d++) {
            const int64_t devices = 1 << d, batch = 32LL << (2 * b);
            const double wobble = exp(noise * ech__rng_normal(seed, 7, out->count));
            out->row[out->count] = (ech__table_row){devices,
                                                    batch,
                                                    SAMPLES,
                                                    d ? BYTES : 0,
                                                    time_of(t, devices, batch) * wobble,
                                                    (int)out->count + 2};
            out->count++;
        }
    }
}

static void fit_it(state_of *s)
{
    const ech__fit_options o = ech__fit_defaults();
    if (ech__fit_table(s->ctx, "t.csv", &s->table, &o, &s->fit) < 0)
        fail_msg("%s", ech_ctx_error(s->ctx));
}

static double relative(double a, double b)
{
    return fabs(a / b - 1);
}

static void exact_tables_give_their_parameters(void **state)
{
    state_of *s = *state;
    static const struct {
        truth t;
        ech__fit_form form;
    } cases[] = {
        {{0}, ECH__FIT_NONE},
        {{.fixed = 0.004}, ECH__FIT_FIXED},
        {{.bandwidth = 8e9}, ECH__FIT_LINK},
        {{.latency = 0.001}, ECH__FIT_LATENCY},
        {{.fixed = 0.002, .bandwidth = 8e9}, ECH__FIT_FIXED_LINK},
        {{.bandwidth = 4e9, .overlap = 0.2}, ECH__FIT_HIDDEN_LINK},
        {{.fixed = 0.002, .bandwidth = 4e9, .overlap = 0.2}, ECH__FIT_FIXED_HIDDEN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_table(cases[i].t, 3, 3, 0, 0, &s->table);
        fit_it(s);
        const ech__fit_result *r = &s->fit.result[cases[i].form];
        assert_true(r->kept);
        assert_int_equal(s->fit.kept, 1);
        const truth t = cases[i].t;
        assert_float_equal(r->term[ECH__FIT_TERM_FIXED].value, t.fixed, 1e-6);
        assert_float_equal(r->term[ECH__FIT_TERM_LATENCY].value, t.latency, 1e-6);
        assert_float_equal(r->term[ECH__FIT_TERM_OVERLAP].value, t.overlap, 1e-3);
        if (t.bandwidth > 0)
            assert_true(relative(1 / r->term[ECH__FIT_TERM_LINK].value, t.bandwidth) < 1e-3);
        for (int64_t n = 1; n <= 64; n *= 4) {
            const ech__fit_prediction p = ech__fit_predict(&s->fit, n, 128);
            assert_true(relative(p.time.value, time_of(t, n, 128)) < 1e-3);
            assert_true(p.time.low < p.time.value && p.time.value < p.time.high);
            assert_true(p.efficiency.value <= 1 + 1e-9);
        }
    }
}

static void noisy_tables_give_them_nearly(void **state)
{
    state_of *s = *state;
    const truth t = {.fixed = 0.003, .bandwidth = 8e9};
    double worst = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        make_table(t, 4, 3, 0.005, seed, &s->table);
        fit_it(s);
        worst = fmax(worst,
                     relative(ech__fit_predict(&s->fit, 16, 128).time.value, time_of(t, 16, 128)));
    }
    assert_true(worst < 0.06);
}

/* One more run of 4 devices lies inside of the intervals as often as they say, or more often: with rows of 1 and 2 devices
 * only, they span forms. */
static void intervals_cover_what_they_promise(void **state)
{
    state_of *s = *state;
    static const truth truths[] = {{.fixed = 0.004}, {.bandwidth = 8e9}};
    for (int counts = 2; counts <= 3; counts++) {
        int inside = 0, all = 0;
        double width = 0;
        for (uint64_t seed = 0; seed < 200; seed++) {
            const truth t = truths[seed % 2];
            const int64_t devices = 1 << counts;
            make_table(t, counts, 3, 0.01, seed, &s->table);
            fit_it(s);
            for (int b = 0; b < 3; b++) {
                const int64_t batch = 32LL << (2 * b);
                const ech__fit_value v = ech__fit_predict(&s->fit, devices, batch).time;
                const double run =
                    time_of(t, devices, batch) * exp(0.01 * ech__rng_normal(seed, 8, (uint64_t)b));
                inside += run >= v.low && run <= v.high;
                width += v.high / v.low - 1;
                all++;
            }
        }
        print_message("%d counts: %.1f %% inside, mean width %.1f %%\n", counts,
                      100.0 * inside / all, 100 * width / all);
        assert_true(inside >= 0.93 * all);
        assert_true(width / all < 0.4);
    }
}

static void the_order_of_rows_does_not_matter(void **state)
{
    state_of *s = *state;
    make_table((truth){.fixed = 0.002, .bandwidth = 6e9, .overlap = 0.1}, 2, 3, 0.01, 3, &s->table);
    fit_it(s);
    const ech__fit_prediction before = ech__fit_predict(&s->fit, 4, 32);
    for (size_t turn = 1; turn < s->table.count; turn++) {
        const ech__table_row first = s->table.row[0];
        memmove(s->table.row, s->table.row + 1, (s->table.count - 1) * sizeof first);
        s->table.row[s->table.count - 1] = first;
        fit_it(s);
        const ech__fit_prediction after = ech__fit_predict(&s->fit, 4, 32);
        assert_true(relative(after.time.value, before.time.value) < 1e-5);
        assert_true(relative(after.time.high, before.time.high) < 1e-4);
    }
}

/* Between batches of one device C is interpolated; beyond them it follows the affine fit, with a wider interval. */
static void other_batches_are_foreseen(void **state)
{
    state_of *s = *state;
    make_table((truth){.fixed = 0.004}, 3, 3, 0, 0, &s->table);
    fit_it(s);
    for (int64_t batch = 16; batch <= 1024; batch *= 2)
        assert_true(relative(ech__fit_step(&s->fit, 1, batch, 0, false).value, compute_of(batch)) <
                    1e-3);
    /* A run of several devices with a batch that one device never ran. */
    s->table.count = 0;
    make_table((truth){.fixed = 0.004}, 3, 3, 0, 0, &s->table);
    s->table.row[3] = s->table.row[8];
    s->table.count = 8;
    fit_it(s);
    assert_int_equal(s->fit.knots, 2);
    assert_true(s->fit.bend > 0);
    assert_true(relative(ech__fit_predict(&s->fit, 8, 128).time.value,
                         time_of((truth){.fixed = 0.004}, 8, 128)) < 0.02);
}

/* Without a row of one device the affine C and the link are found all the same. */
static void tables_without_one_device_are_fitted(void **state)
{
    state_of *s = *state;
    const truth t = {.bandwidth = 8e9};
    make_table(t, 4, 3, 0, 0, &s->table);
    size_t kept = 0;
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->table.row[i].devices > 1)
            s->table.row[kept++] = s->table.row[i];
    }
    s->table.count = kept;
    fit_it(s);
    assert_int_equal(s->fit.knots, 0);
    const ech__fit_prediction p = ech__fit_predict(&s->fit, 1, 128);
    assert_true(relative(p.time.value, time_of(t, 1, 128)) < 1e-3);
    assert_true(isnan(p.amdahl.f.value));
}

/* ---- published runs ---- */

static const struct {
    int64_t batch;
    double one, two;
} a40[] = {{32, 22.782, 15.775}, {128, 18.051, 9.637}, {512, 19.448, 9.708}};

static void published_runs_are_fitted(void **state)
{
    state_of *s = *state;
    for (size_t i = 0; i < 3; i++) {
        s->table.row[s->table.count++] =
            (ech__table_row){1, a40[i].batch, SAMPLES, 0, a40[i].one, 0};
        s->table.row[s->table.count++] =
            (ech__table_row){2, a40[i].batch, SAMPLES, BYTES, a40[i].two, 0};
    }
    fit_it(s);
    assert_true(s->fit.alike[ECH__FIT_TERM_FIXED][ECH__FIT_TERM_LINK]);
    assert_int_equal(s->fit.kept, 2);
    for (size_t i = 0; i < 3; i++) {
        const ech__fit_prediction two = ech__fit_predict(&s->fit, 2, a40[i].batch);
        const ech__fit_prediction four = ech__fit_predict(&s->fit, 4, a40[i].batch);
        assert_true(relative(two.time.value, a40[i].two) < 0.01);
        assert_true(two.measured == a40[i].two);
        /* Four devices are no faster than twice two, up to the residual, and slower by half of the exposed part at most. */
        const double exposed = fmax(0, a40[i].two - a40[i].one / 2) / a40[i].two;
        assert_true(four.time.value > 0.99 * a40[i].two / 2);
        assert_true(four.time.value < a40[i].two / 2 * (1.02 + exposed / 2));
        assert_true(four.time.low <= a40[i].two / 2 && four.time.high >= a40[i].two / 2);
    }
    /* From two rows: 2 T_2 / T_1 - 1. */
    const ech__fit_prediction p = ech__fit_predict(&s->fit, 4, 32);
    assert_float_equal(p.amdahl.f.value, 2 * 15.775 / 22.782 - 1, 1e-9);
    assert_float_equal(p.gustafson.f.value, 2 - 22.782 / 15.775, 1e-9);
    /* Each batch of two devices from the others', at the batches that leave something exposed on both sides. */
    for (size_t out = 1; out < 3; out++) {
        s->table.count = 0;
        for (size_t i = 0; i < 3; i++) {
            s->table.row[s->table.count++] =
                (ech__table_row){1, a40[i].batch, SAMPLES, 0, a40[i].one, 0};
            if (i != out)
                s->table.row[s->table.count++] =
                    (ech__table_row){2, a40[i].batch, SAMPLES, BYTES, a40[i].two, 0};
        }
        fit_it(s);
        const ech__fit_value v = ech__fit_predict(&s->fit, 2, a40[out].batch).time;
        print_message("batch %d foreseen: %.3f [%.3f, %.3f], measured %.3f\n", (int)a40[out].batch,
                      v.value, v.low, v.high, a40[out].two);
        assert_true(relative(v.value, a40[out].two) < 0.08);
        assert_true(v.low <= a40[out].two && a40[out].two <= v.high);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_table_is_read),
        TEST(wrong_tables_are_refused_by_name),
        TEST(tables_that_say_too_little_are_refused),
        TEST(least_squares_are_not_negative),
        TEST(quantiles_are_students),
        TEST(exact_tables_give_their_parameters),
        TEST(noisy_tables_give_them_nearly),
        TEST(intervals_cover_what_they_promise),
        TEST(the_order_of_rows_does_not_matter),
        TEST(other_batches_are_foreseen),
        TEST(tables_without_one_device_are_fitted),
        TEST(published_runs_are_fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
