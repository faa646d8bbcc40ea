/* Checkpoints on disk: complete or absent, also after a power failure.
 *
 *     DIR/LATEST                 the name of the newest: "step-000120"
 *     DIR/step-000120/           model.safetensors, optimizer.safetensors, state.json: the parts;
 *                                where every rank has running statistics of its own, also
 *                                buffers.safetensors
 *                                MANIFEST.json: size and SHA-256 of every part
 *                                COMPLETE: SHA-256 of the manifest, written last
 *     DIR/step-000100/           the one before, until there is a third
 *
 * A checkpoint is written into a directory with another name: the parts, the manifest, the marker,
 * each durable before the next. Then it is renamed, then LATEST is replaced, and only then older
 * checkpoints are removed.
 *
 *     ech__checkpoint_dir *dir;
 *     ECH_TRY(ech__checkpoint_dir_open(ctx, "ckpt", NULL, &dir));         locks it against other runs
 *     ECH_TRY(ech__checkpoint_begin(dir, 120));
 *     ... write the parts at ech__checkpoint_new_path(dir, ECH__CHECKPOINT_MODEL, path) ...
 *     s = ech__checkpoint_commit(dir);                                    from now on it exists
 *     ech__checkpoint_dir_close(dir);                                     deletes what was not committed
 *
 *     char path[ECH_DIR_MAX_PATH];
 *     ECH_TRY(ech__checkpoint_find(ctx, "ckpt", path));                   "ckpt/step-000120"
 *     ECH_TRY(ech__checkpoint_verify(ctx, path));                         every size and hash
 */
#pragma once

#include "base/file/dir.h"

#define ECH__CHECKPOINT_FILE_LIST(X)                                                               \
    X(MODEL, "model.safetensors")                                                                  \
    X(OPTIMIZER, "optimizer.safetensors")                                                          \
    X(STATE, "state.json")                                                                         \
    X(BUFFERS, "buffers.safetensors")

typedef enum ech__checkpoint_file {
#define ECH__CHECKPOINT_FILE_ENUM(id, name) ECH__CHECKPOINT_##id,
    ECH__CHECKPOINT_FILE_LIST(ECH__CHECKPOINT_FILE_ENUM)
#undef ECH__CHECKPOINT_FILE_ENUM
        ECH__CHECKPOINT_COUNT
} ech__checkpoint_file;

enum {
    ECH__CHECKPOINT_NEEDED = ECH__CHECKPOINT_BUFFERS, /* those before it are in every checkpoint */
    ECH__CHECKPOINT_FORMAT = 1,
    ECH__CHECKPOINT_NAME = 32, /* bytes of "step-000120", with its NUL */
};

/* The path of a part of the checkpoint at `checkpoint`, whether it is there or not. */
ech_status ech__checkpoint_file_path(ech_ctx *ctx, const char *checkpoint,
                                     ech__checkpoint_file part, char out[ECH_DIR_MAX_PATH]);

/* ---- manifest ---- */

typedef struct ech__manifest {
    int64_t bytes[ECH__CHECKPOINT_COUNT]; /* -1: there is no such part */
    char sha256[ECH__CHECKPOINT_COUNT][65];
} ech__manifest;

/* what names the text in error messages. Every part that is needed must be there, and no other
 * file. */
ech_status ech__manifest_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                               ech__manifest *out);

/* ---- reading ---- */

/* The checkpoint in dir: the one that LATEST names, the one with the most steps if there is no
 * LATEST, or dir itself if it is a checkpoint. */
ech_status ech__checkpoint_find(ech_ctx *ctx, const char *dir, char out[ECH_DIR_MAX_PATH]);
/* Whether it is complete and its parts match the manifest. Reads every byte. */
ech_status ech__checkpoint_verify(ech_ctx *ctx, const char *checkpoint);

/* ---- writing ---- */

typedef struct ech__checkpoint_dir ech__checkpoint_dir;

/* resumed is the checkpoint that the run resumes from, or NULL: a directory that holds checkpoints
 * of another run is refused, and so is one that another run has open. */
ech_status ech__checkpoint_dir_open(ech_ctx *ctx, const char *dir, const char *resumed,
                                    ech__checkpoint_dir **out);
/* NULL is fine. A directory that was made for it and is still empty is gone then. */
void ech__checkpoint_dir_close(ech__checkpoint_dir *dir);

ech_status ech__checkpoint_begin(ech__checkpoint_dir *dir, int64_t step);
/* Where to write a part of the checkpoint that was begun. */
ech_status ech__checkpoint_new_path(ech__checkpoint_dir *dir, ech__checkpoint_file part,
                                    char out[ECH_DIR_MAX_PATH]);
/* All parts that are needed must have been written. After a failure the previous checkpoint is
 * unchanged. */
ech_status ech__checkpoint_commit(ech__checkpoint_dir *dir);
/* Removes what was begun. */
void ech__checkpoint_abort(ech__checkpoint_dir *dir);

/* The step of the newest checkpoint here that this run saved or goes on from; -1: none. */
int64_t ech__checkpoint_last(const ech__checkpoint_dir *dir);
