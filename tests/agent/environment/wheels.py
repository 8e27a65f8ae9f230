"""Small packages for tests, as wheels and source distributions."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str = "toy", version: str = "1.2", *requires: str, build: str = "") -> str:
    """Write a wheel with one module that contains its version; return its line for a lock file."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}{build}-py3-none-any.whl"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\nBUILD = {build!r}\n")
        archive.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def write_source(simple: Path, name: str, *requires: str, seen: Path) -> str:
    """Add a source distribution to an index. Its build appends the command lines of all pips to the file `seen`.

    Return its line for a lock file.
    """
    backend = f"""
import pathlib, zipfile
def command_line(path):
    try:
        return path.read_bytes().replace(bytes(1), b" ").decode(errors="replace")
    except OSError:  # Processes end meanwhile.
        return ""
def build_wheel(directory, config_settings=None, metadata_directory=None):
    lines = [command_line(path) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
    with open({str(seen)!r}, "a") as output:
        output.writelines(line + chr(10) for line in lines if "pip" in line)
    wheel = "{name}-1.2-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / wheel, "w") as file:
        file.writestr("{name}.py", "")
        for metadata, text in (
            ("METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.2\\n"),
            ("WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"),
            ("RECORD", ""),
        ):
            file.writestr("{name}-1.2.dist-info/" + metadata, text)
    return wheel
"""
    project = f"[build-system]\nrequires = {list(requires)}\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"
    source = simple / name / f"{name}-1.2.tar.gz"
    source.parent.mkdir(parents=True)
    with tarfile.open(source, "w:gz") as archive:
        for path, text in (("backend.py", backend), ("pyproject.toml", project), ("PKG-INFO", metadata)):
            entry = tarfile.TarInfo(f"{name}-1.2/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return f"{name}==1.2 \\\n    --hash=sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}\n"
