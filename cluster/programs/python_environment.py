"""What a program requires of its environment, and the environment that it gets: the nodes' runtime or its own packages.

This is separate from `cluster.programs.requirements_resolver`, so that programs without requirements start without
importing it.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from agent.spec.frameworks import HOROVOD_VERSION, TENSORFLOW_PACKAGES, TORCH

TENSORFLOW_MODULES: Final = ("tensorflow", "keras", "tf_keras", "horovod.tensorflow", "horovod.keras")
TORCH_MODULE: Final = "horovod.torch"
RUNTIME_MODULES: Final = frozenset(
    {
        "PIL", "_cffi_backend", "absl", "astunparse", "certifi", "cffi", "charset_normalizer", "clang",
        "cloudpickle", "cmake", "flatbuffers", "gast", "google", "google_crc32c", "grpc", "h5py", "horovod",
        "idna", "joblib", "keras", "markdown", "markdown_it", "markupsafe", "mdurl", "ml_dtypes", "namex",
        "narwhals", "numpy", "onnx", "onnxruntime", "opt_einsum", "optree", "packaging", "pasta",
        "pkg_resources", "psutil", "pycparser", "pygments", "requests", "rich", "scipy", "setuptools", "six",
        "sklearn", "tensorboard", "tensorboard_data_server", "tensorflow", "termcolor", "tf2onnx",
        "threadpoolctl", "typing_extensions", "urllib3", "werkzeug", "wheel", "wrapt", "yaml"
    }
)  # fmt: skip
"""Modules of the nodes' runtime. A program without requirements can import them."""
_PIN: Final = re.compile(
    r"^([A-Za-z0-9][\w.-]*)(?:==([^\s;\\]+)| @ \S*/[^-/\s]+-([^-/\s]+)-[^/\s]+\.whl)", re.MULTILINE
)


def pinned(lock: str) -> dict[str, str]:
    """Return the package versions in the text of a lock file, by name.

    For a wheel that is given by its URL, the version is taken from the name of the wheel's file.
    """
    return {name: version or unquote(other) for name, version, other in _PIN.findall(lock)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a program requires of its environment."""

    directory: Path
    requirements: str
    """Path of the file that lists its packages, relative to the directory or absolute; "" for none."""
    extras: tuple[str, ...] = ()
    """Optional dependencies selected with --extra."""
    groups: tuple[str, ...] = ()
    """Dependency groups selected with --group."""
    files: tuple[str, ...] = ()
    """Arguments for uv: the files to read, with their options."""
    lines: tuple[str, ...] = ()
    """Further requirements, from a format that uv cannot read here."""
    uploaded: frozenset[Path] = frozenset()
    """The program's uploaded files, relative to the directory."""
    modules: frozenset[str]
    """Modules that its files import, such as `horovod.torch`."""
    keras: int = 3
    """Keras version selected with --keras."""
    horovod: bool = True
    """Whether Horovod starts the program."""

    @property
    def uses_torch(self) -> bool:
        """Return whether Horovod must be built for PyTorch: Horovod starts the program, which imports TORCH_MODULE."""
        return self.horovod and self._imports(TORCH_MODULE)

    @property
    def uses_tensorflow(self) -> bool:
        """Return whether Horovod must be built for TensorFlow.

        True if Horovod starts the program, and the program does not import TORCH_MODULE or also imports one of
        TENSORFLOW_MODULES.
        """
        return self.horovod and (not self.uses_torch or any(map(self._imports, TENSORFLOW_MODULES)))

    @property
    def label(self) -> str:
        """Return the name of the requirements file for messages, or words for a program without such a file."""
        return self.requirements or "the program (it has no requirements.txt)"

    def _imports(self, name: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for module in self.modules)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """The Python environment for a program's ranks."""

    lock: str = ""
    """Text of its lock file; "" for the runtime alone."""
    over_runtime: bool = False
    """Whether the packages are installed on top of the runtime. Otherwise the program has its own environment."""
    wheels: tuple[Path, ...] = ()
    """Local wheels, and Horovod's source if the nodes build it, that are uploaded beside the program."""
    download_bytes: int = 0
    """Bytes of packages that one node downloads."""
    notes: tuple[str, ...] = ()
    """Notes for the user on the choice of packages."""
    horovod_for: tuple[str, ...] = ()
    """The frameworks that Horovod is built for in this environment."""
    keras: int = 3
    """Version of Keras that belongs to its TensorFlow: 3 or 2."""
    tf_keras: bool = False
    """Whether Keras 2 is installed too (tf-keras), for a program that needs it."""
    why: str = ""
    """Why the runtime alone is not enough."""

    @property
    def own(self) -> bool:
        """Return whether the program has its own environment, instead of the runtime.

        False also for packages that are installed on top of the runtime.
        """
        return bool(self.lock) and not self.over_runtime

    @property
    def packages(self) -> dict[str, str]:
        """Return the versions of the packages in the lock file, by name; empty for the runtime alone."""
        return pinned(self.lock)

    def __str__(self) -> str:
        """Describe the environment in one line: its main packages, the sizes, and why the program needs its own, if it
        does.
        """
        shown = [f"{name} {self.packages[name]}" for name in _TOLD if name in self.packages]
        horovod = [f"Horovod {HOROVOD_VERSION} for {' and '.join(self.horovod_for)}"] if self.horovod_for else []
        count = len(self.packages)
        total = f"{count} package{'s' * (count != 1)}, {megabytes(self.download_bytes)} to download"
        if self.wheels:
            total += f", {megabytes(sum(path.stat().st_size for path in self.wheels))} to upload"
        if self.over_runtime:
            shown = [f"{name} {version}" for name, version in self.packages.items()]
            return f"over the nodes' runtime: {', '.join(shown[:8])}{', ...' * bool(shown[8:])}; {total}"
        listed = ", ".join([*shown, *horovod]) or "neither TensorFlow nor PyTorch"
        return f"the program's own environment ({self.why}): {listed}; {total}"


def megabytes(count: int) -> str:
    """Format a number of bytes in MB of a million bytes, with one decimal below 10 MB."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


_TOLD: Final = (*TENSORFLOW_PACKAGES, "keras", TORCH, "numpy")
RUNTIME: Final = Environment()
