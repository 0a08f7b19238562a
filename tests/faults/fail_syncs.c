/* Preloaded into a server: as long as the file FAIL_WHEN is there, no file below the directory FAIL_UNDER can be
   synced, as on a disk that has failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int file) {
    const char *under = getenv("FAIL_UNDER"), *when = getenv("FAIL_WHEN");
    char link[64], path[4096];
    if (!under || !when || access(when, F_OK) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strncmp(path, under, strlen(under)) == 0;
}

static int synced(const char *name, int file) {
    if (fails(file)) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(file);
}

int fsync(int file) { return synced("fsync", file); }
int fdatasync(int file) { return synced("fdatasync", file); }
int syncfs(int file) { return synced("syncfs", file); }
