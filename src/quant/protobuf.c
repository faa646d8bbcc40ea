#include "quant/protobuf.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH = 2 };

static void append(ech__proto *m, const void *data, size_t bytes)
{
    if (m->failed || !bytes)
        return;
    if (bytes > m->cap - m->size) {
        size_t cap = m->cap ? m->cap : 64;
        while (cap - m->size < bytes && cap <= SIZE_MAX / 2)
            cap *= 2;
        unsigned char *larger = cap - m->size < bytes ? NULL : realloc(m->data, cap);
        if (!larger) {
            m->failed = true;
            return;
        }
        m->data = larger;
        m->cap = cap;
    }
    memcpy(m->data + m->size, data, bytes);
    m->size += bytes;
}

static void append_varint(ech__proto *m, uint64_t value)
{
    unsigned char groups[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        groups[count++] = (unsigned char)(value | 0x80);
    groups[count++] = (unsigned char)value;
    append(m, groups, count);
}

static void append_key(ech__proto *m, int field, int type)
{
    append_varint(m, (uint64_t)field << 3 | (uint64_t)type);
}

void ech__proto_int(ech__proto *m, int field, int64_t value)
{
    append_key(m, field, VARINT);
    append_varint(m, (uint64_t)value);
}

void ech__proto_bytes(ech__proto *m, int field, const void *data, size_t bytes)
{
    append_key(m, field, LENGTH);
    append_varint(m, bytes);
    append(m, data, bytes);
}

void ech__proto_text(ech__proto *m, int field, const char *text)
{
    ech__proto_bytes(m, field, text, strlen(text));
}

void ech__proto_nest(ech__proto *m, int field, ech__proto *inner)
{
    m->failed |= inner->failed;
    ech__proto_bytes(m, field, inner->data, inner->size);
    ech__proto_fini(inner);
}

void ech__proto_fini(ech__proto *m)
{
    free(m->data);
    *m = (ech__proto){0};
}
