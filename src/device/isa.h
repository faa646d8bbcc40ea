/* The vector instructions that kernels may use: one ordered level for our own loops, oneDNN and
 * OpenBLAS.
 *
 * The level in force is the processor's own, or less where the environment variable ECHELON_ISA
 * names a lower one. It is decided once for the process, because oneDNN and OpenBLAS decide once
 * too; whatever dispatches on the processor asks here.
 *
 *     ECH_TRY(ech__isa_check(ctx));     when a device opens: refuses a level that is not available
 *     if (ech__isa_level() >= ECH__ISA_AVX2) ...
 */
#pragma once

#include "base/status.h"

/* Each level includes those before it. Last: the core type of OpenBLAS that stays within the
 * level. "generic" is C that is compiled for every processor; of oneDNN it is SSE4.1, the least
 * that it can be limited to. */
#define ECH__ISA_LIST(X)                                                                           \
    X(GENERIC, "generic", "Nehalem")                                                               \
    X(AVX2, "avx2", "Haswell")                /* with FMA and F16C */                              \
    X(AVX512, "avx512", "SkylakeX")           /* F, BW, VL, DQ */                                  \
    X(AVX512_VNNI, "avx512_vnni", "SkylakeX") /* products of bytes, added up in 32 bits */         \
    X(AVX512_BF16, "avx512_bf16", "Cooperlake")

typedef enum ech__isa {
#define ECH__ISA_ENUM(id, text, core) ECH__ISA_##id,
    ECH__ISA_LIST(ECH__ISA_ENUM)
#undef ECH__ISA_ENUM
        ECH__ISA_COUNT
} ech__isa;

/* "|generic|avx2|...", for option tables. */
#define ECH__ISA_CHOICE(id, text, core) "|" text
#define ECH__ISA_CHOICES ECH__ISA_LIST(ECH__ISA_CHOICE)
#define ECH__ISA_HELP                                                                              \
    "Vector instructions that kernels, oneDNN and OpenBLAS may use at most: generic, avx2, "       \
    "avx512, avx512_vnni or avx512_bf16. Default: $ECHELON_ISA, or all that the processor has."

#define ECH__ISA_VARIABLE "ECHELON_ISA"

/* The levels that our own loops are compiled for (cpu/vec/width.h), and the suffix of their
 * tables' names. */
#ifdef ECH_X86
#define ECH__WIDTH_LIST(X) X(GENERIC, generic) X(AVX2, avx2) X(AVX512, avx512)
#else
#define ECH__WIDTH_LIST(X) X(GENERIC, generic)
#endif

typedef enum ech__width {
#define ECH__WIDTH_ENUM(id, suffix) ECH__WIDTH_##id,
    ECH__WIDTH_LIST(ECH__WIDTH_ENUM)
#undef ECH__WIDTH_ENUM
} ech__width;

const char *ech__isa_name(ech__isa isa);

/* The highest level that this processor has. */
ech__isa ech__isa_of_processor(void);

/* Refuses a text that names no level, or one that this processor does not have. source: where
 * the text comes from. */
ech_status ech__isa_possible(ech_ctx *ctx, const char *source, const char *text);
/* The same of the value of ECHELON_ISA. */
ech_status ech__isa_check(ech_ctx *ctx);

/* The level in force. A value that ech__isa_check refuses counts as none. */
ech__isa ech__isa_level(void);
/* The widest loops that a level allows. */
ech__width ech__isa_width(ech__isa level);
/* Whether ECHELON_ISA asks for the level: then libraries are limited to it, even where it is the
 * processor's own. */
bool ech__isa_is_set(void);

/* OpenBLAS reads the variable OPENBLAS_CORETYPE when the program is loaded: the value that
 * limits it to the level in force, or NULL where nothing need be set. */
const char *ech__isa_openblas_core(void);
