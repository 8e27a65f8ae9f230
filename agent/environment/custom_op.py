"""Build our custom TensorFlow op (`custom_ops` beside this module), and install it beside TensorFlow.

    python -m agent.environment.custom_op install    # 2 seconds with a C++ compiler; the last line is its path

`agent.environment.runtime` builds it for each runtime, `make setup` for a clone. The library is cached outside the
tree under a fingerprint of its inputs, so a node without a compiler can use a library that another node has built.
Linux only, like Horovod. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.environment.horovod_build import default_cache, error_lines
from agent.environment.install_step import RuntimeSetupError
from agent.environment.toolchain import NotCoveredError, installed_tensorflow
from agent.environment.virtual_environment import AGENT_TREE, digest, print_line, print_made
from agent.errors import ReportedError
from agent.files.build_once import build_once
from agent.files.safe_read import is_listed
from agent.hardware.machine import this_platform

SOURCE: Final = Path(__file__).parent / "custom_ops" / "image_view.cc"
FLAGS: Final = ("-std=c++17", "-O3", "-shared", "-fPIC", "-Wall", "-Wextra")
FRAMEWORK: Final = "libtensorflow_framework.so.2"
"""The library with TensorFlow's C API. TensorFlow loads it before the op, so the op needs no path to it."""


class CustomOpError(ReportedError, RuntimeSetupError):
    """Report that the custom op could not be built or is not installed, and how to fix it."""


def identity() -> str:
    """Return the SHA-256 of the op's source and compiler flags."""
    return hashlib.sha256("\0".join([SOURCE.read_text(encoding="utf-8"), *FLAGS]).encode()).hexdigest()


def file_name() -> str:
    """Return the file name of the installed library. It contains the first 16 digits of `identity`."""
    return f"deepcdk_custom_op_{identity()[:16]}.so"


def installed_path() -> Path:
    """Return the path for the installed library: next to the TensorFlow that this Python imports. It may be missing.

    Without TensorFlow, this is in the Python's own site-packages. TensorFlow can be in a different environment than
    this Python, for example under an overlay.
    """
    spec = importlib.util.find_spec("tensorflow")
    beside = spec.origin if spec is not None else None
    packages = Path(beside).parents[1] if beside is not None else Path(sysconfig.get_path("purelib"))
    return packages / file_name()


def check_installed() -> Path:
    """Return the path of the installed library.

    Raises CustomOpError, with the command to install it, if it is missing.
    """
    place = installed_path()
    if not place.is_file():
        raise CustomOpError(
            f"{place} is missing: the custom TensorFlow op for images is not installed; to install it, run in "
            f"{AGENT_TREE}: {sys.executable} -m agent.environment.custom_op install"
        )
    return place


def load() -> Any:
    """Load the installed library into TensorFlow and return its operations.

    Raises CustomOpError if the library is missing or cannot be loaded.
    """
    import tensorflow as tf  # Not at the top: this module also builds the library, without importing TensorFlow.

    place = check_installed()
    try:
        return tf.load_op_library(str(place))
    except tf.errors.OpError as error:
        raise CustomOpError(
            f"cannot load {place} ({error.message}); remove the file, then build it again in {AGENT_TREE}: "
            f"{sys.executable} -m agent.environment.custom_op install"
        ) from None


def cached_path(tensorflow: str, cache: Path) -> Path:
    """Return the library's path in the folder `cache`, for this platform and the version `tensorflow` of TensorFlow.

    The file is missing if the library was not built yet.
    """
    here = this_platform()
    inputs = {"op": identity(), "tensorflow": tensorflow, "machine": here.machine, "libc": here.libc}
    return cache / "custom_op" / f"{digest(inputs)}.so"


def build(tensorflow: str, include: Path, *, cache: Path, search_path: str, report: Callable[[str], None]) -> Path:
    """Return the path of the library in `cache`; compile it first if it is missing.

    `tensorflow` is the version of TensorFlow, `include` the folder of its C++ headers, and `search_path` the PATH in
    which to find the compiler. `report` receives a line if another process is building the library. Raises
    CustomOpError.
    """
    kept = cached_path(tensorflow, cache)

    def compile_it() -> Path:
        partial = kept.with_suffix(".part")
        _compile(tensorflow, include, partial, search_path)
        return partial.rename(kept)

    return build_once(
        lambda: kept if is_listed(kept) else None,
        compile_it,
        lock=kept.with_suffix(".lock"),
        on_wait=lambda: report(f"waiting for another build of {kept}"),
    )


def install(cache: Path, *, search_path: str, report: Callable[[str], None]) -> Path:
    """Copy the library from `cache` to the path from `installed_path`, and return that path.

    Builds the library first if the cache does not have it. `search_path` is the PATH in which to find the compiler.
    `report` receives a line if another process is building the library. Raises CustomOpError, also without TensorFlow
    and on other systems than Linux, and OSError if the library cannot be written.
    """
    if (system := this_platform().system) != "Linux":
        raise CustomOpError(
            f"this machine runs {system}, but the custom TensorFlow op can only be built on Linux; use Linux, for "
            "example in a virtual machine"
        )
    try:
        version, include = installed_tensorflow()
    except NotCoveredError as error:
        raise CustomOpError(f"{error.what}; install it first") from None
    place = installed_path()
    partial = place.with_suffix(f".{os.getpid()}.part")
    shutil.copyfile(build(version, include, cache=cache, search_path=search_path, report=report), partial)
    return partial.rename(place)


def _compile(tensorflow: str, include: Path, output: Path, search_path: str) -> None:
    compiler = shutil.which("c++", path=search_path)
    if compiler is None:
        raise CustomOpError(
            "no C++ compiler found for the custom TensorFlow op. "
            "Install one: `apt-get install g++` or `dnf install gcc-c++`."
        )
    tensorflows = [f"-I{include}", f"-L{include.parent}", f"-l:{FRAMEWORK}"]
    command = [compiler, *FLAGS, str(SOURCE), "-o", str(output), *tensorflows]
    finished = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if finished.returncode != 0:
        errors = "\n".join(f"    {line}" for line in error_lines(finished.stderr))
        raise CustomOpError(
            f"cannot compile {SOURCE.name} with TensorFlow {tensorflow}:\n{errors}\nCorrect the cause of these errors "
            f"of {compiler}, then repeat the command"
        )


def main(argv: Sequence[str]) -> int:
    """Install the library with the options in `argv`, and print its path, or the error.

    Return the exit status, 0 or 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m agent.environment.custom_op", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("command", choices=("install",), help="build the library if necessary, and install it")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder of built files; default: $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk",
    )
    cache = parser.parse_args(argv).cache or default_cache(os.environ)
    path = os.environ.get("PATH", os.defpath)
    return print_made(lambda: install(cache, search_path=path, report=print_line))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
