"""What a program asks of its environment, and what it gets: the nodes' runtime, or packages of its own.

Apart from `cluster.programs.resolution`, which finds the one for the other, since most programs have no requirements
and start without reading that.
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
"""Modules of the nodes' runtime, which a program without requirements can import."""
_PIN: Final = re.compile(
    r"^([A-Za-z0-9][\w.-]*)(?:==([^\s;\\]+)| @ \S*/[^-/\s]+-([^-/\s]+)-[^/\s]+\.whl)", re.MULTILINE
)


def pinned(lock: str) -> dict[str, str]:
    """Return the versions of the packages of a lock file, by their names."""
    return {name: version or unquote(other) for name, version, other in _PIN.findall(lock)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a program asks of its environment."""

    directory: Path
    requirements: str
    """Path of the file that lists its packages, relative to the directory or absolute; empty: none."""
    extras: tuple[str, ...] = ()
    """Optional dependencies that --extra chooses."""
    groups: tuple[str, ...] = ()
    """Dependency groups that --group chooses."""
    files: tuple[str, ...] = ()
    """What uv reads: files, with the options that belong to them."""
    lines: tuple[str, ...] = ()
    """Further requirements, from a format that uv does not read here."""
    uploaded: frozenset[Path] = frozenset()
    """Its uploaded files, relative to the directory."""
    modules: frozenset[str]
    """What its files import, as `horovod.torch`."""
    keras: int = 3
    """The version that it is to have, as --keras says."""
    horovod: bool = True
    """Whether Horovod starts it."""

    @property
    def uses_torch(self) -> bool:
        """Return whether Horovod must be built for PyTorch."""
        return self.horovod and self._imports(TORCH_MODULE)

    @property
    def uses_tensorflow(self) -> bool:
        """Return whether it needs TensorFlow, whether its requirements name it or not."""
        return self.horovod and (not self.uses_torch or any(map(self._imports, TENSORFLOW_MODULES)))

    @property
    def file(self) -> str:
        """Return what its requirements are called in a message."""
        return self.requirements or "the program, which has no requirements.txt,"

    def _imports(self, name: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for module in self.modules)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """What the ranks of a program run in."""

    lock: str = ""
    """The text of its lock file; empty: the runtime alone."""
    over_runtime: bool = False
    """Whether the packages are laid over the runtime. Otherwise the environment is the program's own."""
    wheels: tuple[Path, ...] = ()
    """Files of this machine that the nodes need beside the program."""
    download_bytes: int = 0
    """Size of the packages that one node downloads."""
    notes: tuple[str, ...] = ()
    """What the user should know of the choice of packages."""
    horovod_for: tuple[str, ...] = ()
    """The frameworks that Horovod is built for there."""
    keras: int = 3
    """The version of Keras that comes with its TensorFlow: 3, or 2."""
    tf_keras: bool = False
    """Whether it has Keras 2 beside it, for a program that is to have that."""
    why: str = ""
    """Why it is not the runtime."""

    @property
    def own(self) -> bool:
        """Return whether it is the program's own, not the runtime."""
        return bool(self.lock) and not self.over_runtime

    @property
    def packages(self) -> dict[str, str]:
        """Return the versions of its packages; empty for the runtime."""
        return pinned(self.lock)

    def __str__(self) -> str:
        """Return it in one line."""
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
        return f"an environment of the program's own ({self.why}): {listed}; {total}"


def megabytes(count: int) -> str:
    """Return a size in MB, with one decimal below 10."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


_TOLD: Final = (*TENSORFLOW_PACKAGES, "keras", TORCH, "numpy")
RUNTIME: Final = Environment()
