"""Hatchling's hook for the wheel: `uv build --wheel`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackageHook(BuildHookInterface):  # type: ignore[misc]  # hatchling is not installed here
    """Put the package that `tools.wheel` writes into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package to a temporary directory, and add the directory to the wheel as `deepcdk`."""
        sys.path.insert(0, self.root)
        from tools.wheel import write_package

        self.written = Path(tempfile.mkdtemp(prefix="deepcdk-wheel-"))
        write_package(Path(self.root), self.written)
        build_data["force_include"][str(self.written)] = "deepcdk"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary directory."""
        shutil.rmtree(self.written)
