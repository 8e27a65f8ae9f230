"""Fix installed packages: link NVIDIA's libraries where TensorFlow looks, and make Gloo Horovod's default controller.

TensorFlow opens NVIDIA's libraries by name, in folders that are listed in its own library. The list of TensorFlow
2.21.0 lacks cuSOLVER's folder, although its GPU wheel requires cuSOLVER. TensorFlow then prints "Cannot dlopen some GPU
libraries" and computes on the CPU (seen on an H200). A library outside the listed folders gets a link in one of them.

If Horovod is built with Gloo and MPI, it tries MPI first. Open MPI would then start a daemon even for a single process,
such as a notebook or a program under `fab run`. A .pth file, which Python executes at every start, makes Gloo the
default.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

NAME: Final = "horovod_alone.pth"
LINE: Final = (
    "import os; 'OMPI_COMM_WORLD_RANK' in os.environ or "
    "[os.environ.setdefault(name, 'gloo') for name in ('HOROVOD_CONTROLLER', 'HOROVOD_CPU_OPERATIONS')]\n"
)
"""Sets nothing under an mpirun that the user has started. Our own launchers set both variables themselves."""
OPENED: Final = ("cudart", "cublas", "cublasLt", "cufft", "cusolver", "cusparse", "cudnn")
"""Libraries that TensorFlow 2.21 opens before it registers a GPU, in this order. If one is missing, it uses no GPU."""
OPENER: Final = Path("tensorflow/libtensorflow_framework.so.2")
_LISTED: Final = re.compile(rb"\$ORIGIN/\.\./(nvidia/\w+/lib)\b")
"""A folder in TensorFlow's list, relative to site-packages."""


def listed_folders(packages: Path) -> tuple[Path, ...]:
    """Return the folders in site-packages (`packages`) where TensorFlow looks for NVIDIA's libraries.

    Return () without TensorFlow and for a build for CPUs.
    """
    try:
        content = (packages / OPENER).read_bytes()
    except FileNotFoundError:
        return ()
    return tuple(packages / name.decode() for name in dict.fromkeys(_LISTED.findall(content)))


def unlisted_libraries(packages: Path) -> tuple[Path, ...]:
    """Return the libraries in site-packages (`packages`) that TensorFlow needs but cannot find.

    Return () without TensorFlow and for a build for CPUs.
    """
    listed = listed_folders(packages)
    found = {library.name for folder in listed for library in folder.glob("lib*.so.*")}
    installed = [library for name in OPENED for library in sorted(packages.glob(f"nvidia/*/lib/lib{name}.so.[0-9]*"))]
    return tuple(library for library in installed if library.name not in found) if listed else ()


def link_libraries(packages: Path) -> tuple[str, ...]:
    """Link the libraries that TensorFlow needs but cannot find into a folder that it searches; return their file names.

    `packages` is site-packages. The result is () if TensorFlow needs no links.
    """
    libraries = unlisted_libraries(packages)
    if libraries:
        listed = listed_folders(packages)
        folder = next((folder for folder in listed if folder.is_dir()), listed[0])
        folder.mkdir(parents=True, exist_ok=True)
        for library in libraries:
            (folder / library.name).symlink_to(Path("../..") / library.relative_to(packages / "nvidia"))
    return tuple(library.name for library in libraries)


def site_packages(environment: Path) -> Path:
    """Return the site-packages folder of a virtual environment. Raises FileNotFoundError for any other directory."""
    packages = next((environment / "lib").glob("python3*/site-packages"), None)
    if packages is None:
        raise FileNotFoundError(f"{environment} is not a virtual environment: it has no lib/python3*/site-packages")
    return packages


def make_gloo_default(environment: Path) -> None:
    """Make Gloo Horovod's default controller in a virtual environment, with a .pth file.

    Raises FileNotFoundError for any other directory.
    """
    (site_packages(environment) / NAME).write_text(LINE, encoding="ascii")
