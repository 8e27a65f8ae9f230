"""Horovod's source distribution: download it, check its hash, unpack and patch it. Standard library only."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import venv
from importlib.util import find_spec
from pathlib import Path

from agent.environment.horovod_build_settings import SDIST_SHA256, VERSION
from agent.environment.horovod_patch import patch
from agent.environment.toolchain import HorovodError, NotCoveredError


def download_arguments(scratch: Path) -> list[str]:
    """Return pip's arguments to bring the source distribution, checked by its hash, to scratch/sdist."""
    wanted = scratch / "horovod.txt"
    wanted.write_text(f"horovod=={VERSION} --hash=sha256:{SDIST_SHA256}\n")
    # No isolation: the set-up tools that are installed are pinned, and what pip would bring lacks pkg_resources.
    options = ["--no-deps", "--no-binary", "horovod", "--no-build-isolation", "--require-hashes"]
    return ["download", *options, "--requirement", str(wanted), "--dest", str(scratch / "sdist")]


def pip_command(scratch: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command for pip and its environment: this Python's own, else the one that comes with Python."""
    if find_spec("pip") is None:
        try:
            venv.create(scratch / "pip", with_pip=True)
        except (subprocess.CalledProcessError, OSError) as error:
            raise NotCoveredError(
                f"{sys.executable} has neither pip nor the means to make it ({error})",
                "Install pip into it, or Python's venv package: `apt-get install python3-venv`.",
            ) from error
        packages = next((scratch / "pip" / "lib").glob("python3*/site-packages"))
        return [sys.executable, "-m", "pip"], {"PYTHONPATH": str(packages)}
    return [sys.executable, "-m", "pip"], {}


def unpack(scratch: Path) -> Path:
    """Check the hash of the source distribution in scratch/sdist, unpack and patch it, and return its folder."""
    archive = scratch / "sdist" / f"horovod-{VERSION}.tar.gz"
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SDIST_SHA256:
        raise HorovodError(f"{archive.name} has SHA-256 {found}, and {SDIST_SHA256} is pinned: it is not the release.")
    with tarfile.open(archive) as tar:
        # Pythons before 3.11.4 have no filters; the archive's contents are pinned by its hash.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        tar.extractall(scratch)  # noqa: S202  # see above
    source = scratch / f"horovod-{VERSION}"
    patch(source)
    return source
