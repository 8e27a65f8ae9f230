"""NCCL's log: the connected ranks and their network, for each process, whatever text precedes the lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.preflight import nccl_log
from agent.preflight.nccl_log import NcclProcess

EFA_2_27 = """\
nccl-trainjob-node-0-0:172:172 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v11)
nccl-trainjob-node-0-0:172:172 [0] NCCL INFO Using network Libfabric
nccl-trainjob-node-0-0:172:172 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 3 nics)
"""
SOCKET = """\
VM-16-64-ubuntu:28471:28471 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
VM-16-64-ubuntu:28471:28471 [0] NCCL INFO Using network Socket
VM-16-64-ubuntu:28471:28471 [0] NCCL INFO [Rank 0] ncclCommInitRank comm 0x55eb22a04a50 rank 0 nranks 2 cudaDev 0 \
nvmlDev 0 busId 80 commId 0x2ef13c5ed0553a05 - Init START
[1]<stdout>:VM-16-64-ubuntu:28471:28490 [0] NCCL INFO ncclCommInitRank comm 0x55eb22a04a50 rank 0 nranks 2 cudaDev 0 \
nvmlDev 0 busId 80 commId 0x2ef13c5ed0553a05 - Init COMPLETE
"""
# The first rank of two on one H200, started by Horovod's launcher: the relevant lines of a recording.
OURS_2_32 = """\
[0]<stdout>:vm:2166:2245 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =lo
[0]<stdout>:vm:2166:2245 [0] NCCL INFO NCCL version 2.32.3+cuda12.9
[0]<stdout>:vm:2166:2245 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
[0]<stdout>:[2026-11-26 03:33:10] vm:2166:2245 [0] plugin/net.cc:229 (ncclNetPluginInit) NCCL ATTN Failed to \
initialize NET plugin IB
[0]<stdout>:vm:2166:2245 [0] NCCL INFO Assigned NET plugin Socket to comm
[0]<stdout>:vm:2166:2245 [0] NCCL INFO Using network Socket
[0]<stdout>:vm:2166:2245 [0] NCCL INFO [Rank 0] ncclCommInitRank comm 0x7f2d6c03a420 rank 0 nranks 2 cudaDev 0 \
nvmlDev 0 busId 60 commId 0x779b63dcdd89f78d - Init START
[0]<stdout>:vm:2166:2245 [0] NCCL INFO ncclCommInitRank comm 0x7f2d6c03a420 rank 0 nranks 2 cudaDev 0 nvmlDev 0 \
busId 60 commId 0x779b63dcdd89f78d - Init COMPLETE
"""
# Two g7e.8xlarge nodes: the relevant lines of a published nccl-tests log, with a shortened host name.
EFA_2_29 = """\
gpu-st-ml-2:49542:49542 [0] NCCL INFO NCCL version 2.29.2+cuda12.8
gpu-st-ml-2:49542:49542 [0] NCCL INFO NCCL git version HEAD ebd1e92
gpu-st-ml-2:49542:49542 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v11)
gpu-st-ml-2:49542:49542 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.18.0
gpu-st-ml-2:49542:49542 [0] NCCL INFO NET/OFI Using Libfabric version 2.3
gpu-st-ml-2:49542:49542 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)
gpu-st-ml-2:49542:49542 [0] NCCL INFO Using network Libfabric
gpu-st-ml-2:49542:49542 [0] NCCL INFO ncclCommInitRank comm 0x63233dc434d0 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId \
30000 commId 0xc3d9a10350effd4f - Init COMPLETE
"""
# NCCL 2.21 in aws-ofi-nccl #889: one version line for all processes, without a process prefix.
BARE_2_21 = """\
NCCL version 2.21.5+cuda12.8
ip-10-36-22-140:83:2503 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.14.2
ip-10-36-22-140:83:2503 [0] NCCL INFO NET/OFI Using Libfabric version 2.1
"""
# aws-ofi-nccl #801 and NVIDIA/nccl #527: older plug-ins print "Using", and some versions end in words.
USING = "node-1:80:81 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.4.0aws\n"
FROM_GIT = "node-1:80:81 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl git-6e504db\n"


@pytest.mark.parametrize(
    ("output", "process", "nccl", "plugin", "is_tested"),
    [
        (EFA_2_29, "gpu-st-ml-2:49542", "2.29.2", "1.18.0", True),
        (EFA_2_29.replace("2.29.2", "2.32.3"), "gpu-st-ml-2:49542", "2.32.3", "1.18.0", False),
        (
            EFA_2_29.replace("1.18.0", "1.21.1").replace("2.29.2", "2.31.2"),
            "gpu-st-ml-2:49542",
            "2.31.2",
            "1.21.1",
            True,
        ),
        (EFA_2_29.replace("1.18.0", "1.22.0"), "gpu-st-ml-2:49542", "2.29.2", "1.22.0", False),
        (BARE_2_21, "ip-10-36-22-140:83", "2.21.5", "1.14.2", False),
        ("[default0]:" + BARE_2_21, "ip-10-36-22-140:83", "2.21.5", "1.14.2", False),
        ("[0]<stdout>:" + BARE_2_21, "ip-10-36-22-140:83", "2.21.5", "1.14.2", False),
        (USING, "node-1:80", "", "1.4.0aws", False),
        (FROM_GIT, "node-1:80", "", "git-6e504db", False),
    ],
)
def test_versions_of_nccl_and_its_plug_in_are_read_and_compared_with_what_aws_tests(
    output: str, process: str, nccl: str, plugin: str, *, is_tested: bool
) -> None:
    found = nccl_log.parse(output)[process]
    assert (found.nccl, found.plugin, found.is_tested) == (nccl, plugin, is_tested)


def test_process_without_logged_version_has_version_of_another() -> None:
    other = "node-2:9:9 [1] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.18.0\n"
    assert nccl_log.parse(EFA_2_29 + other)["node-2:9"].nccl == "2.29.2"


@pytest.mark.parametrize(
    ("output", "process", "expected", "route"),
    [
        (OURS_2_32, "vm:2166", NcclProcess(ranks=2, network="Socket", nccl="2.32.3"), "TCP"),
        (EFA_2_27, "nccl-trainjob-node-0-0:172", NcclProcess(network="Libfabric", provider="efa"), "EFA"),
        (SOCKET, "VM-16-64-ubuntu:28471", NcclProcess(ranks=2, network="Socket"), "TCP"),
    ],
)
def test_published_logs_of_several_versions_are_read(
    output: str, process: str, expected: NcclProcess, route: str
) -> None:
    found = nccl_log.parse(output)
    assert found == {process: expected}
    assert found[process].route == route


def test_largest_completely_initialized_communicator_counts() -> None:
    begun, completed = SOCKET.splitlines()[2:]
    assert nccl_log.parse(begun)["VM-16-64-ubuntu:28471"].ranks == 0
    more = completed.replace("nranks 2", "nranks 16")
    assert nccl_log.parse("\n".join([more, completed]))["VM-16-64-ubuntu:28471"].ranks == 16


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "1:1 [",
        "a:1:1 [0] NCCL INFO ",
        "a:1:1 [0] NCCL INFO nranks 1 ",
        "a:1:1 [0] NCCL INFO Using network " + " " * 900,
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_time_to_read_grows_only_with_size(part: str, end: str) -> None:
    """A pattern with quadratic time would take hours for the lines that never end."""
    text = (part + end) * ((2 << 20) // len(part))
    began = time.process_time()
    assert all(found.ranks == 0 for found in nccl_log.parse(text).values())
    assert time.process_time() - began < 20


def test_number_with_too_many_digits_is_ignored() -> None:
    line = "a:1:1 [0] NCCL INFO comm nranks {} Init COMPLETE\n"
    assert nccl_log.parse(line.format("9" * 5000)) == {"a:1": NcclProcess()}
    assert nccl_log.parse(f"a:{'9' * 5000}:1 [0] NCCL INFO Using network Socket\n") == {}


def test_user_variables_cannot_hide_nccl_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_SUBSYS": "GRAPH", "NCCL_DEBUG_FILE": "/x"})
    nccl_log.log_to_stdout()
    assert dict(os.environ) == {"NCCL_DEBUG": "INFO"}


def test_process_is_named_as_in_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "ip-10-0-64-5.ec2.internal")
    monkeypatch.setattr("os.getpid", lambda: 311)
    line = "ip-10-0-64-5:311:402 [0] NCCL INFO Using network Socket"
    assert list(nccl_log.parse(line)) == [nccl_log.this_process()]


# As in a PyTorch rank: a library writes through C's standard output, Python reports, and `os._exit` ends the process.
REPORTING_RANK = """
import ctypes, os
from agent.preflight import nccl_log
nccl_log.log_to_stdout()
libc = ctypes.CDLL(None)
for number in range(200):
    libc.printf(b"vm:1:1 [0] NCCL INFO Channel %d/64 : 0\\n", number)
print("report", flush=True)
libc.puts(b"vm:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE")
os._exit(0)
"""


def test_nccl_lines_are_complete_until_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", REPORTING_RANK], capture_output=True, text=True, check=True)
    *channels, report, last = done.stdout.splitlines()
    assert channels == [f"vm:1:1 [0] NCCL INFO Channel {number}/64 : 0" for number in range(200)]
    assert report == "report"
    assert nccl_log.parse(last)["vm:1"].ranks == 2


def test_documented_pairs_match_preflight() -> None:
    text = (Path(__file__).parents[3] / "docs" / "compute.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (1\.\d+) \| ([\d., ]+) \|$", text, re.MULTILINE)
    assert {series: tuple(versions.split(", ")) for series, versions in rows} == nccl_log.TESTED
    assert nccl_log.LOCKED in nccl_log.TESTED[nccl_log.PLUGIN.rpartition(".")[0]]
