"""Hosts are measured with the kernel's counters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.hosts.metering import Meter, Reading, load, parse_network, parse_stat, read
from testbed import WORKER
from waiting import eventually

_IN_NAMESPACES = ("unshare", "--pid", "--net", "--fork", "--kill-child")
STAT = "4711 (python) 3) S 1 4711 4711 0 -1 4194560 1 2 3 4 150 50 25 75 20 0 1 0 99 1000 10 18446744073709551615\n"
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:     840       8    0    0    0     0          0         0      840       8    0    0    0     0       0
  eth0: 1234567     900    0    0    0     0          0         0   765432     800    0    0    0     0       0
"""


def test_processor_time_includes_exited_children_and_any_process_name() -> None:
    assert parse_stat(STAT) == pytest.approx(300 / os.sysconf("SC_CLK_TCK"))


def test_only_network_card_is_counted_and_missing_card_is_zero() -> None:
    assert parse_network(NET) == (1234567, 765432)
    assert parse_network(NET.replace("eth0", "ens5")) == (0, 0)
    assert parse_network("") == (0, 0)


def test_load_is_relative_to_fair_share() -> None:
    before = Reading(cpu_s=10, received_bytes=1000, sent_bytes=500)
    after = Reading(cpu_s=13, received_bytes=4000, sent_bytes=500)
    found = load(WORKER, before, after, elapsed_s=60, fair_cores=0.1, speed=1)
    assert (round(found.cpu_percent), found.received_bytes, found.sent_bytes) == (50, 3000, 0)
    assert load(WORKER, before, after, elapsed_s=60, fair_cores=0.01, speed=1).cpu_percent == 100


def test_bytes_are_multiplied_by_metrics_speed() -> None:
    before, after = (Reading(cpu_s=0, received_bytes=n, sent_bytes=n) for n in (0, 100))
    found = load(WORKER, before, after, elapsed_s=1, fair_cores=1, speed=60)
    assert (found.received_bytes, found.sent_bytes) == (6000, 6000)


def test_exited_host_is_omitted(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    assert read({"i-1": 1, "i-2": 2}, tmp_path) == {}


def test_new_host_is_measured_from_its_second_reading_on() -> None:
    now = iter([0.0, 0.5, 1.0, 1.0, 2.0])
    meter = Meter(60, clock=lambda: next(now))
    assert [meter.due, meter.due] == [False, True]
    assert meter.measure([(WORKER, os.getpid())]) == []
    (found,) = meter.measure([(WORKER, os.getpid())])
    assert found.instance_id == WORKER.id


@pytest.mark.root
def test_work_of_exited_processes_counts_for_their_host() -> None:
    script = "import time\nwhile time.process_time() < 0.5: pass"
    waiting = 'read; "$@"; echo done; read'
    holder = subprocess.Popen(
        [*_IN_NAMESPACES, "bash", "-c", waiting, "bash", sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        eventually(lambda: bool(children.read_text()))
        init = children.read_text()
        before = read({"i-1": int(init)})["i-1"]
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "done\n"
        after = read({"i-1": int(init)})["i-1"]
        assert 0.4 < after.cpu_s - before.cpu_s < 5
    finally:
        holder.kill()
        holder.wait()
