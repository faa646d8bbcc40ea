/* lab_prog_tell DIR: writes the small lab directory of tests/support/lab_fixture.h, its study told
 * with a noise of 2 %. */
#include "support/lab_fixture.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    ech_ctx *ctx;
    lab_fixture lab;
    ech_json *study;
    if (argc != 2 || ech_ctx_create(NULL, &ctx) < 0)
        return 2;
    lab_fixture_write(ctx, &lab, argv[1]);
    ech__sheet_options options = lab_fixture_options(&lab, &lab_fixture_card);
    options.noise = 0.02;
    if (ech__sheet_tell(ctx, &options, &study) < 0) {
        fprintf(stderr, "%s\n", ech_ctx_error(ctx));
        return 1;
    }
    lab_fixture_save(ctx, &lab, study, "told");
    ech__json_destroy(study);
    ech_ctx_destroy(ctx);
    return 0;
}
