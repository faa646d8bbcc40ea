/* Links and cluster files: what is taken, and the sentence where it is not. */
#include "price/cluster.h"
#include "support/cmocka_first.h"
#include "support/temp_dir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_up(void **state)
{
    ech_ctx *ctx;
    if (ech_ctx_create(NULL, &ctx) < 0)
        return -1;
    *state = ctx;
    return 0;
}

static int tear_down(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

static void takes(ech_ctx *ctx, const char *text, double bytes_per_s, double latency_s)
{
    ech__link link = {-1, -1, -1};
    if (ech__link_parse(ctx, text, &link) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    if (fabs(link.bytes_per_s - bytes_per_s) > 1e-12 * bytes_per_s ||
        fabs(link.latency_s - latency_s) > 1e-12 * latency_s)
        fail_msg("%s is %.17g B/s and %.17g s", text, link.bytes_per_s, link.latency_s);
}

static void says(const ech_ctx *ctx, const char *sentence)
{
    if (!strstr(ech_ctx_error(ctx), sentence))
        fail_msg("\"%s\" does not say \"%s\"", ech_ctx_error(ctx), sentence);
}

static void refuses(ech_ctx *ctx, const char *text, const char *sentence)
{
    ech__link link = {-1, -1, -1};
    assert_int_equal(ech__link_parse(ctx, text, &link), ECH_E_INVALID);
    assert_true(link.bytes_per_s == -1 && link.latency_s == -1);
    says(ctx, sentence);
}

/* ---- links ---- */

static void units(void **state)
{
    ech_ctx *ctx = *state;
    takes(ctx, "12GB/s,5us", 12e9, 5e-6);
    takes(ctx, "12GiB/s,5us", 12 * 1073741824.0, 5e-6);
    takes(ctx, "100Gbit/s,1.5us", 12.5e9, 1.5e-6);
    takes(ctx, "1TB/s,800ns", 1e12, 8e-7);
    takes(ctx, "3TiB/s,0s", 3 * 0x1p40, 0);
    takes(ctx, "1.6Tbit/s,0.1us", 2e11, 1e-7);
    takes(ctx, "100Mbit/s,10ms", 12.5e6, 1e-2);
    takes(ctx, "64kbit/s,1s", 8e3, 1);
    takes(ctx, "512MiB/s,1us", 536870912, 1e-6);
    takes(ctx, "512KiB/s,1us", 524288, 1e-6);
    takes(ctx, "5kB/s,1us", 5e3, 1e-6);
    takes(ctx, "5KB/s,1us", 5e3, 1e-6);
    takes(ctx, "5MB/s,1us", 5e6, 1e-6);
    takes(ctx, "2e9B/s,1e-6s", 2e9, 1e-6);
}

static void overheads(void **state)
{
    ech_ctx *ctx = *state;
    ech__link link;
    assert_int_equal(ech__link_parse(ctx, "12GB/s,5us", &link), ECH_OK);
    assert_true(link.overhead_s == link.latency_s);
    assert_int_equal(ech__link_parse(ctx, "12GB/s,5us, 400ns", &link), ECH_OK);
    assert_true(fabs(link.overhead_s - 4e-7) < 1e-15 && fabs(link.latency_s - 5e-6) < 1e-15);
    refuses(ctx, "12GB/s,5us,6us", "overhead 6 us: it must be at most the latency, which is 5 us");
    refuses(ctx, "12GB/s,5us,", "overhead '' is not understood");
}

static void one_link_makes_nodes(void **state)
{
    ech__cluster c = {0};
    assert_int_equal(ech__cluster_of_link(*state, "12GB/s,5us", ECH__NODE_SIZE, &c), ECH_OK);
    assert_int_equal(c.devices_per_node, 8);
    assert_int_equal(c.nodes, 0);
    assert_true(c.between.bytes_per_s == 12e9 && fabs(c.between.latency_s - 5e-6) < 1e-15);
    assert_int_equal(c.mover, ECH__MOVER_LINKS);
    assert_string_equal(ech__cluster_describe(&c).s,
                        "given links: 12 GB/s, 5.00 us; nodes of 8 devices, which share one such "
                        "link to other nodes");
    c = ech__cluster_defaults();
    assert_string_equal(ech__cluster_describe(&c).s,
                        "this machine's memory, not measured: a default of 10 GB/s, 1.00 us");
}

static void spaces(void **state)
{
    takes(*state, " 12 GB/s , 5 us ", 12e9, 5e-6);
    takes(*state, "12GB/s, 5us", 12e9, 5e-6);
    refuses(*state, "1 2GB/s,5us", "bandwidth '1 2GB/s' is not understood");
    refuses(*state, "12GB /s,5us", "bandwidth '12GB /s' is not understood");
}

static void limits(void **state)
{
    ech_ctx *ctx = *state;
    takes(ctx, "1kB/s,10s", 1e3, 10);
    takes(ctx, "1e15B/s,0ns", 1e15, 0);
    const char *range = "is out of range: it must be 1 kB/s to 1e15 B/s";
    refuses(ctx, "0GB/s,5us", range);
    refuses(ctx, "-12GB/s,5us", range);
    refuses(ctx, "999B/s,5us", range);
    refuses(ctx, "1001TB/s,5us", range);
    refuses(ctx, "1e999GB/s,5us", range);
    refuses(ctx, "12GB/s,-5us", "latency '-5us' is out of range: it must be 0 s to 10 s");
    refuses(ctx, "12GB/s,10.1s", "latency '10.1s' is out of range");
    refuses(ctx, "12GB/s,1e400s", "out of range");
}

static void nonsense(void **state)
{
    ech_ctx *ctx = *state;
    refuses(ctx, "", "link '' has no comma: it must be BANDWIDTH,LATENCY, such as 12GB/s,5us");
    refuses(ctx, "fast", "link 'fast' has no comma");
    refuses(ctx, "12GB/s", "link '12GB/s' has no comma");
    refuses(ctx, ",",
            "bandwidth '' is not understood: it must be a number with a unit, such as 12GB/s");
    refuses(ctx, "12GB/s,",
            "latency '' is not understood: it must be a number with a unit, such as 5us");
    refuses(ctx, "5us,12GB/s", "link '5us,12GB/s': bandwidth '5us' is not understood");
    refuses(ctx, "12,5", "bandwidth '12' is not understood");
    refuses(ctx, "12GB,5us", "bandwidth '12GB' is not understood");
    refuses(ctx, "12Gb/s,5us", "bandwidth '12Gb/s' is not understood");
    refuses(ctx, "infGB/s,5us", "bandwidth 'infGB/s' is not understood");
    refuses(ctx, "nanGB/s,5us", "bandwidth 'nanGB/s' is not understood");
    refuses(ctx, "0x10GB/s,5us", "bandwidth '0x10GB/s' is not understood");
    refuses(ctx, ".GB/s,5us", "bandwidth '.GB/s' is not understood");
    refuses(ctx, "12eGB/s,5us", "bandwidth '12eGB/s' is not understood");
    refuses(ctx, "12GB/s,5us,3us,1us", "overhead '3us,1us' is not understood");
    refuses(ctx, "12GB/s\n,5us", "bandwidth '12GB/s?' is not understood");
    char text[300];
    memset(text, '1', sizeof text);
    memcpy(text + 200, "GB/s,5us", 9);
    refuses(ctx, text, "111...");
}

/* ---- files ---- */

#define LINKS                                                                                      \
    "\"inside\": {\"bandwidth\": \"300GB/s\", \"latency\": \"2us\"},"                              \
    "\"between\": {\"bandwidth\": \"25GB/s\", \"latency\": \"10us\"}"
#define COUNTS "\"nodes\": 4, \"devices_per_node\": 8"

static ech_status parse(ech_ctx *ctx, const char *text, ech__cluster *out)
{
    return ech__cluster_parse(ctx, "cluster.json", text, strlen(text), out);
}

static void reads(ech_ctx *ctx, const char *text, ech__cluster *out)
{
    if (parse(ctx, text, out) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
}

static void refuses_file(ech_ctx *ctx, const char *text, const char *sentence)
{
    ech__cluster c = {.nodes = -7, .inside = {-1, -1}};
    assert_int_equal(parse(ctx, text, &c), ECH_E_FORMAT);
    assert_true(c.nodes == -7 && c.inside.bytes_per_s == -1);
    says(ctx, "cluster.json: ");
    says(ctx, sentence);
}

static void a_file(void **state)
{
    ech__cluster c;
    reads(*state, "{" COUNTS "," LINKS "}", &c);
    assert_int_equal(c.nodes, 4);
    assert_int_equal(c.devices_per_node, 8);
    assert_true(c.inside.bytes_per_s == 300e9 && c.between.bytes_per_s == 25e9);
    assert_true(fabs(c.inside.latency_s - 2e-6) < 1e-18 &&
                fabs(c.between.latency_s - 1e-5) < 1e-18);
}

static void a_link_that_is_not_there_may_be_left_out(void **state)
{
    ech_ctx *ctx = *state;
    const char *link = "{\"bandwidth\": \"3GB/s\", \"latency\": \"4us\"}";
    ech__cluster c;
    char text[256];
    snprintf(text, sizeof text, "{\"nodes\": 1, \"devices_per_node\": 8, \"inside\": %s}", link);
    reads(ctx, text, &c);
    assert_true(c.between.bytes_per_s == 3e9);
    snprintf(text, sizeof text, "{\"nodes\": 9, \"devices_per_node\": 1, \"between\": %s}", link);
    reads(ctx, text, &c);
    assert_true(c.inside.bytes_per_s == 3e9);
    snprintf(text, sizeof text, "{\"nodes\": 2, \"devices_per_node\": 8, \"inside\": %s}", link);
    refuses_file(ctx, text, "\"between\" is missing");
    snprintf(text, sizeof text, "{\"nodes\": 1, \"devices_per_node\": 2, \"between\": %s}", link);
    refuses_file(ctx, text, "\"inside\" is missing");
    refuses_file(ctx, "{\"nodes\": 1, \"devices_per_node\": 1}", "\"between\" is missing");
}

static void files_that_are_refused(void **state)
{
    ech_ctx *ctx = *state;
    refuses_file(ctx, "[]", "a cluster must be an object, not an array");
    refuses_file(ctx, "{}", "\"nodes\" is missing");
    refuses_file(ctx, "{" COUNTS ", \"speed\": 1," LINKS "}", "\"speed\" is no member");
    refuses_file(ctx, "{\"nodes\": 4," LINKS "}", "\"devices_per_node\" is missing");
    refuses_file(ctx, "{\"nodes\": 0, \"devices_per_node\": 8," LINKS "}",
                 "\"nodes\" is 0: it must be from 1 to 1000000");
    refuses_file(ctx, "{\"nodes\": 1000001, \"devices_per_node\": 8," LINKS "}", "\"nodes\" is");
    refuses_file(ctx, "{\"nodes\": 4, \"devices_per_node\": 10001," LINKS "}",
                 "\"devices_per_node\" is 10001: it must be from 1 to 10000");
    refuses_file(ctx, "{\"nodes\": 4, \"devices_per_node\": -1," LINKS "}", "is -1");
    refuses_file(ctx, "{\"nodes\": 4.5, \"devices_per_node\": 8," LINKS "}",
                 "\"nodes\" must be an integer, not a number");
    refuses_file(ctx, "{\"nodes\": \"4\", \"devices_per_node\": 8," LINKS "}",
                 "\"nodes\" must be an integer, not a string");
    refuses_file(ctx, "{" COUNTS ", \"inside\": \"12GB/s,5us\"}",
                 "\"inside\" must be an object, not a string");
    refuses_file(ctx, "{" COUNTS ", \"inside\": {\"bandwidth\": \"1GB/s\"}}",
                 "\"inside\": \"latency\" is missing");
    refuses_file(ctx, "{" COUNTS ", \"inside\": {\"bandwidth\": 12, \"latency\": \"1us\"}}",
                 "\"inside\": \"bandwidth\" must be a string, not an integer");
    refuses_file(ctx, "{" COUNTS ", \"inside\": {\"bandwidth\": \"0GB/s\", \"latency\": \"1us\"}}",
                 "\"inside\": bandwidth '0GB/s' is out of range");
    refuses_file(ctx, "{" COUNTS ", \"inside\": {\"jitter\": \"1us\"}}",
                 "\"inside\": \"jitter\" is no member");
    refuses_file(ctx, "{" COUNTS ", \"nodes\": 5," LINKS "}", "nodes");
    refuses_file(ctx, "{" COUNTS "," LINKS, "");
}

static void files_on_disk(void **state)
{
    ech_ctx *ctx = *state;
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "cluster.json", path);
    ech__cluster c;
    assert_int_equal(ech__cluster_load(ctx, path, &c), ECH_E_IO);
    says(ctx, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{" COUNTS "," LINKS "}\n", file);
    fclose(file);
    assert_int_equal(ech__cluster_load(ctx, path, &c), ECH_OK);
    assert_int_equal(c.nodes, 4);
    temp_dir_destroy(&dir);
    const char *source = getenv("ECH_SRC");
    if (!source)
        return;
    snprintf(path, sizeof path, "%s/examples/cluster.json", source);
    if (ech__cluster_load(ctx, path, &c) < 0)
        fail_msg("the example: %s", ech_ctx_error(ctx));
    assert_int_equal(c.nodes * c.devices_per_node, 32);
}

static void devices_that_are_not_there(void **state)
{
    ech_ctx *ctx = *state;
    ech__cluster c;
    reads(ctx, "{" COUNTS "," LINKS "}", &c);
    assert_int_equal(ech__cluster_check(ctx, &c, 1), ECH_OK);
    assert_int_equal(ech__cluster_check(ctx, &c, 32), ECH_OK);
    assert_int_equal(ech__cluster_check(ctx, &c, 33), ECH_E_INVALID);
    says(ctx, "33 devices: the cluster has 4 nodes with 8 devices each, 32 in all");
    assert_int_equal(ech__cluster_check(ctx, &c, 0), ECH_E_INVALID);
    says(ctx, "0 devices: there must be at least 1");
    c = ech__cluster_defaults();
    assert_int_equal(ech__cluster_check(ctx, &c, 1000000), ECH_OK);
    assert_int_equal(ech__cluster_check(ctx, &c, INT64_MAX), ECH_E_INVALID);
    says(ctx, "at most 10000000000 can be priced");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(units, set_up, tear_down),
        cmocka_unit_test_setup_teardown(overheads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_link_makes_nodes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(spaces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nonsense, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_that_is_not_there_may_be_left_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(files_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_on_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(devices_that_are_not_there, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
