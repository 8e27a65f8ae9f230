"""Simulate a shared file system with slow opens, and count the reads of each node.

A library that is loaded before the C library intercepts the calls that open a file or a directory, or create a hard
link, below the mount point. Each call sleeps. For each open that reads, it appends a byte to the node's file.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void visit(const char *path, int reads) {
    const char *shared = getenv("LAB_SLOW"), *count = getenv("LAB_COUNT"), *delay = getenv("LAB_DELAY_US");
    if (!shared || strncmp(path, shared, strlen(shared))) return;
    usleep(atoi(delay));
    if (!reads) return;
    int file = syscall(SYS_openat, AT_FDCWD, count, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0 || write(file, "r", 1) != 1) abort();
    close(file);
}

#define READS(flags) (((flags) & O_ACCMODE) == O_RDONLY)
#define MODE va_list list; va_start(list, flags); int mode = va_arg(list, int); va_end(list)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...) { MODE; visit(path, READS(flags)); return NEXT(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) {
    MODE; visit(path, READS(flags)); return NEXT(open64)(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE; visit(path, READS(flags)); return NEXT(openat)(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE; visit(path, READS(flags)); return NEXT(openat64)(at, path, flags, mode);
}
DIR *opendir(const char *path) { visit(path, 1); return NEXT(opendir)(path); }
int link(const char *from, const char *to) { visit(to, 0); return NEXT(link)(from, to); }
int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    visit(to, 0); return NEXT(linkat)(at, from, to_at, to, flags);
}
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowOpens:
    """The library, and the directory with the counts."""

    library: Path
    counts: Path
    delay_us: int

    def environment(self, node: str, mount: Path) -> dict[str, str]:
        """Return the variables that make a node's commands slow below its mount point."""
        return {
            "LD_PRELOAD": str(self.library),
            "LAB_SLOW": f"{mount}/",
            "LAB_COUNT": str(self.counts / node),
            "LAB_DELAY_US": str(self.delay_us),
        }

    def reads(self, node: str) -> int:
        """Return how many opens for reading a node has made, including directories."""
        count = self.counts / node
        return count.stat().st_size if count.exists() else 0


def build(folder: Path, delay_us: int) -> SlowOpens:
    """Compile the library; skip the test if there is no C compiler."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("this machine has no C compiler")
    source, library, counts = folder / "slow_opens.c", folder / "slow_opens.so", folder / "counts"
    source.write_text(_SOURCE, encoding="utf-8")
    counts.mkdir()
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return SlowOpens(library=library, counts=counts, delay_us=delay_us)
