/* SHA-256 (FIPS 180-4) over a stream of bytes, with the processor's own instructions where it has them.
 *
 *     ech__sha256 sha;
 *     ech__sha256_init(&sha);
 *     ech__sha256_update(&sha, data, bytes);            as often as needed
 *     ech__sha256_text hex = ech__sha256_final(&sha);   hex.s: 64 digits
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct ech__sha256 {
    uint32_t state[8];
    uint64_t bytes;    /* taken so far */
    uint8_t block[64]; /* the last bytes % 64 of them */
    void (*compress)(uint32_t state[8], const uint8_t *blocks, size_t count);
} ech__sha256;

typedef struct ech__sha256_text {
    char s[65];
} ech__sha256_text;

void ech__sha256_init(ech__sha256 *sha);
/* The same function in plain C, whatever the processor has. */
void ech__sha256_init_portable(ech__sha256 *sha);
void ech__sha256_update(ech__sha256 *sha, const void *data, size_t bytes);
/* The digest in lower-case hexadecimal. The stream is over: init before the next. */
ech__sha256_text ech__sha256_final(ech__sha256 *sha);
