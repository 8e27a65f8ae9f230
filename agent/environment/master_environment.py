"""Build the master's environment: Horovod's launcher, Open MPI and TensorBoard, without TensorFlow.

    python -m agent.environment.master_environment ensure [--root /opt/deepcdk/runtime]
    python -m agent.environment.master_environment path       # its path, whether it exists or not; nothing is built

The last line of both is its Python. The master computes nothing: it starts the ranks, whose environment is built on
the workers (`agent.environment.runtime`), and shows runs in TensorBoard. So it takes seconds to make, needs no
compiler, and does not depend on what the workers have; a master may even have another processor than they.

Of Horovod it has the Python files alone, from the pinned source distribution: `horovod.runner` and `horovod.common`.
It lies beside runtimes, is complete with the file `.complete`, and is then never changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.environment.horovod_build_settings import SDIST_SHA256, VERSION, digest
from agent.environment.horovod_source import download_arguments, unpack
from agent.environment.toolchain import HorovodError, Platform, check_platform, this_platform
from agent.environment.virtual_environment import RuntimeSetupError, VirtualEnvironment
from agent.files.build_once import build_directory_once, is_complete
from agent.files.temporary_files import temporary_files_beside

DEFAULT_ROOT: Final = Path("/opt/deepcdk/runtime")
LOCK: Final = Path(__file__).parent / "requirements-master.txt"
PARTS: Final = ("__init__.py", "common", "runner")
"""Of the package `horovod`, what its launcher imports."""
CHECK: Final = "from horovod.runner import launch; import tensorboard.main"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MasterEnvironment:
    """The master's environment, by the fingerprint of its inputs."""

    root: Path
    fingerprint: str

    @property
    def directory(self) -> Path:
        """Return its folder."""
        return self.root / self.fingerprint

    @property
    def python(self) -> Path:
        """Return its Python."""
        return self.directory / "bin" / "python"

    @property
    def complete(self) -> bool:
        """Return whether it has been built to the end."""
        return is_complete(self.directory)


def environment_for(root: Path, *, lock: str, here: Platform) -> MasterEnvironment:
    """Return the environment under `root` for the text of a lock file, without its comments, on the platform `here`."""
    pins = "\n".join(line for line in lock.splitlines() if not line.lstrip().startswith("#"))
    inputs = {
        "for": "master",
        "lock": pins,
        "horovod": VERSION,
        "sdist": SDIST_SHA256,
        "system": here.system,
        "machine": here.machine,
        "libc": here.libc,
        "python": here.python_tag,
    }
    return MasterEnvironment(root=root, fingerprint=digest(inputs))


def this_environment(root: Path) -> MasterEnvironment:
    """Return the master's environment on this machine under `root`."""
    return environment_for(root, lock=LOCK.read_text(encoding="utf-8"), here=this_platform())


def ensure(root: Path = DEFAULT_ROOT) -> Path:
    """Return the environment's Python; build the environment first unless it is complete.

    Raises HorovodError, RuntimeSetupError or OSError.
    """
    check_platform(this_platform())
    wanted = this_environment(root)
    making = VirtualEnvironment(
        directory=wanted.directory,
        uv=shutil.which("uv", path=os.environ.get("PATH", os.defpath)),
        environ=os.environ,
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if not wanted.complete:
        making.check_writable("agent.environment.master_environment")
    build_directory_once(
        wanted.directory,
        lambda: _make(making),
        lock=wanted.directory.with_suffix(".lock"),
        on_wait=lambda: making.report(f"waiting for another process that makes {wanted.directory}"),
    )
    return wanted.python


def _make(making: VirtualEnvironment) -> str:
    making.report(f"making the master's environment {making.directory}")
    with temporary_files_beside(making.directory):
        making.make()
        making.install(LOCK, None)
        _install_launcher(making)
        making.run("Importing what was installed", [str(making.python), "-c", CHECK], quiet=True)
    return f"Horovod {VERSION}, {LOCK.name}\n"


def _install_launcher(making: VirtualEnvironment) -> None:
    """Copy the launcher's files out of Horovod's source distribution."""
    with tempfile.TemporaryDirectory(prefix="horovod-", dir=making.directory) as name:
        scratch = Path(name)
        # With pip of this environment, whose set-up tools are the pinned ones that Horovod's setup.py takes.
        pip = [str(making.python), "-m", "pip", *download_arguments(scratch)]
        making.run("Downloading Horovod", pip, quiet=True)
        source, package = unpack(scratch) / "horovod", making.site_packages() / "horovod"
        package.mkdir()
        for part in PARTS:
            if (source / part).is_dir():
                shutil.copytree(source / part, package / part, ignore=_all_but_python)
            else:
                shutil.copyfile(source / part, package / part)


def _all_but_python(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if not (name.endswith(".py") or Path(directory, name).is_dir())]


def main(argv: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m agent.environment.master_environment", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("command", choices=("ensure", "path"))
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT, metavar="DIR", help=f"default: {DEFAULT_ROOT}")
    arguments = parser.parse_args(argv)
    try:
        print(this_environment(arguments.root).python if arguments.command == "path" else ensure(arguments.root))
    except (HorovodError, RuntimeSetupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
