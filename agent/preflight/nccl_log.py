"""Parse NCCL's log with NCCL_DEBUG=INFO: the ranks that it connects, and the network that it uses.

The formats are from published logs of NCCL 2.12 to 2.30 with aws-ofi-nccl on EC2, and from our own logs of 2.32.3
without that plug-in on an H200. For example:

    node-0:172:172 [0] NCCL INFO NCCL version 2.29.2+cuda12.8
    node-0:172:172 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.18.0
    node-0:172:172 [0] NCCL INFO Using network Libfabric
    node-0:172:172 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 3 nics)
    node-0:172:386 [0] NCCL INFO ncclCommInitRank comm 0x55b1 rank 0 nranks 16 cudaDev 0 busId 160 - Init COMPLETE

A launcher may put the rank before each line. NCCL 2.21 logs its version only once, as "NCCL version 2.21.5+cuda12.8"
without the prefix.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import socket
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "NCCL_DEBUG"
LEVEL: Final = "INFO"
HIDING: Final = ("NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
"""Variables of a user that would hide these lines from the output."""
_LINE_BUFFERED: Final = 1
"""_IOLBF of glibc's stdio.h."""
_INFO: Final = "] NCCL INFO "
_PROCESS: Final = re.compile(r"(?:.*[^A-Za-z0-9_.-])?([A-Za-z0-9_.-]{1,255}):([0-9]{1,9}):[0-9]{1,9}")
_NETWORK: Final = re.compile(r"Using network (\S.{0,254})")
_PROVIDER: Final = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,]{1,255})")
_NCCL: Final = re.compile(r"NCCL version ([0-9][0-9.]{0,30})")
_BARE_NCCL: Final = re.compile(r"(?:\[[^\]\s]{1,40}\](?:<std(?:out|err)>)?: ?)?NCCL version ([0-9][0-9.]{0,30})\+")
_PLUGIN: Final = re.compile(r"NET/OFI (?:Initializing|Using) aws-ofi-nccl ([A-Za-z0-9._+-]{1,30})")
_RANKS: Final = re.compile(r"\bnranks ([0-9]{1,9})\b")
_COMPLETE: Final = re.compile(r"\bInit COMPLETE\b")
UNKNOWN: Final = "of unknown version"
TESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "1.21": ("2.31.2",),
    "1.20": ("2.28.9", "2.29.7", "2.30.4"),
    "1.19": ("2.27.3", "2.28.7", "2.29.7"),
    "1.18": ("2.29.2",),
}
"""NCCL versions that AWS's release notes of each aws-ofi-nccl series name as tested or supported.

RELEASENOTES.md: "has been tested with NCCL v2.31.2-1" (1.18: "supports"). Other pairs have hung: aws-ofi-nccl #1055.
"""
PLUGIN: Final = "1.21.1"
"""Version in EFA installer 1.50.0, which AWS's base images for ARM64 contain since the middle of September 2026."""
LOCKED: Final = TESTED["1.21"][0]
"""Version of NCCL in the workers' runtime for GPUs, tested with PLUGIN."""
_MAX_TEXT: Final = 512
"""Characters on each side of _INFO to search in a line, because any program can write such lines."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NcclProcess:
    """What NCCL logged in one process."""

    ranks: int = 0
    """Size of its largest initialized communicator; 0: none was initialized."""
    network: str = ""
    """Name of the network in use, such as Socket, IB or Libfabric; "" if not logged."""
    provider: str = ""
    """Libfabric's provider, such as efa; "" if the plug-in was not loaded."""
    nccl: str = ""
    """Version of NCCL, such as 2.31.2; "" if not logged."""
    plugin: str = ""
    """Version of aws-ofi-nccl, such as 1.21.1 or git-6e504db; "" if it was not loaded."""

    @property
    def pair(self) -> str:
        """Return the versions of NCCL and its plug-in as text, such as `NCCL 2.31.2 with aws-ofi-nccl 1.21.1`.

        An unknown version is UNKNOWN. Without the plug-in, only NCCL is named.
        """
        plugin = self.plugin or (UNKNOWN if self.provider else "")
        return f"NCCL {self.nccl or UNKNOWN}" + (f" with aws-ofi-nccl {plugin}" if plugin else "")

    @property
    def is_tested(self) -> bool:
        """Return whether AWS's release notes of this plug-in name this version of NCCL."""
        return self.nccl in TESTED.get(".".join(self.plugin.split(".")[:2]), ())

    @property
    def is_suspect(self) -> bool:
        """Return whether an untested pair was in use, or about to be used when the log ended.

        Return False over TCP, because the plug-in is not used there.
        """
        return bool(self.plugin or self.provider) and self.route != "TCP" and not self.is_tested

    @property
    def route(self) -> str:
        """Return a short name of the network: EFA, TCP, or else NCCL's name for it; "" if not logged."""
        if self.provider == "efa":
            return "EFA"
        return "TCP" if self.network == "Socket" else self.provider or self.network


def log_to_stdout() -> None:
    """Make NCCL log to this process's standard output. Call this before NCCL is loaded.

    Sets NCCL_DEBUG=INFO, and removes variables of the user that would hide the lines. NCCL writes through C's standard
    output, which is fully buffered for a pipe. This sets line buffering. Otherwise Python's output could be inside a
    line, and a process that exits by `os._exit` would lose the last block.
    """
    os.environ[VARIABLE] = LEVEL
    for name in HIDING:
        os.environ.pop(name, None)
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, ctypes.c_size_t(0))


def this_process() -> str:
    """Return this process's name in NCCL's lines: the host's name up to the first dot, and the process ID."""
    return f"{socket.gethostname().partition('.')[0]}:{os.getpid()}"


def parse(output: str) -> dict[str, NcclProcess]:
    """Parse NCCL's lines in a launcher's output into one NcclProcess per process, by name as in `this_process`.

    A process that did not log NCCL's version gets the first version in the output.
    """
    found: dict[str, NcclProcess] = {}
    of_all = ""
    for line in output.splitlines():
        before, is_info, text = line.partition(_INFO)
        logged = _PROCESS.fullmatch(before.rpartition(" [")[0][-_MAX_TEXT:]) if is_info else None
        if logged is None:
            if bare := _BARE_NCCL.match(line):
                of_all = of_all or bare[1]
            continue
        process, text = f"{logged[1].partition('.')[0]}:{logged[2]}", text[:_MAX_TEXT]
        known = found.get(process, NcclProcess())
        if network := _NETWORK.match(text):
            known = dataclasses.replace(known, network=network[1].rstrip())
        elif provider := _PROVIDER.match(text):
            known = dataclasses.replace(known, provider=provider[1].lower())
        elif nccl := _NCCL.match(text):
            known = dataclasses.replace(known, nccl=nccl[1])
            of_all = of_all or nccl[1]
        elif plugin := _PLUGIN.match(text):
            known = dataclasses.replace(known, plugin=plugin[1])
        elif (ranks := _RANKS.search(text)) and _COMPLETE.search(text, ranks.end()):
            known = dataclasses.replace(known, ranks=max(known.ranks, int(ranks[1])))
        found[process] = known
    return {name: dataclasses.replace(each, nccl=each.nccl or of_all) for name, each in found.items()}
