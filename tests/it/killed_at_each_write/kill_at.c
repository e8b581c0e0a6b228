/* Kills the process at the Nth call that changes a file: KILL_AT=N. A write is torn: half of it is done first.
   KILL_BEFORE_LINK=PART and KILL_AFTER_LINK=PART: when a file is given a second name that has this part.
   Loaded before the C library, so that the program under test needs no part in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long left = -1;

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("KILL_AT");
    if (at != NULL) left = atol(at);
}

/* Whether this is the call to die at. */
static int is_last(void) { return atomic_fetch_sub(&left, 1) == 1; }

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int is_file(int fd) {
    struct stat at;
    return fstat(fd, &at) == 0 && S_ISREG(at.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t count) {
    if (is_file(fd) && is_last()) {
        REAL(write)(fd, bytes, count / 2);
        die();
    }
    return REAL(write)(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    if (is_file(fd) && is_last()) {
        REAL(pwrite64)(fd, bytes, count / 2, at);
        die();
    }
    return REAL(pwrite64)(fd, bytes, count, at);
}

#define BEFORE(name, parameters, ...) \
    int name parameters { \
        if (is_last()) die(); \
        return REAL(name)(__VA_ARGS__); \
    }

BEFORE(fsync, (int fd), fd)
BEFORE(fdatasync, (int fd), fd)
BEFORE(ftruncate64, (int fd, off64_t length), fd, length)
BEFORE(rename, (const char *from, const char *to), from, to)
BEFORE(unlink, (const char *path), path)
BEFORE(unlinkat, (int folder, const char *path, int flags), folder, path, flags)
BEFORE(rmdir, (const char *path), path)
BEFORE(mkdir, (const char *path, mode_t mode), path, mode)

static int has_part(const char *name, const char *variable) {
    const char *part = getenv(variable);
    return part != NULL && strstr(name, part) != NULL;
}

int linkat(int of, const char *from, int in, const char *to, int flags) {
    if (has_part(to, "KILL_BEFORE_LINK")) die();
    int made = REAL(linkat)(of, from, in, to, flags);
    if (has_part(to, "KILL_AFTER_LINK")) die();
    return made;
}
