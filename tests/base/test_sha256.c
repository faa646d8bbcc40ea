/* SHA-256 against the examples of FIPS 180-4 and between its two implementations. */
#include "base/file/sha256.h"

#include "support/cmocka_first.h"
#include <stdlib.h>
#include <string.h>

typedef void (*init_fn)(ech__sha256 *sha);
static const init_fn inits[] = {ech__sha256_init, ech__sha256_init_portable};

static const struct {
    const char *text, *digest;
} vectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
     "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void published_vectors(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
            ech__sha256 sha;
            inits[k](&sha);
            ech__sha256_update(&sha, vectors[i].text, strlen(vectors[i].text));
            assert_string_equal(ech__sha256_final(&sha).s, vectors[i].digest);
        }
    }
}

static void a_million_letters(void **state)
{
    (void)state;
    char part[1000];
    memset(part, 'a', sizeof part);
    for (size_t k = 0; k < 2; k++) {
        ech__sha256 sha;
        inits[k](&sha);
        for (int i = 0; i < 1000; i++)
            ech__sha256_update(&sha, part, sizeof part);
        assert_string_equal(ech__sha256_final(&sha).s,
                            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* Every length around the block borders, in one piece and in pieces of every size, both ways. */
static void splits_do_not_matter(void **state)
{
    (void)state;
    uint8_t data[300];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + i / 7);
    for (size_t len = 0; len <= sizeof data; len++) {
        ech__sha256 whole;
        ech__sha256_init_portable(&whole);
        ech__sha256_update(&whole, data, len);
        const ech__sha256_text want = ech__sha256_final(&whole);
        for (size_t step = 1; step <= 131; step += 13) {
            ech__sha256 sha;
            ech__sha256_init(&sha);
            for (size_t at = 0; at < len; at += step)
                ech__sha256_update(&sha, data + at, len - at < step ? len - at : step);
            ech__sha256_update(&sha, NULL, 0);
            assert_string_equal(ech__sha256_final(&sha).s, want.s);
        }
    }
}

/* More than 2^32 bits: the length counts in 64. */
static void more_than_half_a_gigabyte(void **state)
{
    (void)state;
    const size_t part = 1 << 20;
    uint8_t *zeros = calloc(1, part);
    ech__sha256 sha;
    ech__sha256_init(&sha);
    for (int i = 0; i < 513; i++)
        ech__sha256_update(&sha, zeros, part);
    assert_string_equal(ech__sha256_final(&sha).s,
                        "a3e2acbb469e4e59dde406f912e754c933c1ac0fb0092a3634d61d5073309c0c");
    free(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(a_million_letters),
        cmocka_unit_test(splits_do_not_matter),
        cmocka_unit_test(more_than_half_a_gigabyte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
