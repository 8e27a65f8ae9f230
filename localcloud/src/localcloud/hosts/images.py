"""Images as hosts have them: the directories below a host's own layer, and what its first process does with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from localcloud.hosts.binds import Bind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """What the hosts of one image share."""

    lower: tuple[Path, ...]
    """Directories of the overlay below a host's own, the uppermost first."""
    boot: str
    """The file of `guest/` that says what happens once file systems and network are there."""
    environment: Mapping[str, str]
    """Variables of every process."""
    binds: tuple[Bind, ...] = ()
    """Directories of the machine that a host sees, read-only."""
    accounts: bool = True
    """Whether the image has login users, who take the instance's key; where not, cloud-init makes one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """The images of a cloud."""

    machine: Image
    """This machine's own root, which stands for every image that is not named here."""
    by_id: Mapping[str, Image] = dataclasses.field(default_factory=dict)

    def of(self, image_id: str) -> Image:
        """Return the image for an AMI's id."""
        return self.by_id.get(image_id, self.machine)
