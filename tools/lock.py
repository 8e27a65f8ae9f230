"""Resolve the lock files from pyproject.toml, with versions and hashes but no index. `make lock` runs it.

requirements/dev.txt                       `plots`, all groups and the embedded cloud's dependencies, for developers
agent/environment/requirements-uv.txt      uv, which installs the other files
agent/environment/requirements.txt         only the group `node`, in the versions of dev.txt
agent/environment/requirements-gpu.txt     the same with TensorFlow's GPU build and the NCCL that AWS tests with EFA
agent/environment/requirements-aarch64.txt the same with TensorFlow's build for aarch64 (not tested on aarch64)
agent/environment/requirements-master.txt  only the group `master`, in the versions of dev.txt
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.environment.horovod_build import default_cache
from agent.preflight import nccl_log
from tools.setup import uv_program

ROOT: Final = Path(__file__).resolve().parent.parent
UV: Final = "uv==0.13.8"
NODE: Final = Path("agent/environment")
GROUPS: Final = ("node", "dev")
OPTIONS: Final = (
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--custom-compile-command=make lock",
    "--quiet",
)


def flattened(groups: Mapping[str, Any], name: str) -> list[str]:
    """Return the requirements of a dependency group, including its included groups."""
    found: list[str] = []
    for entry in groups[name]:
        found += [entry] if isinstance(entry, str) else flattened(groups, entry["include-group"])
    return found


def with_tensorflow(lines: Sequence[str], package: str) -> list[str]:
    """Return the requirements `lines` with tensorflow-cpu replaced by another package of the same version.

    `tensorflow[and-cuda]` includes CUDA's libraries. `tensorflow` has a build for aarch64.
    """
    return [line.replace("tensorflow-cpu", package) for line in lines]


def compile_command(uv: str, sources: Sequence[str], output: Path, constraint: Path | None) -> list[str]:
    """Return the command that resolves `sources` (files and groups, as uv takes them) to the lock file `output`.

    `constraint`: lock file with the versions to use; None: resolve freely.
    """
    constrained = [] if constraint is None else ["--constraint", str(constraint)]
    return [uv, "pip", "compile", *sources, *OPTIONS, *constrained, "--output-file", str(output)]


def main() -> int:
    """Resolve and write all lock files with uv, up to the first failure; return uv's last exit status.

    An existing file keeps its versions if they still fit.
    """
    uv = str(uv_program(default_cache(os.environ)))
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    dev, stdin, node = Path("requirements/dev.txt"), ["-"], flattened(groups, "node")
    all_groups = [f"--group={name}" for name in GROUPS]
    gpu = [*with_tensorflow(node, "tensorflow[and-cuda]"), f"nvidia-nccl-cu12=={nccl_log.LOCKED}"]
    wanted: tuple[tuple[Path, list[str], list[str], Path | None], ...] = (
        (NODE / "requirements-uv.txt", stdin, [UV], None),
        (dev, ["pyproject.toml", "localcloud/pyproject.toml", "--extra=plots", *all_groups], [], None),
        (NODE / "requirements.txt", ["--group=node"], [], dev),
        (NODE / "requirements-gpu.txt", stdin, gpu, dev),
        (NODE / "requirements-aarch64.txt", stdin, with_tensorflow(node, "tensorflow"), dev),
        (NODE / "requirements-master.txt", ["--group=master"], [], dev),
    )
    for output, sources, lines, constraint in wanted:
        print(f"{output}", flush=True)
        command = compile_command(uv, sources, output, constraint)
        finished = subprocess.run(command, cwd=ROOT, input="\n".join(lines), text=True, check=False)
        if finished.returncode != 0:
            return finished.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
