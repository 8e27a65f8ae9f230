"""The kinds of faults. Each is a function that injects a fault and returns a description and its repair."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Final

from localcloud.chaos.attempt import Attempt, Done, Host, NoTargetError, named
from localcloud.chaos.file_faults import fill_disk, flip_bit
from localcloud.chaos.network_faults import cut, drop, slow
from localcloud.chaos.processes import Process, processes_of, ranks_of
from localcloud.errors import LocalCloudError

API_SHARE: Final = 0.5


def carry_out(attempt: Attempt) -> Done:
    """Inject one fault; return its description, and its repair if it is temporary.

    Raises NoTargetError if there is no target, NotRunningError if the cloud has stopped, and LocalCloudError if the
    injection fails.
    """
    try:
        return _FAULTS[attempt.fault.kind](attempt)
    except ProcessLookupError:
        raise NoTargetError("the chosen process has already exited") from None
    except OSError as error:
        if isinstance(error, LocalCloudError):
            raise
        place = f"{error.filename}: " if error.filename else ""
        raise LocalCloudError(f"{place}{error.strerror or error}") from error


def _rank(attempt: Attempt) -> tuple[Host, Process]:
    """Choose a rank without an active fault of this kind; return its host and process. Raises NoTargetError."""
    return attempt.choose([pair for pair in _ranks(attempt) if str(pair[1].pid) not in attempt.busy], "running rank")


def _ranks(attempt: Attempt) -> list[tuple[Host, Process]]:
    """Return all running ranks with their hosts, sorted by rank."""
    found = [(host, rank) for host in attempt.running() for rank in ranks_of(processes_of(host["pid"]))]
    return sorted(found, key=lambda pair: (pair[1].rank, pair[1].pid))


def _kill_rank(attempt: Attempt) -> Done:
    host, rank = _rank(attempt)
    os.kill(rank.pid, signal.SIGKILL)
    return Done(what=f"killed rank {rank.rank} on {named(host)}")


def _freeze_rank(attempt: Attempt) -> Done:
    host, rank = _rank(attempt)
    fd = os.pidfd_open(rank.pid)  # the pid may belong to another process by the time of the repair

    def resume() -> None:
        with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
            signal.pidfd_send_signal(fd, signal.SIGCONT)
        os.close(fd)

    try:
        signal.pidfd_send_signal(fd, signal.SIGSTOP)
    except OSError:
        os.close(fd)
        raise
    return Done(what=f"froze rank {rank.rank} on {named(host)}", target=str(rank.pid), undo=resume)


def _kill_supervisor(attempt: Attempt) -> Done:
    pattern = attempt.patterns.supervisor
    if not pattern:
        raise NoTargetError("--supervisor is not set; it selects the process to kill")
    found = [
        (host, process)
        for host in attempt.hosts()
        for process in processes_of(host["pid"])
        if re.search(pattern, process.command)
    ]
    host, process = attempt.choose(found, f"process that matches --supervisor {pattern!r}")
    os.kill(process.pid, signal.SIGKILL)
    return Done(what=f"killed {process.command[:80]!r} on {named(host)}")


def _kill_host(attempt: Attempt) -> Done:
    host = attempt.host()
    os.kill(host["pid"], signal.SIGKILL)
    return Done(what=f"killed {named(host)}")


def _kill_half(attempt: Attempt) -> Done:
    """Kill half of the running hosts that the fault may affect, rounded down.

    The fault's random place selects the first. The next hosts in the list follow, continuing at the start of the list
    after its end. Raises NoTargetError if there are fewer than two such hosts.
    """
    hosts = attempt.hosts()
    if len(hosts) < 2:
        raise NoTargetError("fewer than two of the hosts that this fault may affect are running")
    first = hosts.index(attempt.choose(hosts, "host"))
    half = [hosts[(first + n) % len(hosts)] for n in range(len(hosts) // 2)]
    for host in half:
        with contextlib.suppress(ProcessLookupError):
            os.kill(host["pid"], signal.SIGKILL)
    return Done(what=f"killed {len(half)} of {len(hosts)} hosts: {', '.join(map(named, half))}")


def _kill_first_host(attempt: Attempt) -> Done:
    """Kill the host of rank 0, or of the first remaining rank. Raises NoTargetError if there is no rank."""
    ranks = _ranks(attempt)
    if not ranks:
        raise NoTargetError("there is no running rank")
    host, rank = ranks[0]
    os.kill(host["pid"], signal.SIGKILL)
    return Done(what=f"killed {named(host)}, the host of rank {rank.rank}")


def _api_errors(attempt: Attempt) -> Done:
    target, ask = attempt.unless_busy("API"), attempt.cloud.ask
    ask({"do": "fail", "share": str(API_SHARE), "seconds": str(attempt.fault.lasts_s)})
    return Done(what=f"made {API_SHARE:.0%} of the API calls fail", target=target, undo=lambda: ask({"do": "fail"}))


def _spot_notice(attempt: Attempt) -> Done:
    host = attempt.choose([host for host in attempt.hosts() if host.get("spot")], "spot instance")
    notice_s = attempt.patterns.notice_s
    attempt.cloud.ask({"do": "interrupt", "instance": host["instance_id"], "notice_s": str(notice_s)})
    return Done(what=f"sent {named(host)} a spot interruption notice: it is terminated in {notice_s:g} s")


def _terminate(attempt: Attempt) -> Done:
    host = attempt.host()
    attempt.cloud.call("terminate_instances", host["instance_id"])
    return Done(what=f"terminated {named(host)}")


def _reboot(attempt: Attempt) -> Done:
    host = attempt.host()
    attempt.cloud.call("reboot_instances", host["instance_id"])
    return Done(what=f"rebooted {named(host)}")


_FAULTS: Final[Mapping[str, Callable[[Attempt], Done]]] = {
    "kill-rank": _kill_rank,
    "freeze-rank": _freeze_rank,
    "kill-supervisor": _kill_supervisor,
    "kill-host": _kill_host,
    "kill-half": _kill_half,
    "kill-first-host": _kill_first_host,
    "cut": cut,
    "drop": drop,
    "slow": slow,
    "fill-disk": fill_disk,
    "flip-bit": flip_bit,
    "api-errors": _api_errors,
    "spot-notice": _spot_notice,
    "terminate": _terminate,
    "reboot": _reboot,
}
