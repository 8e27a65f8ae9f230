"""Install a program's packages on top of the runtime, without changing the runtime that other programs use.

The laptop locks the packages that the runtime lacks. One node stores them as wheels on the shared file system, and
every node installs them from there. An overlay is the virtual environment ROOT/FINGERPRINT in the login user's home.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from agent.environment.install_step import RuntimeSetupError
from agent.environment.virtual_environment import VirtualEnvironment

TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu")
"""The same package under two names. Each satisfies a requirement for the other."""
_PACKAGES: Final = """
import importlib.metadata, json, re, sysconfig
found = importlib.metadata.distributions()
found = {re.sub('[-_.]+', '-', each.metadata['Name']).lower(): each.version for each in found}
print(json.dumps([sysconfig.get_path('purelib'), found]))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlay(VirtualEnvironment):
    """The packages of a program's lock file, in an environment whose Python also imports those of the runtime."""

    name: ClassVar[str] = "the environment with the program's packages"
    runtime: Path
    """Path of the runtime's Python."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the fingerprint: the platform, the packages and the runtime."""
        return {**super().inputs, "runtime": str(self.runtime)}

    def prepare(self) -> None:
        """Make the runtime's packages importable after the overlay's own, and provide both names of TensorFlow.

        Raises RuntimeSetupError.
        """
        output = self.run("Listing the runtime's packages", [str(self.runtime), "-c", _PACKAGES])
        below, versions = json.loads(output.splitlines()[-1])
        version = next((versions[name] for name in TENSORFLOW if name in versions), None)
        if version is None:
            place = self.runtime.parent.parent
            raise RuntimeSetupError(f"{place} has no TensorFlow. Remove {place}; the next attempt makes it again.")
        (self.site_packages / "runtime.pth").write_text(f"import site; site.addsitedir({below!r})\n")
        for name in TENSORFLOW:
            if name not in versions:
                self._stand_in(name, version)

    def _stand_in(self, name: str, version: str) -> None:
        """Add metadata of a package `name` with this version: TensorFlow's other name, for packages that require it."""
        folder = self.site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "INSTALLER").write_text("deepcdk\n")
        (folder / "RECORD").write_text("")
