"""The health of a node's GPUs: a command for the node, and a parser that detects faults that need another node.

The tests use lines from public reports, in the format of drivers 535 to 580. The check was not run on a GPU.

An Xid is an error report of NVIDIA's driver in the kernel's log. XIDS contains the codes with the immediate action
RESET_GPU or RESTART_BM in NVIDIA's catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). It
also contains 48, because the catalog's workflow for it ends in a reset. Errors of programs (13, 31, 43), contained
errors (94) and remapped rows (63) need no other node. NVLink's errors (74, 144 to 150) have no single action: the
driver states the action in Xid 154.
"""

from __future__ import annotations

import re
from typing import Final

from agent.hardware.gpus import TIMEOUT_S

NVIDIA_SMI: Final = "deepcdk: nvidia-smi"
"""Begins the part of the output that nvidia-smi prints."""
ENDED: Final = "deepcdk: status "
_SCRIPT: Final = f"""\
(dmesg 2>/dev/null || sudo -n dmesg 2>/dev/null) | grep -F 'NVRM: Xid' | tail -n 500
echo '{NVIDIA_SMI}'
timeout {TIMEOUT_S:g} nvidia-smi --query-gpu=pci.bus_id,ecc.errors.uncorrected.volatile.total --format=csv,noheader 2>&1
echo "{ENDED}$?"
"""
COMMAND: Final = ("/bin/sh", "-c", _SCRIPT)
"""For a node's shell: print the Xids since the boot, then each GPU's address and uncorrectable memory errors."""
XIDS: Final = {
    46: "the GPU stopped processing",
    48: "an uncorrectable memory error",
    62: "its microcontroller halted",
    64: "a faulty memory row could not be remapped",
    79: "the GPU has fallen off the bus",
    95: "an uncontained memory error",
    109: "a context switch timed out",
    110: "a security fault",
    119: "its system processor does not answer",
    120: "an error of its system processor",
    136: "a link could not be trained",
    140: "an unrecovered memory error",
    143: "it could not be initialized",
    158: "a fatal time-out",
}
RECOVERY: Final = 154
"""The Xid that states the recovery action of a GPU."""
_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{4,20})\): ([0-9]{1,4})(?:, ?(.{0,500}))?")
_ACTION: Final = re.compile(r"to 0x[0-9a-fA-F]{1,4} \(([A-Za-z0-9 ]{1,40})\)")
_HARMLESS: Final = ("None", "Drain P2P")
_GPU: Final = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{4,12}), *([0-9]{1,15}|\[[^\]]{1,30}\])")
_LOST: Final = re.compile(
    r"Unable to determine the device handle for GPU|GPU is lost|No devices were found|GPU requires reset", re.IGNORECASE
)
"""What nvidia-smi prints if the driver no longer reaches a GPU."""


def parse(output: str, expected: int) -> str:
    """Return the fault of a node's GPUs, from the output of COMMAND; "" if no fault is known.

    `expected` is the number of GPUs that the node must have. If nvidia-smi itself fails, for example after an update of
    the driver, this is not reported as a fault. Raises ValueError if the output is malformed.
    """
    log, mark, rest = output.partition(f"{NVIDIA_SMI}\n")
    printed, ended, status = rest.rpartition(ENDED)
    if not mark or not ended or not status.strip().isdecimal():
        raise ValueError(f"the check of its GPUs printed no result: {output.strip()[-100:]!r}")
    if trouble := _worst_xid(log):
        return trouble
    if _LOST.search(printed):
        return "nvidia-smi reports a lost GPU"
    found = [match for line in printed.splitlines() if (match := _GPU.fullmatch(line.strip()))]
    for address, errors in (match.groups() for match in found):
        if errors.isdecimal() and int(errors):
            return f"GPU {address}: {int(errors)} uncorrectable memory errors"
    if int(status) == 0 and len(found) < expected:
        return f"nvidia-smi lists {len(found)} of {expected} GPUs"
    return ""


def _worst_xid(log: str) -> str:
    """Describe the first Xid of a kernel's log that needs a reset or another node; "" if no Xid does.

    The latest statement of the driver about a GPU (RECOVERY) counts, because a reset withdraws the earlier ones.
    """
    actions: dict[str, str] = {}
    for address, code, text in _XID.findall(log):
        if int(code) in XIDS:
            return f"GPU {address}: Xid {int(code)}, {XIDS[int(code)]}"
        if int(code) == RECOVERY and (action := _ACTION.search(text)):
            actions[address] = action[1]
    needed = [(address, action) for address, action in actions.items() if action not in _HARMLESS]
    return f"GPU {needed[0][0]}: Xid {RECOVERY}, it needs: {needed[0][1]}" if needed else ""
