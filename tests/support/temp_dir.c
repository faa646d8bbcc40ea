#include "support/temp_dir.h"
#include "support/cmocka_first.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

temp_dir temp_dir_create(void)
{
    temp_dir dir = {"/tmp/echelon-test-XXXXXX"};
    assert_non_null(mkdtemp(dir.path));
    return dir;
}

void temp_dir_path(const temp_dir *dir, const char *name, char out[TEMP_PATH])
{
    snprintf(out, TEMP_PATH, "%s/%s", dir->path, name);
}

void temp_dir_destroy(temp_dir *dir)
{
    DIR *list = opendir(dir->path);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[TEMP_PATH];
        temp_dir_path(dir, entry->d_name, path);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(unlink(path), 0);
    }
    closedir(list);
    assert_int_equal(rmdir(dir->path), 0);
}
