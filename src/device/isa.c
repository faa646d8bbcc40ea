#include "device/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef ECH_X86
#include <cpuid.h>

/* Not every compiler knows these features by name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}
#endif

static const struct {
    const char *name, *openblas_core;
} levels[] = {
#define ROW(id, text, core) {text, core},
    ECH__ISA_LIST(ROW)
#undef ROW
};

const char *ech__isa_name(ech__isa isa)
{
    return levels[isa].name;
}

ech__isa ech__isa_of_processor(void)
{
#ifdef ECH_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return ECH__ISA_GENERIC;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return ECH__ISA_AVX2;
    if (!__builtin_cpu_supports("avx512vnni"))
        return ECH__ISA_AVX512;
    return has_bf16() ? ECH__ISA_AVX512_BF16 : ECH__ISA_AVX512_VNNI;
#else
    return ECH__ISA_GENERIC;
#endif
}

/* ECH__ISA_COUNT where the text names no level. */
static ech__isa level_named(const char *text)
{
    ech__isa isa = 0;
    while (isa < ECH__ISA_COUNT && strcmp(levels[isa].name, text))
        isa++;
    return isa;
}

/* NULL where nothing is asked for. */
static const char *asked(void)
{
    const char *text = getenv(ECH__ISA_VARIABLE);
    return text && *text ? text : NULL;
}

ech_status ech__isa_possible(ech_ctx *ctx, const char *source, const char *text)
{
    const ech__isa has = ech__isa_of_processor(), wanted = level_named(text);
    if (wanted == ECH__ISA_COUNT)
        return ech__fail(ctx, ECH_E_INVALID, "%s '%.64s': must be one of %s; this processor has %s",
                         source, text, &ECH__ISA_CHOICES[1], levels[has].name);
    if (wanted > has)
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s %s: this processor has no more than %s",
                         source, text, levels[has].name);
    return ECH_OK;
}

ech_status ech__isa_check(ech_ctx *ctx)
{
    const char *text = asked();
    return text ? ech__isa_possible(ctx, ECH__ISA_VARIABLE, text) : ECH_OK;
}

/* ---- the decision, once for the process ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    ech__isa level;
    bool set;
} decision;

static void decide(void)
{
    const char *text = asked();
    const ech__isa has = ech__isa_of_processor(), wanted = text ? level_named(text) : has;
    decision.set = text && wanted <= has;
    decision.level = decision.set ? wanted : has;
}

ech__isa ech__isa_level(void)
{
    pthread_once(&once, decide);
    return decision.level;
}

ech__width ech__isa_width(ech__isa level)
{
    ech__width widest = ECH__WIDTH_GENERIC;
#define WIDEN(id, suffix) widest = level >= ECH__ISA_##id ? ECH__WIDTH_##id : widest;
    ECH__WIDTH_LIST(WIDEN)
#undef WIDEN
    return widest;
}

bool ech__isa_is_set(void)
{
    pthread_once(&once, decide);
    return decision.set;
}

const char *ech__isa_openblas_core(void)
{
    const ech__isa level = ech__isa_level();
    return level == ech__isa_of_processor() ? NULL : levels[level].openblas_core;
}
