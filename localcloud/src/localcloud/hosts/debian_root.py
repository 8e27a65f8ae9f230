"""Root file systems with Debian's packages, created by mmdebstrap and kept in the user's cache."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError

DIVERTED: Final = ".debian"
"""Suffix of a diverted program, which a stand-in replaces."""


class ImageError(LocalCloudError):
    """An image could not be created."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """Description of a root file system with a release's packages. `root_of` creates the files."""

    name: str
    suite: str
    packages: tuple[str, ...]
    diversions: tuple[str, ...] = ()
    """Programs to divert, because a stand-in replaces them."""

    def command(self, target: Path) -> list[str]:
        """Return the command that creates the root in the directory `target`."""
        divert = 'chroot "$1" dpkg-divert --quiet --local --rename --divert {0}{1} --add {0}'
        hooks = [divert.format(path, DIVERTED) for path in self.diversions]
        return [
            *("mmdebstrap", "--variant=minbase", "--mode=root", "--quiet", f"--include={','.join(self.packages)}"),
            *(f"--customize-hook={hook}" for hook in hooks),
            *(self.suite, str(target)),
        ]

    def directory(self, cache: Path) -> Path:
        """Return the path of the root's directory in the cache. Its name depends on the packages and diversions."""
        made_by = "\0".join(self.command(Path()))
        return cache / f"{self.name}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"

    def make(self, directory: Path) -> None:
        """Create the root in a new directory, which takes a minute. Print a note to stderr first.

        Raises ImageError if mmdebstrap is missing, or with its output if it fails.
        """
        if shutil.which("mmdebstrap") is None:
            raise ImageError(
                f"{self.name} needs mmdebstrap to create Debian's root file system; "
                "on Debian or Ubuntu: apt-get install mmdebstrap"
            )
        print(
            f"creating the root file system of {self.name} with mmdebstrap, only once: {directory}",
            file=sys.stderr,
            flush=True,
        )
        done = subprocess.run(self.command(directory), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            said = "\n".join(done.stderr.decode(errors="replace").splitlines()[-15:])
            raise ImageError(
                f"mmdebstrap could not create the root file system of {self.name}:\n{said}\n"
                "fix the cause that this output shows, then repeat the command"
            )


def default_cache(environment: Mapping[str, str]) -> Path:
    """Return the cache directory for roots and disks, in the user's cache."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "localcloud"


def root_of(root: Root, cache: Path) -> Path:
    """Return a root's directory. If it is missing, create it, which takes a minute and downloads 500 MB.

    Raises ImageError if mmdebstrap is missing, or with its output if it fails.
    """
    return make_once(root.directory(cache), root.make)


def make_once(directory: Path, make: Callable[[Path], None]) -> Path:
    """Return a directory of the cache. If it is missing, `make` creates it at the temporary path in its argument.

    A failed creation leaves nothing behind. Concurrent calls wait for each other.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            new = directory.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            try:
                make(new)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
            new.chmod(0o755)
            new.rename(directory)
    return directory


def archive_hosts(root: Path) -> frozenset[str]:
    """Return the names of the servers in a root's apt sources."""
    files = [root / "etc/apt/sources.list", *(root / "etc/apt/sources.list.d").glob("*.[ls]*")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return frozenset(re.findall(r"https?://([a-z0-9.-]+)", "\n".join(lines)))
