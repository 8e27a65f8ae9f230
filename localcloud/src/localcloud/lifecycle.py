"""Start and stop of a cloud: the lock for its unique name, and the supervisor that cleans up after the daemon."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, TextIO

from localcloud import cleanup
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError, NotRunningError
from localcloud.hosts.cpu_limit import CpuLimit
from localcloud.start_options import MACHINES, Options

log = logging.getLogger("localcloud.supervisor")

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class AlreadyRunningError(LocalCloudError):
    """A cloud with this name is already running."""


class StartError(LocalCloudError, ChildProcessError):
    """The daemon exited before it was ready, or was not ready in time. The message has the last lines of its log."""


def start(options: Options) -> dict[str, Any]:
    """Start a cloud in background processes; return its state (`read_state`) once it is ready.

    Remains of an earlier crash are removed first. A cloud that is not ready within 60 s is removed again. Raises
    AlreadyRunningError, StartError, and like `check`.
    """
    layout = Layout(name=options.name)
    check(options)
    lock = acquire(layout)
    if lock < 0:
        raise AlreadyRunningError(
            f"an embedded cloud named {options.name} is already running; choose another --name, or stop it with: "
            f"python -m localcloud stop --name {options.name}"
        )
    cleanup.remove(layout)
    make_directory(layout.run)
    layout.run.chmod(0o755)
    make_directory(layout.data)
    (layout.laptop / ".ssh").mkdir(parents=True, mode=0o700)
    with layout.log.open("a+", encoding="utf-8", errors="replace") as output:
        supervisor = _spawn("supervise", options, lock, output.fileno())
        os.close(lock)
        deadline = time.monotonic() + _START_TIMEOUT_S
        try:
            while not layout.state.exists():
                if supervisor.poll() is not None:
                    raise StartError(f"the embedded cloud {options.name} did not start:\n{_last_lines(output)}")
                if time.monotonic() > deadline:
                    raise StartError(
                        f"the embedded cloud {options.name} was not ready within {_START_TIMEOUT_S:.0f} s; try again "
                        f"when this machine is less busy. The end of its log:\n{_last_lines(output) or 'nothing'}"
                    )
                time.sleep(0.01)
        except BaseException:
            # After Ctrl-C too, do not leave a partially started cloud.
            if supervisor.poll() is None:
                supervisor.terminate()
                supervisor.wait()
            raise
    return read_state(layout)


def _last_lines(log: TextIO) -> str:
    """Return the last 15 lines of a cloud's open log. The supervisor may have removed the file."""
    log.seek(0)
    return "".join(log.readlines()[-15:]).rstrip()


def check(options: Options) -> None:
    """Raise MissingRequirementsError or NoCpuControllerError if this machine lacks something that the options need."""
    from localcloud import machine_requirements  # loads half of the package, which most commands do not need

    machine_requirements.check(nfs=options.nfs_client, machines=options.hosts == MACHINES)
    if options.cpus:
        CpuLimit(cloud=options.name, cpus=options.cpus).check()


def make_directory(directory: Path) -> None:
    """Create a new directory and its parent, which all clouds share. Raises FileExistsError if the directory exists.

    If another cloud stops and removes the parent meanwhile, try again.
    """
    while True:
        try:
            directory.mkdir(parents=True)
            return
        except FileNotFoundError:
            continue


def stop(name: str) -> bool:
    """Stop a cloud and remove all its resources; return whether it was running. Safe to repeat, also after a crash.

    Processes that have not exited after 30 s are killed. Raises LocalCloudError if the cloud does not stop, or if this
    process is not root.
    """
    layout = Layout(name=name)
    if os.geteuid() != 0:
        raise LocalCloudError("only root can stop an embedded cloud; repeat the command with sudo")
    lock = acquire(layout)
    was_running = lock < 0
    if was_running:
        holders = _holders(layout)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in filter(_is_ours, holders):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            lock = _await_lock(layout, _STOP_TIMEOUT_S)
            if lock >= 0:
                break
        if lock < 0:
            raise LocalCloudError(
                f"processes of the embedded cloud {name} did not exit within {_STOP_TIMEOUT_S:.0f} s after SIGKILL; "
                f"read its log, {layout.log}, then repeat the command"
            )
        _await_end(holders)
    cleanup.remove(layout)
    _release(layout, lock)
    return was_running


def read_state(layout: Layout) -> dict[str, Any]:
    """Return the state that the daemon wrote when it was ready. Raises NotRunningError if the cloud is not running."""
    try:
        document: dict[str, Any] = json.loads(layout.state.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotRunningError(layout.name) from None
    if not Path(f"/proc/{document['pid']}/fd").exists() or not _is_ours(int(document["pid"])):
        raise NotRunningError(layout.name)
    return document


def supervise(options: Options, lock: int) -> int:
    """Run the daemon, and clean up however it exits. Return its exit code. `lock`: descriptor of the cloud's lock.

    With the option `owner`, the daemon is terminated when that process exits.
    """
    layout = Layout(name=options.name)
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    daemon = _spawn("daemon", options, lock, sys.stderr.fileno())

    def forward(number: int, _: object) -> None:
        daemon.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.owner:
        threading.Thread(target=_stop_after, args=(options.owner, daemon), daemon=True).start()
    code = daemon.wait()
    _reap_orphans()
    cleanup.remove(layout)
    _release(layout, lock)
    return code


def _stop_after(owner: int, daemon: subprocess.Popen[bytes]) -> None:
    """Wait until the process `owner` exits, then terminate the daemon."""
    with contextlib.suppress(ProcessLookupError):  # It has exited already.
        exited = select.poll()
        exited.register(os.pidfd_open(owner), select.POLLIN)
        exited.poll()
    log.warning("stopping the cloud, because process %d (--owner) has exited", owner)
    daemon.terminate()


def die_with_parent() -> None:
    """Make the kernel send SIGTERM to this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def acquire(layout: Layout) -> int:
    """Return a descriptor that holds the cloud's lock, or -1 while another process holds it."""
    while True:
        layout.run_root.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # Another cloud has stopped, and removed the directory meanwhile.
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        # The previous holder removes the file, so the lock only counts if the file still exists.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == layout.lock.stat().st_ino:
                return fd
        os.close(fd)


def _release(layout: Layout, lock: int) -> None:
    layout.lock.unlink(missing_ok=True)
    os.close(lock)
    with contextlib.suppress(OSError):  # other clouds' files are there
        layout.run_root.rmdir()


def _await_lock(layout: Layout, timeout_s: float) -> int:
    """Wait for the cloud's lock; return its descriptor, or -1 after the timeout."""
    deadline = time.monotonic() + timeout_s
    while (lock := acquire(layout)) < 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    return lock


def _holders(layout: Layout) -> frozenset[int]:
    """Return the pids of supervisor and daemon, as far as their files contain them."""
    pids = set()
    with contextlib.suppress(FileNotFoundError, ValueError):
        pids.add(int(layout.lock.read_text()))
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        pids.add(int(json.loads(layout.state.read_text(encoding="utf-8"))["pid"]))
    return frozenset(pids)


def _await_end(pids: frozenset[int]) -> None:
    """Wait for the exit of processes that have released the lock, for 30 s at most."""
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while any(map(_is_ours, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_ours(pid: int) -> bool:
    """Return whether a process exists and belongs to localcloud."""
    try:
        return b"localcloud" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _spawn(role: str, options: Options, lock: int, log_fd: int) -> subprocess.Popen[bytes]:
    """Start the internal command `role` (`supervise` or `daemon`) in a new process, which inherits the lock."""
    package = Path(__file__).resolve().parent.parent
    return subprocess.Popen(
        [sys.executable, "-m", "localcloud", role, "--lock", str(lock), *options.to_argv()],
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        pass_fds=(lock,),
        start_new_session=True,
    )


def _reap_orphans() -> None:
    """Wait for the hosts' processes, which the supervisor inherits from the daemon, for 30 s at most.

    Log a warning if some have not exited by then.
    """
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return
    log.warning("some processes of the hosts did not exit within %.0f s; removing the cloud anyway", _STOP_TIMEOUT_S)
