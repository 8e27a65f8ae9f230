"""Detect ranks that do not train together, from the nodes' reports on their connections and from their output."""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from agent.files.safe_read import names_in
from agent.launch.run_hosts import POLL_S
from agent.runs.run_directory import APART, LINKED, RunDirectory
from agent.runs.tail import Tail
from agent.spec.launchers import REQUIRED
from agent.spec.run import RunSpec

ALONE_S: Final = 60.0
"""Seconds after the first output until a warning, if no rank is connected to another one."""
SAME_S: Final = 20.0
"""The same, if all ranks also print the same lines."""
SAME_LINES: Final = 5
_LOOK_S: Final = 2.0
_LAST_LOOK_S: Final = 4.0
"""How long to wait after the end of a run for the nodes' last reports."""
_MAX_LINES: Final = 100
"""Maximum number of lines to compare, for each rank and stream."""
_LINE: Final = re.compile(r"\[(\d{1,9})\]<(stdout|stderr)>:(.*)")
_REMEDY: Final = "change the program or --launcher; if each rank should train its own model, give --together=no"
_NOT_THE_PROGRAMS: Final = "[placement]"
_TIMES: Final = re.compile(r"\d+(?:[.:]\d+)*\s*(?:%|[kMG]i?B\b|(?:ms|us|s|sec|min|h)\b|\w*/s\b|\w*/step\b)")
"""Pattern for durations, rates and percentages, which differ between ranks that do the same work."""


class UnconnectedRanks:
    """Watch the ranks of one attempt of a user program, and detect that they do not train together.

    `warning` is the warning for the user, or "".
    """

    def __init__(self, spec: RunSpec, directory: RunDirectory, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec, self._directory, self._clock = spec, directory, clock
        self._attempt = directory.attempt
        self._tail = Tail(directory.log)
        for _ in self._tail.lines(last_bytes=0):
            pass  # of an earlier attempt
        self._lines = defaultdict[str, dict[int, list[int]]](lambda: defaultdict(list))
        self._numbers = defaultdict[str, bool](bool)
        self._first: float | None = None
        self._looked = float("-inf")
        self._is_over = not spec.may_train_apart
        self.warning = ""

    def look(self) -> bool:
        """Update `warning` from the nodes' reports and the log; return whether it has changed.

        Returns False without a check within two seconds after the last one, and once the ranks are known to be
        connected.
        """
        if self._is_over or self._clock() - self._looked < _LOOK_S:
            return False
        self._looked = self._clock()
        before = self.warning
        with contextlib.suppress(OSError):  # The run continues if its directory cannot be read for a moment.
            self._read()
            self.warning = self._found(ended=False)
        return self.warning != before

    def look_at_end(self, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Update `warning` a last time after all ranks have exited; return whether it has changed.

        If there is a warning, wait up to four seconds for late reports from the nodes, which may refute it.
        """
        if self._is_over:
            return False
        before = self.warning
        with contextlib.suppress(OSError):
            self._read()
            self.warning = self._found(ended=True)
            until = self._clock() + _LAST_LOOK_S
            while self.warning and self._clock() < until:  # A node may still report a connection of the last seconds.
                sleep(POLL_S)
                self.warning = self._found(ended=True)
        self._is_over = True
        return self.warning != before

    @property
    def must_stop(self) -> bool:
        """Return whether the run must stop: there is a warning, and the run has `--together=require`."""
        return bool(self.warning) and self._spec.together == REQUIRED

    def _found(self, *, ended: bool) -> str:
        """Return the warning that the ranks do not train together; "" if they are connected or it is too early.

        It is due ALONE_S after the first output, or after SAME_S if all ranks print the same lines. Return "" also if a
        node's report is missing. `ended`: all ranks have exited, so SAME_S no longer applies.
        """
        names = set(names_in(self._directory.path))
        reports = {
            kind: [
                self._directory.link_report(kind, self._attempt, host.name).name in names for host in self._spec.hosts
            ]
            for kind in (LINKED, APART)
        }
        if any(reports[LINKED]):
            self._is_over = True
            return ""
        if self._first is None or not all(reports[APART]):
            return ""
        passed_s, same = self._clock() - self._first, self._print_the_same()
        others = "on another node" if len(self._spec.hosts) > 1 else "on the node"
        if same and (ended or passed_s >= SAME_S):
            what = f"all ranks print the same lines, and no rank was connected to a rank {others}"
        elif passed_s >= ALONE_S:
            what = f"no rank was connected to a rank {others} within a minute after the first output"
        else:
            return ""
        return f"warning: the ranks do not train together: {what}; {_REMEDY}"

    def _read(self) -> None:
        """Read the new lines of the log, and keep the first _MAX_LINES of each rank and stream, to compare them.

        Durations, rates and percentages are removed from them.
        """
        for line in self._tail.lines():
            if not (found := _LINE.match(line)) or found[3].startswith(_NOT_THE_PROGRAMS):
                continue
            if int(found[1]) >= self._spec.ranks:  # a program may print such a line itself
                continue
            if self._first is None:
                self._first = self._clock()
            lines = self._lines[found[2]][int(found[1])]
            if len(lines) < _MAX_LINES:
                text = _TIMES.sub("", found[3].strip())
                lines.append(hash(text))
                self._numbers[found[2]] |= any(map(str.isdigit, text))

    def _print_the_same(self) -> bool:
        """Return whether all ranks have printed the same lines to a stream, and these contain numbers.

        Each rank must have printed SAME_LINES lines. Lines beyond those of the rank with the fewest are not compared.
        """
        return any(self._are_same(by_rank) for stream, by_rank in self._lines.items() if self._numbers[stream])

    def _are_same(self, by_rank: dict[int, list[int]]) -> bool:
        least = min(map(len, by_rank.values()))
        if len(by_rank) < self._spec.ranks or least < SAME_LINES:
            return False
        return len({tuple(lines[:least]) for lines in by_rank.values()}) == 1
