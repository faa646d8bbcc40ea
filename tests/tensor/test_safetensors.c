/* Safetensors: round trips, and each way in which a file can be malformed with the sentence it gets. */
#include "tensor/safetensors.h"
#include "base/file/file.h"

#include "support/cmocka_first.h"
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct place {
    ech_ctx *ctx;
    char dir[64], path[96];
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_int_equal(ech_ctx_create(NULL, &p->ctx), ECH_OK);
    snprintf(p->dir, sizeof p->dir, "/tmp/ech_safetensors_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof p->path, "%s/model.safetensors", p->dir);
    *state = p;
    return 0;
}

/* Also checks that nothing but the file itself was left behind. */
static int teardown(void **state)
{
    place *p = *state;
    unlink(p->path);
    const int left = rmdir(p->dir);
    ech_ctx_destroy(p->ctx);
    free(p);
    return left;
}

/* ---- malformed files: a header, a length that may lie, a number of data bytes ---- */

typedef struct image {
    uint8_t bytes[4096];
    size_t count;
} image;

static image make_with_length(uint64_t length, const char *header, size_t data_bytes)
{
    image m = {.count = 8 + strlen(header) + data_bytes};
    for (int i = 0; i < 8; i++)
        m.bytes[i] = (uint8_t)(length >> (8 * i));
    memcpy(m.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        m.bytes[8 + strlen(header) + i] = (uint8_t)i;
    return m;
}

static image make(const char *header, size_t data_bytes)
{
    return make_with_length(strlen(header), header, data_bytes);
}

/* Refused in memory and as a file, with the same sentence behind the name. */
static void refuses(void **state, image m, const char *sentence)
{
    place *p = *state;
    ech__safetensors *file;
    char want[1024];
    assert_true(ech__safetensors_parse(p->ctx, "mem", m.bytes, m.count, &file) < 0);
    assert_null(file);
    snprintf(want, sizeof want, "mem: %s", sentence);
    assert_string_equal(ech_ctx_error(p->ctx), want);
    assert_int_equal(ech__file_write(p->ctx, p->path, m.bytes, m.count), ECH_OK);
    assert_true(ech__safetensors_open(p->ctx, p->path, &file) < 0);
    assert_null(file);
    snprintf(want, sizeof want, "%s: %s", p->path, sentence);
    assert_string_equal(ech_ctx_error(p->ctx), want);
}

#define A_0_4 "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

static void accepts_what_the_cases_start_from(void **state)
{
    place *p = *state;
    ech__safetensors *file;
    image m = make("{" A_0_4 "}", 4);
    assert_int_equal(ech__safetensors_parse(p->ctx, "mem", m.bytes, m.count, &file), ECH_OK);
    ech__safetensors_close(file);
    m = make("{}", 0);
    assert_int_equal(ech__safetensors_parse(p->ctx, "mem", m.bytes, m.count, &file), ECH_OK);
    assert_int_equal(ech__safetensors_count(file), 0);
    assert_null(ech__safetensors_find(file, "a"));
    ech__safetensors_close(file);
}

static void refuses_an_empty_file(void **state)
{
    refuses(state, (image){.count = 0},
            "has 0 bytes, a safetensors file begins with 8 for its length");
}

static void refuses_seven_bytes(void **state)
{
    refuses(state, (image){.count = 7},
            "has 7 bytes, a safetensors file begins with 8 for its length");
}

static void refuses_header_length_0(void **state)
{
    refuses(state, make_with_length(0, "{}", 0), "its header has 0 bytes");
}

static void refuses_a_huge_header(void **state)
{
    refuses(state, make_with_length(100000001, "{}", 0),
            "its header has 100000001 bytes, the limit is 100000000");
    refuses(state, make_with_length(UINT64_MAX, "{}", 0),
            "its header has 18446744073709551615 bytes, the limit is 100000000");
}

static void refuses_a_header_past_the_end(void **state)
{
    refuses(state, make_with_length(3, "{}", 0),
            "its header has 3 bytes, but the file ends after 2");
    refuses(state, make_with_length(100000000, "{}", 0),
            "its header has 100000000 bytes, but the file ends after 2");
}

static void refuses_a_header_that_is_no_object(void **state)
{
    refuses(state, make("[]", 0), "its header does not begin with {");
    refuses(state, make(" {}", 0), "its header does not begin with {");
    refuses(state, make("{", 0), "line 1, column 1: string or '}' expected near end of file");
    refuses(state, make("{}x", 0), "line 1, column 3: end of file expected near 'x'");
}

static void refuses_deep_nesting(void **state)
{
    char header[] = "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[";
    refuses(state, make(header, 0), "byte 36: nested deeper than 32 levels");
}

static void refuses_an_entry_that_is_no_object(void **state)
{
    refuses(state, make("{\"a\":7}", 0), "tensor a: must be an object");
}

static void refuses_a_missing_key(void **state)
{
    refuses(state, make("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
            "tensor a: \"dtype\" is missing");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
            "tensor a: \"shape\" is missing");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4),
            "tensor a: \"data_offsets\" is missing");
}

static void refuses_other_types_by_name(void **state)
{
    static const char *const types[] = {"F8_E4M3", "BOOL", "I16", "U16", "U32", "U64", "f32", ""};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[128], want[128];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,4]}}", types[i]);
        snprintf(want, sizeof want,
                 "tensor a: type %s is not supported; F32, F64, BF16, F16, I8, U8, I32 and I64 are",
                 types[i]);
        refuses(state, make(header, 4), want);
    }
    refuses(state, make("{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
            "tensor a: \"dtype\" must be a string, not an integer");
}

static void refuses_wrong_dimensions(void **state)
{
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4),
            "tensor a: dimension 0 is -1, must be 0 or more");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1.0],\"data_offsets\":[0,4]}}", 4),
            "tensor a: dimension 1 must be an integer");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4),
            "tensor a: \"shape\" must be an array, not an integer");
    refuses(state,
            make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4),
            "tensor a: has 7 dimensions, the limit is 6");
}

static void refuses_a_shape_that_overflows(void **state)
{
    refuses(
        state,
        make("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
             0),
        "tensor a: shape [4294967296, 4294967296] has more bytes than a file can hold");
    refuses(
        state,
        make("{\"a\":{\"dtype\":\"F32\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}",
             0),
        "tensor a: shape [2305843009213693952] has more bytes than a file can hold");
}

static void refuses_sizes_that_disagree(void **state)
{
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4),
            "tensor a: data_offsets [0, 4] hold 4 bytes, but [2] of type F32 has 8");
    refuses(state, make("{\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,4]}}", 4),
            "tensor a: data_offsets [0, 4] hold 4 bytes, but [] of type BF16 has 2");
    refuses(state, make("{\"a\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[0,8]}}", 8),
            "tensor a: data_offsets [0, 8] hold 8 bytes, but [0, 3] of type I64 has 0");
}

static void refuses_reversed_offsets(void **state)
{
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4),
            "tensor a: data_offsets [4, 0] are reversed or negative");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4),
            "tensor a: data_offsets [-4, 0] are reversed or negative");
}

static void refuses_offsets_that_are_no_pair(void **state)
{
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4),
            "tensor a: data_offsets must be two integers");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4),
            "tensor a: data_offsets must be two integers");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4),
            "tensor a: data_offsets must be two integers");
}

static void refuses_offsets_past_the_end(void **state)
{
    refuses(state, make("{" A_0_4 "}", 3),
            "tensor a: data_offsets [0, 4] reach past the 3 bytes of data in the file");
    refuses(state,
            make("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],"
                 "\"data_offsets\":[0,9223372036854775807]}}",
                 4),
            "tensor a: data_offsets [0, 9223372036854775807] reach past the 4 bytes of data in the "
            "file");
}

static void refuses_overlap(void **state)
{
    refuses(state,
            make("{" A_0_4 ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}", 7),
            "tensor b: begins at 3 and overlaps tensor a, which ends at 4");
    refuses(state,
            make("{" A_0_4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
            "tensor b: begins at 0 and overlaps tensor a, which ends at 4");
}

static void refuses_a_hole(void **state)
{
    refuses(state,
            make("{" A_0_4 ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}", 9),
            "tensor b: begins at 5 and leaves a gap after 4");
    refuses(state, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8),
            "tensor a: begins at 4 and leaves a gap after 0");
}

static void refuses_trailing_bytes(void **state)
{
    refuses(state, make("{" A_0_4 "}", 5), "has 1 bytes after its last tensor, must have none");
    refuses(state, make("{}", 16), "has 16 bytes after its last tensor, must have none");
}

static void refuses_duplicate_names(void **state)
{
    refuses(state, make("{" A_0_4 "," A_0_4 "}", 4),
            "line 1, column 57: duplicate object key near '\"a\"'");
    refuses(state, make("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0),
            "line 1, column 28: duplicate object key near '\"k\"'");
}

static void refuses_metadata_that_is_no_map_of_strings(void **state)
{
    refuses(state, make("{\"__metadata__\":[]}", 0), "__metadata__ must be an object");
    refuses(state, make("{\"__metadata__\":{\"step\":3}}", 0),
            "__metadata__: the value of step must be a string");
    refuses(state, make("{\"__metadata__\":{\"k\":{\"x\":\"y\"}}}", 0),
            "__metadata__: the value of k must be a string");
}

static void sentences_stay_on_one_line(void **state)
{
    refuses(state, make("{\"a\\nb\":7}", 0), "tensor a?b: must be an object");
    char name[301] = "", header[400], want[400];
    memset(name, 'n', sizeof name - 1);
    snprintf(header, sizeof header, "{\"%s\":7}", name);
    snprintf(want, sizeof want, "tensor %.99s: must be an object", name);
    refuses(state, make(header, 0), want);
}

static void refuses_what_is_no_regular_file(void **state)
{
    place *p = *state;
    ech__safetensors *file;
    assert_int_equal(ech__safetensors_open(p->ctx, p->dir, &file), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "is a directory, not a regular file"));
    assert_int_equal(ech__safetensors_open(p->ctx, p->path, &file), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "No such file or directory"));
    assert_null(file);
}

/* ---- well-formed files ---- */

static void reads_in_the_order_of_the_data(void **state)
{
    place *p = *state;
    ech__safetensors *file;
    image m = make("{\"b\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[4,6]},"
                   "\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"x\"}," A_0_4
                   ",\"none\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[4,4]}}   ",
                   6);
    uint8_t got[4];
    assert_int_equal(ech__safetensors_parse(p->ctx, "mem", m.bytes, m.count, &file), ECH_OK);
    assert_int_equal(ech__safetensors_count(file), 3);
    assert_string_equal(ech__safetensors_at(file, 0)->name, "a");
    assert_string_equal(ech__safetensors_at(file, 1)->name, "none");
    assert_string_equal(ech__safetensors_at(file, 2)->name, "b");
    const ech__safetensor *b = ech__safetensors_find(file, "b");
    assert_ptr_equal(b, ech__safetensors_at(file, 2));
    assert_int_equal(b->dtype, ECH_U8);
    assert_int_equal(b->bytes, 2);
    assert_true(ech__shape_equal(&b->shape, &(ech__shape){2, {2, 1}}));
    assert_null(ech__safetensors_find(file, "c"));
    assert_null(ech__safetensors_find(file, "__metadata__"));
    assert_int_equal(ech__safetensors_read(file, b, 0, got, 2), ECH_OK);
    assert_memory_equal(got, ((uint8_t[]){4, 5}), 2);
    assert_int_equal(ech__safetensors_metadata_count(file), 2);
    assert_string_equal(ech__safetensors_metadata(file, "format"), "pt");
    assert_string_equal(ech__safetensors_metadata_at(file, 1)->key, "\xc3\xa9");
    assert_null(ech__safetensors_metadata(file, "none"));
    ech__safetensors_close(file);
}

static void every_type_has_its_size(void **state)
{
    static const struct {
        const char *name;
        ech_dtype dtype;
        int bytes;
    } types[] = {{"F32", ECH_F32, 4}, {"F64", ECH_F64, 8}, {"BF16", ECH_BF16, 2},
                 {"F16", ECH_F16, 2}, {"I8", ECH_S8, 1},   {"U8", ECH_U8, 1},
                 {"I32", ECH_S32, 4}, {"I64", ECH_S64, 8}};
    place *p = *state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[128];
        ech__safetensors *file;
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}", types[i].name,
                 3 * types[i].bytes);
        image m = make(header, 3 * (size_t)types[i].bytes);
        assert_int_equal(ech__safetensors_parse(p->ctx, "mem", m.bytes, m.count, &file), ECH_OK);
        assert_int_equal(ech__safetensors_at(file, 0)->dtype, types[i].dtype);
        ech__safetensors_close(file);
    }
}

static const ech__safetensor model[] = {
    {.name = "fc1.weight", .dtype = ECH_F32, .shape = {2, {3, 5}}},
    {.name = "step", .dtype = ECH_S64, .shape = {0}},
    {.name = "empty", .dtype = ECH_F32, .shape = {1, {0}}},
    {.name = "\"odd\" \xc3\xa9", .dtype = ECH_S8, .shape = {3, {7, 1, 1}}},
};
static const ech__safetensors_pair notes[] = {{"format", "pt"}, {"line", "a\nb"}};
static const ech__safetensors_header model_header = {
    .tensors = model, .count = 4, .metadata = notes, .metadata_count = 2};
enum { MODEL_BYTES = 60 + 8 + 0 + 7 };

/* Writes the model in pieces of the given size. */
static void write_model(place *p, size_t piece)
{
    uint8_t data[MODEL_BYTES];
    ech__safetensors_writer *w;
    struct stat st;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(200 + i);
    assert_int_equal(ech__safetensors_writer_create(p->ctx, p->path, &model_header, &w), ECH_OK);
    for (size_t at = 0; at < sizeof data; at += piece) {
        const size_t part = sizeof data - at < piece ? sizeof data - at : piece;
        assert_int_equal(ech__safetensors_writer_write(w, data + at, part), ECH_OK);
    }
    assert_int_equal(stat(p->path, &st), -1);
    assert_int_equal(ech__safetensors_writer_commit(w), ECH_OK);
    ech__safetensors_writer_destroy(w);
}

static void writes_exactly_these_bytes(void **state)
{
    place *p = *state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"line\":\"a\\nb\"},"
        "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[3,5],\"data_offsets\":[0,60]},"
        "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[60,68]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[68,68]},"
        "\"\\\"odd\\\" \xc3\xa9\":{\"dtype\":\"I8\",\"shape\":[7,1,1],\"data_offsets\":[68,75]}}";
    const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    for (size_t piece = 1; piece <= MODEL_BYTES; piece += 37) {
        char *text;
        size_t bytes;
        write_model(p, piece);
        assert_int_equal(ech__file_read(p->ctx, p->path, 4096, &text, &bytes), ECH_OK);
        assert_int_equal(bytes, 8 + padded + MODEL_BYTES);
        assert_int_equal((uint8_t)text[0] | (uint8_t)text[1] << 8, padded);
        assert_memory_equal(text + 2, "\0\0\0\0\0", 6);
        assert_memory_equal(text + 8, header, sizeof header - 1);
        for (size_t i = sizeof header - 1; i < padded; i++)
            assert_int_equal(text[8 + i], ' ');
        for (size_t i = 0; i < MODEL_BYTES; i++)
            assert_int_equal((uint8_t)text[8 + padded + i], (uint8_t)(200 + i));
        free(text);
        unlink(p->path);
    }
}

static void what_was_written_reads_back(void **state)
{
    place *p = *state;
    ech__safetensors *file;
    int64_t at = 0;
    write_model(p, 11);
    assert_int_equal(ech__safetensors_open(p->ctx, p->path, &file), ECH_OK);
    assert_int_equal(ech__safetensors_count(file), 4);
    for (size_t i = 0; i < 4; i++) {
        const ech__safetensor *t = ech__safetensors_find(file, model[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, model[i].dtype);
        assert_true(ech__shape_equal(&t->shape, &model[i].shape));
        /* Byte by byte, which is the smallest piece. */
        for (int64_t k = 0; k < t->bytes; k++, at++) {
            uint8_t byte;
            assert_int_equal(ech__safetensors_read(file, t, k, &byte, 1), ECH_OK);
            assert_int_equal(byte, (uint8_t)(200 + at));
        }
    }
    assert_int_equal(at, MODEL_BYTES);
    assert_string_equal(ech__safetensors_metadata(file, "line"), "a\nb");
    ech__safetensors_close(file);
}

static void reading_outside_a_tensor_is_refused(void **state)
{
    place *p = *state;
    ech__safetensors *file;
    uint8_t buffer[64];
    write_model(p, 64);
    assert_int_equal(ech__safetensors_open(p->ctx, p->path, &file), ECH_OK);
    const ech__safetensor *t = ech__safetensors_find(file, "step");
    assert_int_equal(ech__safetensors_read(file, t, 8, buffer, 0), ECH_OK);
    assert_int_equal(ech__safetensors_read(file, t, 1, buffer, 8), ECH_E_INVALID);
    assert_non_null(
        strstr(ech_ctx_error(p->ctx), "tensor step: 8 bytes at 1 were asked for, it has 8"));
    assert_int_equal(ech__safetensors_read(file, t, -1, buffer, 1), ECH_E_INVALID);
    assert_int_equal(ech__safetensors_read(file, t, 9, buffer, 0), ECH_E_INVALID);
    assert_int_equal(ech__safetensors_read(file, t, 4, buffer, SIZE_MAX), ECH_E_INVALID);
    ech__safetensors_close(file);
}

static void a_file_that_shrinks_is_noticed(void **state)
{
    place *p = *state;
    ech__safetensors *file;
    uint8_t buffer[64];
    write_model(p, 64);
    assert_int_equal(ech__safetensors_open(p->ctx, p->path, &file), ECH_OK);
    const ech__safetensor *t = ech__safetensors_at(file, 0);
    assert_int_equal(truncate(p->path, t->offset + 10), 0);
    assert_int_equal(ech__safetensors_read(file, t, 0, buffer, 60), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "50 bytes before what was asked for"));
    ech__safetensors_close(file);
}

static void too_much_or_too_little_data_is_refused(void **state)
{
    place *p = *state;
    uint8_t data[MODEL_BYTES + 1] = {0};
    ech__safetensors_writer *w;
    assert_int_equal(ech__safetensors_writer_create(p->ctx, p->path, &model_header, &w), ECH_OK);
    assert_int_equal(ech__safetensors_writer_write(w, data, sizeof data), ECH_E_INVALID);
    assert_non_null(
        strstr(ech_ctx_error(p->ctx), ": 1 bytes more than the 75 that its tensors have"));
    assert_int_equal(ech__safetensors_writer_write(w, data, 70), ECH_OK);
    assert_int_equal(ech__safetensors_writer_commit(w), ECH_E_INVALID);
    assert_non_null(
        strstr(ech_ctx_error(p->ctx), ": 70 of the 75 bytes that its tensors have were written"));
    ech__safetensors_writer_destroy(w);
    assert_int_equal(access(p->path, F_OK), -1);
}

static void writer_refuses(place *p, ech__safetensor a, ech__safetensor b, const char *sentence)
{
    const ech__safetensor both[] = {a, b};
    const ech__safetensors_header header = {.tensors = both, .count = 2};
    ech__safetensors_writer *w;
    assert_int_equal(ech__safetensors_writer_create(p->ctx, p->path, &header, &w), ECH_E_INVALID);
    assert_null(w);
    char want[300];
    snprintf(want, sizeof want, "%s: %s", p->path, sentence);
    assert_string_equal(ech_ctx_error(p->ctx), want);
}

static void the_writer_checks_names_and_shapes(void **state)
{
    place *p = *state;
    const ech__safetensor good = {.name = "a", .shape = {1, {1}}};
    writer_refuses(p, good, good, "tensor a: the name is taken");
    writer_refuses(p, good, (ech__safetensor){.name = "__metadata__"},
                   "tensor __metadata__: the name is taken");
    writer_refuses(p, good, (ech__safetensor){.name = "b", .shape = {1, {ECH_BATCH}}},
                   "tensor b: shape [N] cannot be written");
    writer_refuses(p, good, (ech__safetensor){.name = "b", .shape = {1, {INT64_MAX / 4}}},
                   "tensor b: shape [2305843009213693951] cannot be written");
    writer_refuses(p, good, (ech__safetensor){.name = "b\xff"},
                   "tensor b\xff: no memory, or the name is not UTF-8");
}

/* Past 4 GB. The middle of the file is a hole on the disk, so that the test is cheap. */
static void offsets_have_64_bits(void **state)
{
    place *p = *state;
    const int64_t big = ((int64_t)5 << 30) + 1;
    char header[200];
    ech__safetensors *file;
    snprintf(header, sizeof header,
             "{\"big\":{\"dtype\":\"U8\",\"shape\":[%" PRId64 "],\"data_offsets\":[0,%" PRId64 "]},"
             "\"last\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%" PRId64 ",%" PRId64
             "]}}",
             big, big, big, big + 1);
    image m = make(header, 0);
    int fd = open(p->path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(write(fd, m.bytes, m.count), m.count);
    if (pwrite(fd, "zy", 2, (off_t)m.count + big - 1) != 2) {
        close(fd);
        skip(); /* the file system has no room for such an offset */
    }
    close(fd);
    assert_int_equal(ech__safetensors_open(p->ctx, p->path, &file), ECH_OK);
    uint8_t byte;
    const ech__safetensor *t = ech__safetensors_find(file, "big");
    assert_int_equal(t->bytes, big);
    assert_int_equal(ech__safetensors_read(file, t, big - 1, &byte, 1), ECH_OK);
    assert_int_equal(byte, 'z');
    assert_int_equal(ech__safetensors_read(file, t, big - 2, &byte, 1), ECH_OK);
    assert_int_equal(byte, 0);
    assert_int_equal(ech__safetensors_read(file, ech__safetensors_find(file, "last"), 0, &byte, 1),
                     ECH_OK);
    assert_int_equal(byte, 'y');
    ech__safetensors_close(file);
}

/* An allocator that gives out a number of pieces and then none. */
typedef struct meter {
    int left, alive;
} meter;

static void *meter_alloc(void *user, size_t bytes, size_t align)
{
    meter *m = user;
    (void)align;
    if (m->left-- <= 0)
        return NULL;
    m->alive++;
    return malloc(bytes);
}

static void meter_free(void *user, void *ptr, size_t bytes)
{
    meter *m = user;
    (void)bytes;
    m->alive--;
    free(ptr);
}

static void running_out_of_memory_is_a_status(void **state)
{
    (void)state;
    image m = make("{" A_0_4 "}", 4);
    bool succeeded = false;
    for (int limit = 1; limit < 20 && !succeeded; limit++) {
        meter gauge = {.left = limit};
        const ech_ctx_options options = {.alloc = {meter_alloc, meter_free, &gauge}};
        ech_ctx *ctx;
        ech__safetensors *file;
        assert_int_equal(ech_ctx_create(&options, &ctx), ECH_OK);
        ech_status status = ech__safetensors_parse(ctx, "mem", m.bytes, m.count, &file);
        succeeded = status == ECH_OK;
        if (succeeded) {
            ech__safetensors_close(file);
        } else {
            assert_int_equal(status, ECH_E_NOMEM);
            assert_string_equal(ech_ctx_error(ctx), "cannot allocate memory for the header of mem");
        }
        ech_ctx_destroy(ctx);
        assert_int_equal(gauge.alive, 0);
    }
    assert_true(succeeded);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(accepts_what_the_cases_start_from),
        TEST(refuses_an_empty_file),
        TEST(refuses_seven_bytes),
        TEST(refuses_header_length_0),
        TEST(refuses_a_huge_header),
        TEST(refuses_a_header_past_the_end),
        TEST(refuses_a_header_that_is_no_object),
        TEST(refuses_deep_nesting),
        TEST(refuses_an_entry_that_is_no_object),
        TEST(refuses_a_missing_key),
        TEST(refuses_other_types_by_name),
        TEST(refuses_wrong_dimensions),
        TEST(refuses_a_shape_that_overflows),
        TEST(refuses_sizes_that_disagree),
        TEST(refuses_reversed_offsets),
        TEST(refuses_offsets_that_are_no_pair),
        TEST(refuses_offsets_past_the_end),
        TEST(refuses_overlap),
        TEST(refuses_a_hole),
        TEST(refuses_trailing_bytes),
        TEST(refuses_duplicate_names),
        TEST(refuses_metadata_that_is_no_map_of_strings),
        TEST(sentences_stay_on_one_line),
        TEST(refuses_what_is_no_regular_file),
        TEST(reads_in_the_order_of_the_data),
        TEST(every_type_has_its_size),
        TEST(writes_exactly_these_bytes),
        TEST(what_was_written_reads_back),
        TEST(reading_outside_a_tensor_is_refused),
        TEST(a_file_that_shrinks_is_noticed),
        TEST(too_much_or_too_little_data_is_refused),
        TEST(the_writer_checks_names_and_shapes),
        TEST(offsets_have_64_bits),
        TEST(running_out_of_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
