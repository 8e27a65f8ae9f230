"""Make the master's environment: Horovod's launcher and TensorBoard, without TensorFlow.

    python -m agent.environment.master_environment ensure [--root /opt/deepcdk/runtime]

The last line of the output is the path of the environment's Python. The master only starts ranks and runs TensorBoard,
so its environment takes seconds to make and needs no compiler. It is independent of the workers' environment, because
the master can have another processor architecture.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from agent.environment.horovod_source import VERSION, download_arguments, unpack
from agent.environment.toolchain import check_platform
from agent.environment.virtual_environment import DEFAULT_ROOT, VirtualEnvironment, print_made
from agent.files.build_once import temporary_directory_of
from agent.hardware.machine import this_platform
from agent.spec.frameworks import HOROVOD_SHA256

LOCK: Final = Path(__file__).parent / "requirements-master.txt"
PARTS: Final = ("__init__.py", "common", "runner")
"""The parts of the package `horovod` that Horovod's launcher imports."""
CHECK: Final = "from horovod.runner import launch; import tensorboard.main"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MasterEnvironment(VirtualEnvironment):
    """The Python environment of the master."""

    name: ClassVar[str] = "the master's environment"
    command: ClassVar[str] = "agent.environment.master_environment ensure"
    root: Path = DEFAULT_ROOT
    lock: str = dataclasses.field(default_factory=lambda: LOCK.read_text(encoding="utf-8"))

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the fingerprint: the packages, the platform and Horovod's release."""
        return {**super().inputs, "horovod": VERSION, "sdist": HOROVOD_SHA256}

    def finish(self, wheels: Path) -> None:
        """Download Horovod's source distribution, install its launcher's Python files, and check that they import.

        Raises RuntimeSetupError.
        """
        with tempfile.TemporaryDirectory(prefix="horovod-", dir=temporary_directory_of(self.directory)) as name:
            scratch = Path(name)
            self.pip("Downloading Horovod", *download_arguments(scratch))
            source, package = unpack(scratch) / "horovod", self.site_packages / "horovod"
            package.mkdir()
            for part in PARTS:
                if (source / part).is_dir():
                    shutil.copytree(source / part, package / part, ignore=_all_but_python)
                else:
                    shutil.copyfile(source / part, package / part)
        self.run("Importing the installed packages", [str(self.python), "-c", CHECK])


def _all_but_python(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if not (name.endswith(".py") or Path(directory, name).is_dir())]


def ensure(root: Path = DEFAULT_ROOT) -> Path:
    """Return the path of the environment's Python; make the environment first unless it is complete.

    Making it downloads packages. If another process is making it, this waits. Raises RuntimeSetupError or OSError.
    """
    check_platform(this_platform())
    return MasterEnvironment(root=root).ensure()


def main(argv: Sequence[str]) -> int:
    """Make the environment with the options in `argv`, and print the path of its Python, or the error.

    Return the exit status, 0 or 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m agent.environment.master_environment", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("command", choices=("ensure",), help="make the environment unless it is complete")
    parser.add_argument(
        "--root",
        type=Path,
        default=DEFAULT_ROOT,
        metavar="DIR",
        help=f"folder of the environments; default: {DEFAULT_ROOT}",
    )
    root = parser.parse_args(argv).root
    return print_made(lambda: ensure(root))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
