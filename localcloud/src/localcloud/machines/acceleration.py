"""Whether machines run by this machine's own processor, through KVM, or are emulated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from localcloud.machines.qemu import COMMAND

DEVICE: Final = Path("/dev/kvm")
_BOOTED: Final = b"Linux version"
"""The first words of a kernel that runs."""
_PROBE_S: Final = 5.0
"""How long a kernel may take to say its first words: tenths of a second where KVM works."""


def choose(kernel: Path, device: Path = DEVICE) -> str:
    """Return `kvm` where a kernel boots with it, otherwise `tcg`, by which machines are some ten times as slow.

    That the device is there, and makes machines, is not enough: on a machine that is itself a guest, it may not run a
    stock kernel.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return "tcg"
    probe = [
        *(COMMAND, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"),
        *("-accel", "kvm", "-cpu", "host", "-m", "256M", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(kernel), "-append", "console=ttyS0,115200 panic=-1"),
    ]
    try:
        # Without a root it ends by itself; one that hangs is killed.
        done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
    return "kvm" if _BOOTED in said else "tcg"
