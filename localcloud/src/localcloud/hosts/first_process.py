"""The first process of namespaces of its own, with which all that it starts ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from localcloud.network.namespaces import NetworkNamespace

# What a node's root needs to mount, to log users in and to be a node; loading kernel modules, setting the machine's
# clock and raw input and output are not among it.
_DROPPED: Final = "-sys_module,-sys_time,-sys_rawio,-sys_boot,-syslog,-mac_admin,-mac_override"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class FirstProcess:
    """Run a command as process 1 of a new process namespace, in a network. Start it in a thread that lives as long.

    The kernel kills it, and all that it has started, when that thread ends, and so when the daemon dies.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        network: NetworkNamespace,
        output: int,
        namespaces: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        group: Path | None = None,
        processors: Sequence[int] = (),
    ) -> None:
        """`output`: descriptor of its standard output; `namespaces`: options of `unshare` for more than its own mounts.

        `group`: the file by which it goes into a control group, before it starts anything; `processors`: those that it
        may use, () for all. Raises OSError where it cannot be started.
        """
        join = ("sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group)) if group else ()
        self._unshare = subprocess.Popen(
            [
                *join,
                *(("taskset", "--cpu-list", ",".join(map(str, processors))) if processors else ()),
                *("setpriv", "--pdeathsig", "KILL", "--bounding-set", _DROPPED),
                *("nsenter", f"--net={network.path}"),
                *("unshare", "--mount", *namespaces, "--pid", "--fork", "--kill-child"),
                *command,
            ],
            env={"PATH": _PATH, **(environment or {})},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return its pid on the machine; 0 before it exists and after its end."""
        if self._unshare.poll() is not None:
            return 0
        try:
            children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or read
            return 0
        return int(children[0]) if children else 0

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._unshare.poll()

    def terminate(self) -> None:
        """Send it SIGTERM."""
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def wait_until(self, deadline: float) -> None:
        """Wait for its end until then, in seconds of the monotonic clock."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._unshare.wait(timeout=max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """Kill it and all that it has started, and wait for their end."""
        for pid in (self.pid, self._unshare.pid):
            if self._unshare.poll() is None and pid:
                os.kill(pid, signal.SIGKILL)
                if pid != self._unshare.pid:
                    self.wait_until(time.monotonic() + 5)
        self._unshare.wait()
