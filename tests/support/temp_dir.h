/* A directory of its own for a test, gone with all that is in it when the test is over.
 *
 *     temp_dir dir = temp_dir_create();
 *     char path[TEMP_PATH];
 *     temp_dir_path(&dir, "tuning.json", path);
 *     temp_dir_destroy(&dir);
 */
#pragma once

typedef struct temp_dir {
    char path[64];
} temp_dir;

enum { TEMP_PATH = 384 };

temp_dir temp_dir_create(void);
/* Removes the files in it, and it; there may be no directories in it. */
void temp_dir_destroy(temp_dir *dir);
/* The path of a file in it. */
void temp_dir_path(const temp_dir *dir, const char *name, char out[TEMP_PATH]);
