"""The other tools that benchmarks compare with. Each is installed in its own virtual environment, when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.clouds import output_of
from cluster import demo

PACKAGES: Final = {
    "sky": "skypilot==0.14.1",
    "dstack": "dstack==0.22.5",
    "pcluster": "aws-parallelcluster==3.16.1",
    "ray": "ray[default]==2.60.0",
    "parallel-ssh": "parallel-ssh==2.16.0.post1",
    "ansible": "ansible-core==2.19.14",
    "torch": "torch==2.13.0",
}
"""The package of each tool. docs/comparison.md describes these versions of the first four."""


def environment_of(tool: str) -> Path:
    """Return the virtual environment of a tool. It exists only after `install`."""
    return demo.ROOT / f".peers-{tool}"


def install(tool: str) -> None:
    """Install a tool in its environment, unless this version is already there. Raises RuntimeError if uv fails."""
    environment, package = environment_of(tool), PACKAGES[tool]
    stamp = environment / package
    if not stamp.exists():
        output_of(["uv", "venv", "--clear", str(environment)])
        output_of(["uv", "pip", "install", "--python", str(environment), package])
        stamp.touch()
