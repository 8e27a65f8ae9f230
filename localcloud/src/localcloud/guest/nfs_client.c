// Effects of an NFS client on programs, in addition to its caches. An open is a request to the server, and takes
// OPEN_NS nanoseconds. flock is a lock on the server. A blocked client requests the lock again after 1, 2, 4, ... and
// at most 30 s (NFS4_LOCK_MINTIMEOUT, NFS4_LOCK_MAXTIMEOUT in Linux's fs/nfs/nfs4proc.c). An exclusive lock requires a
// file that is open for writing (flock(2), "NFS details"). /etc/ld.so.preload loads this library into every program of
// a host. It only affects files on FUSE, which is the shared file system. Statically linked programs and POSIX locks
// (fcntl, lockf) are not affected.
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>

#define FUSE 0x65735546
#define LAST_WAIT_S 30

static int is_shared(int file) {
  int before = errno;
  struct statfs found;
  int shared = fstatfs(file, &found) == 0 && found.f_type == FUSE;
  errno = before;
  return shared;
}

static void ask_server(int file) {
  if (file < 0 || !is_shared(file)) return;
  int before = errno;
  struct timespec left = {OPEN_NS / 1000000000, OPEN_NS % 1000000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  errno = before;
}

static mode_t mode_of(int flags, va_list more) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

#define NEXT(name) \
  static __typeof__(name) *next; \
  if (next == NULL) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    NEXT(name); \
    va_list more; \
    va_start(more, flags); \
    int file = next(path, flags, mode_of(flags, more)); \
    va_end(more); \
    ask_server(file); \
    return file; \
  }

#define OPEN_AT(name) \
  int name(int directory, const char *path, int flags, ...) { \
    NEXT(name); \
    va_list more; \
    va_start(more, flags); \
    int file = next(directory, path, flags, mode_of(flags, more)); \
    va_end(more); \
    ask_server(file); \
    return file; \
  }

#define OPEN_STREAM(name) \
  FILE *name(const char *path, const char *mode) { \
    NEXT(name); \
    FILE *stream = next(path, mode); \
    if (stream != NULL) ask_server(fileno(stream)); \
    return stream; \
  }

OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
OPEN_STREAM(fopen)
OPEN_STREAM(fopen64)

// The compiler calls these functions instead of open if it has checked the flags (_FORTIFY_SOURCE).
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int directory, const char *path, int flags) { return openat(directory, path, flags); }
int __openat64_2(int directory, const char *path, int flags) { return openat64(directory, path, flags); }

DIR *opendir(const char *path) {
  NEXT(opendir);
  DIR *directory = next(path);
  if (directory != NULL) ask_server(dirfd(directory));
  return directory;
}

int flock(int file, int operation) {
  NEXT(flock);
  if (!is_shared(file)) return next(file, operation);
  int opened = fcntl(file, F_GETFL) & O_ACCMODE, wanted = operation & ~LOCK_NB;
  if ((wanted == LOCK_EX && opened == O_RDONLY) || (wanted == LOCK_SH && opened == O_WRONLY)) {
    errno = EBADF;
    return -1;
  }
  if (wanted == LOCK_UN || operation & LOCK_NB) return next(file, operation);
  for (int wait_s = 1; next(file, operation | LOCK_NB) != 0; wait_s = wait_s * 2 < LAST_WAIT_S ? wait_s * 2 : LAST_WAIT_S) {
    if (errno != EWOULDBLOCK) return -1;
    struct timespec wait = {wait_s, 0};
    if (nanosleep(&wait, NULL) != 0) return -1;
  }
  return 0;
}
