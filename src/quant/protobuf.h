/* The wire format of protocol buffers, as far as a writer of ONNX files needs it.
 *
 *     ech__proto node = {0};
 *     ech__proto_text(&node, 4, "Relu");
 *     ech__proto_nest(&graph, 1, &node);             node is empty again, its memory gone
 *     if (graph.failed) ...                          memory ran out on the way
 *     ech__proto_fini(&graph);
 *
 * A field is its number and type, then a number in groups of 7 bits, 4 bytes, or a length and as many bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ech__proto {
    unsigned char *data;
    size_t size, cap;
    bool failed;
} ech__proto;

void ech__proto_int(ech__proto *message, int field, int64_t value);
void ech__proto_bytes(ech__proto *message, int field, const void *data, size_t bytes);
void ech__proto_text(ech__proto *message, int field, const char *text);
void ech__proto_nest(ech__proto *message, int field, ech__proto *inner);
void ech__proto_fini(ech__proto *message);
