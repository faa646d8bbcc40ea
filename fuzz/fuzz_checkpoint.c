/* Any bytes as the texts of a checkpoint, a state or a manifest: either a sentence on one line, or values that can be
 * used as they are; and a state that is written again reads back. */
#include "train/checkpoint/dir.h"
#include "train/checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void must_be_sentence(const ech_ctx *ctx)
{
    must(ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
}

static void use_manifest(ech_ctx *ctx, const char *text, size_t bytes)
{
    ech__manifest manifest;
    if (ech__manifest_parse(ctx, "manifest", text, bytes, &manifest) < 0) {
        must_be_sentence(ctx);
        return;
    }
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++)
        must((manifest.bytes[p] >= 0 && strlen(manifest.sha256[p]) == 64) ||
             (manifest.bytes[p] == -1 && p >= ECH__CHECKPOINT_NEEDED));
}

static void check_state(ech_ctx *ctx, const ech__checkpoint_state *s)
{
    must(s->step >= 1 && s->epoch >= 0 && s->epoch_step >= 0 && s->now.samples >= 0);
    must(s->nepochs <= (size_t)s->epoch);
    must(s->updates >= 0 && s->updates <= s->step);
    must(!s->scaler.on || ech__scaler_is_sound(&s->scaler));
    for (size_t i = 0; i < s->nepochs; i++)
        must(s->epochs[i].epoch == (int64_t)i + 1 && s->epochs[i].test.samples >= 0);
    for (size_t i = 0; i < s->choices.nkernels; i++)
        must(s->choices.kernels[i].op && s->choices.kernels[i].name &&
             s->choices.kernels[i].kernel);
    for (size_t i = 0; i < s->choices.nlayouts; i++)
        must(ech__choices_layout(&s->choices, s->choices.layouts[i].value) != NULL);
    must(ech__checkpoint_state_agree(ctx, s, s->config) == ECH_OK);
}

static void use_state(ech_ctx *ctx, const char *text, size_t bytes)
{
    ech__checkpoint_state state, again;
    if (ech__checkpoint_state_parse(ctx, "state", text, bytes, &state) < 0) {
        must_be_sentence(ctx);
        ech__checkpoint_state_fini(&state);
        return;
    }
    check_state(ctx, &state);
    ech_json *choices = ech__json_object();
    ech__json_set(&choices, "kernels", ech__json_array());
    ech__json_set(&choices, "layouts", ech__json_object());
    ech_json *json = ech__checkpoint_state_json(&state, choices);
    char *written;
    size_t length;
    must(ech__json_dump(ctx, json, ECH_JSON_INDENT, &written, &length) == ECH_OK);
    must(ech__checkpoint_state_parse(ctx, "again", written, length, &again) == ECH_OK);
    must(again.step == state.step && again.nepochs == state.nepochs);
    must(ech__checkpoint_state_agree(ctx, &again, state.config) == ECH_OK);
    free(written);
    ech__json_destroy(json);
    ech__checkpoint_state_fini(&again);
    ech__checkpoint_state_fini(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    use_manifest(ctx, (const char *)data, size);
    use_state(ctx, (const char *)data, size);
    ech_ctx_destroy(ctx);
    return 0;
}
