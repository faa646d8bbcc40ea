/* By which clock steps are timed. By the real one a time is that of N devices only where each has
 * cores of its own; the virtual one counts the time that each device's thread had a core, and the
 * exchange at its price, and so gives the time of N devices on fewer cores.
 *
 *     ech__core_share share;
 *     ECH_TRY(ech__core_share_find(ctx, &options, &share));                collective
 *     ECH_TRY(ech__clock_choose(ctx, &share, &options, &kind));        auto becomes real or virtual
 */
#pragma once

#include "train/step/trainer.h"

#define ECH__CLOCK_LIST(X)                                                                         \
    X(AUTO, "auto") /* virtual where devices outnumber cores */                                    \
    X(REAL, "real")                                                                                \
    X(VIRTUAL, "virtual")

typedef enum ech__clock_kind {
#define ECH__CLOCK_ENUM(id, text) ECH__CLOCK_##id,
    ECH__CLOCK_LIST(ECH__CLOCK_ENUM)
#undef ECH__CLOCK_ENUM
} ech__clock_kind;

const char *ech__clock_kind_name(ech__clock_kind kind); /* as --clock takes it */

/* What devices of one machine share: of the machine where cores are scarcest. */
typedef struct ech__core_share {
    int devices, cores;
    bool one_machine; /* all ranks are on it */
} ech__core_share;

/* Every rank gets the same. */
ech_status ech__core_share_find(ech_ctx *ctx, const ech_train_options *options,
                                ech__core_share *out);

/* auto: virtual where devices outnumber cores and can be timed so, else real. virtual gives each
 * device one thread, and is refused where it cannot be. */
ech_status ech__clock_choose(ech_ctx *ctx, const ech__core_share *share, ech_train_options *options,
                             ech__clock_kind *kind);

/* Links that nobody has described: the exchange through this machine's memory, where echelon plan
 * has measured it for about as many bytes as travel at a time, else the default. graph: of the
 * model, or NULL. */
ech__emulation ech__emulation_here(ech_ctx *ctx, const ech_graph *graph, int64_t bucket_bytes);

/* What `echelon run --clock ... --link ...` asks of a program, by ECHELON_CLOCK and ECHELON_LINK:
 * real where they are not set. */
ech_status ech__clock_asked(ech_ctx *ctx, const ech_graph *graph, int64_t bucket_bytes,
                            ech__clock_kind *kind, ech__emulation *emulation);
