"""The monitor of a QEMU: https://www.qemu.org/docs/master/interop/qmp-spec.html."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from localcloud.machines.json_socket import JsonSocket

_TIMEOUT_S: Final = 5.0


def power_down(path: Path) -> None:
    """Press the power button, as EC2 does: the machine's system shuts down. Raises NoAnswerError or RefusedError."""
    with JsonSocket(path, _TIMEOUT_S) as monitor:
        monitor.request("qmp_capabilities")
        monitor.request("system_powerdown")
