"""Roots of Debian's packages, made by mmdebstrap from the archive that it finds, and kept in the user's cache."""

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
"""What the name of a program of a package ends with where a stand-in has its place."""


class ImageError(LocalCloudError):
    """Report an image that could not be made."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """A root file system of a release's packages."""

    name: str
    suite: str
    packages: tuple[str, ...]
    diversions: tuple[str, ...] = ()
    """Programs whose packages keep theirs beside a stand-in."""

    def command(self, target: Path) -> list[str]:
        """Return the command that makes the root in the directory `target`."""
        divert = 'chroot "$1" dpkg-divert --quiet --local --rename --divert {0}{1} --add {0}'
        hooks = [divert.format(path, DIVERTED) for path in self.diversions]
        return [
            *("mmdebstrap", "--variant=minbase", "--mode=root", "--quiet", f"--include={','.join(self.packages)}"),
            *(f"--customize-hook={hook}" for hook in hooks),
            *(self.suite, str(target)),
        ]

    def directory(self, cache: Path) -> Path:
        """Return where the root is kept; another list of packages has another place."""
        made_by = "\0".join(self.command(Path()))
        return cache / f"{self.name}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"

    def make(self, directory: Path) -> None:
        """Make the root in a directory that is not there. Raises ImageError with what mmdebstrap said."""
        if shutil.which("mmdebstrap") is None:
            raise ImageError(
                f"{self.name} needs mmdebstrap, which makes Debian's root file system; "
                "on Debian or Ubuntu: apt-get install mmdebstrap"
            )
        print(f"making the root of {self.name} with mmdebstrap, once: {directory}", file=sys.stderr, flush=True)
        done = subprocess.run(self.command(directory), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            said = "\n".join(done.stderr.decode(errors="replace").splitlines()[-15:])
            raise ImageError(f"mmdebstrap could not make {self.name}:\n{said}")


def default_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory in which roots are kept."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "localcloud"


def root_of(root: Root, cache: Path) -> Path:
    """Return a root, made first where it is not there: a minute, and 500 MB from Debian's archive.

    Raises ImageError with what mmdebstrap said.
    """
    return make_once(root.directory(cache), root.make)


def make_once(directory: Path, make: Callable[[Path], None]) -> Path:
    """Return a directory of the cache, made by `make` where it is not there; nothing is left of one that fails."""
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
    """Return the names of the hosts that a root's apt takes packages from."""
    files = [root / "etc/apt/sources.list", *(root / "etc/apt/sources.list.d").glob("*.[ls]*")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return frozenset(re.findall(r"https?://([a-z0-9.-]+)", "\n".join(lines)))
