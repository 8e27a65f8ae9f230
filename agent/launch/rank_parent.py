"""The parent of one rank: it names the rank, and forwards what the rank writes in whole lines.

    python -m agent.launch.rank_parent mpi COMMAND...      # by mpirun
    python -m agent.launch.rank_parent group COMMAND...    # by torchrun, or once a slot by agent.launch.host_ranks

Each line goes out as Horovod's launcher writes it, behind `[RANK]<stdout>:` or `[RANK]<stderr>:`. mpirun by itself
marks pieces of lines, and mixes those of several ranks. Under mpirun the rank gets the variables that Horovod's
launcher sets. In a process group a last line reports the rank's status.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import select
import selectors
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agent.spec.run import RANK_VARIABLE

MPI: Final = "mpi"
GROUP: Final = "group"
PIECE: Final = 4096
"""What mpirun's daemon reads at once: whole lines up to this size leave as one message, and stay together."""
MAX_LINE: Final = 1 << 16
"""Bytes of a line. A longer one is forwarded as several lines, so that a line without an end takes no more memory."""
LINE_END: Final = re.compile(rb"(\r\n|\n|\r)")
_BLANK: Final = re.compile(rb"(?:[\b\t ]|\x1b\[[0-9;?]*[A-Za-z])*")
"""What erases a progress bar: blanks, backspaces and commands of terminals."""
BAR_S: Final = 10.0
"""Seconds between two states of a progress bar that become lines."""
SILENCE_S: Final = 1.0
"""How long after the rank's end to wait for what its children still write."""
DRAIN_S: Final = 0.001
_PLACES: Final = {f"HOROVOD_{name}": f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")}
_END: Final = "[launcher] rank {rank} ended: {status}"
_ENDED: Final = re.compile(rb"^\[launcher\] rank (\d{1,9}) ended: (-?\d{1,9})\n")


def parse_end(line: bytes) -> tuple[int, int] | None:
    """Return the rank and its status if a line reports a rank's end, else None."""
    found = _ENDED.match(line)
    return (int(found[1]), int(found[2])) if found else None


def place_in_mpi(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Horovod's variables for a rank's place, from mpirun's. Raises KeyError if mpirun has not set them."""
    return {name: environ[theirs] for name, theirs in _PLACES.items()}


class Lines:
    """Cut what one stream brings into lines, each with its mark.

    A progress bar writes one state over the other, with `\r` between them. Its last state becomes a line, and before
    that one state every BAR_S seconds.
    """

    def __init__(self, mark: bytes, max_bytes: int = MAX_LINE, clock: Callable[[], float] = time.monotonic) -> None:
        self._mark, self._max_bytes, self._clock, self._rest = mark, max_bytes, clock, b""
        self._state = b""
        """The last state of a bar, if it is not a line yet."""
        self._shown_at = float("-inf")

    def feed(self, block: bytes) -> list[bytes]:
        """Return the lines that are whole now, each with its mark and its end.

        A line that is too long comes in parts of `max_bytes`, each as a line of its own.
        """
        text = self._rest + block
        held = b"\r" if text.endswith(b"\r") else b""  # a \n may follow
        *complete, self._rest = LINE_END.split(text.removesuffix(b"\r") if held else text)
        ready = list[bytes]()
        for line, end in zip(complete[::2], complete[1::2], strict=True):
            full, last = self._cut(line)
            ready += [*full, *self._collapsed(last, end)]
        full, self._rest = self._cut(self._rest)
        self._rest += held
        return [self._mark + line + b"\n" for line in (*ready, *full)]

    def _cut(self, line: bytes) -> tuple[list[bytes], bytes]:
        """Return the parts of a line that are full, and the last one."""
        most = self._max_bytes
        full = (len(line) - 1) // most * most if line else 0
        return [line[at : at + most] for at in range(0, full, most)], line[full:]

    def _collapsed(self, text: bytes, end: bytes) -> list[bytes]:
        """Return the line that ends so, or the state of a bar that is due, if any."""
        is_blank = bool(_BLANK.fullmatch(text))
        if end == b"\r":
            self._state = self._state if is_blank else text.rstrip(b"\b")  # Keras goes back so, too
            return self._due()
        text, self._state = (self._state or text) if is_blank else text, b""
        return [text]

    def _due(self) -> list[bytes]:
        now = self._clock()
        if not self._state or now - self._shown_at < BAR_S:
            return []
        self._shown_at, state, self._state = now, self._state, b""
        return [state]

    def idle(self) -> list[bytes]:
        """Return a state that is due, while the stream brings nothing."""
        return [self._mark + line + b"\n" for line in self._due()]

    def end(self) -> list[bytes]:
        """Return the last line, where it had no end."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        lines = self._collapsed(rest, b"") if rest or self._state else []
        return [self._mark + line + b"\n" for line in lines]


def pieces(lines: Sequence[bytes]) -> list[bytes]:
    """Put lines together, as many as fit into one piece; a longer line is a piece of its own."""
    found: list[bytes] = []
    for line in lines:
        if found and len(found[-1]) + len(line) <= PIECE:
            found[-1] += line
        else:
            found.append(line)
    return found


def check_read(descriptor: int) -> None:
    """Raise BrokenPipeError where the reader of a pipe has gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError("mpirun's daemon has gone")


def unread(descriptor: int) -> int:
    """Return how many bytes of a pipe are unread; 0 for anything else. Raises as `check_read`."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    check_read(descriptor)
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def write(descriptor: int, lines: Sequence[bytes]) -> None:
    """Write lines so that a reader of PIECE bytes at once never gets a part of one. Raises as `check_read`."""
    for piece in pieces(lines):
        while unread(descriptor):
            time.sleep(DRAIN_S)
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]


def forward_output(process: subprocess.Popen[bytes], rank: str, out: int) -> int:
    """Forward what a process writes until it has ended; return its status, below 0 for a signal.

    Raises BrokenPipeError where the reader has gone.
    """
    with selectors.DefaultSelector() as streams:
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            mark = f"[{rank}]<{name}>:".encode()
            streams.register(stream, selectors.EVENT_READ, Lines(mark))  # type: ignore[arg-type]  # both are pipes
        while streams.get_map():
            ready = streams.select(SILENCE_S)
            check_read(out)
            if not ready:
                for key in streams.get_map().values():
                    write(out, key.data.idle())
            for key, _ in ready:
                block = os.read(key.fd, 1 << 16)
                write(out, key.data.feed(block) if block else key.data.end())
                if not block:
                    streams.unregister(key.fileobj)
            if not ready and process.poll() is not None:
                break  # a child of the rank lives on, and holds the pipes
        for key in list(streams.get_map().values()):
            write(out, key.data.end())
    return process.wait()


def end_alike(status: int) -> int:
    """Return a rank's status, or end this process by the signal that ended the rank."""
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _on_signals(handler: Callable[[int, object], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def main(argv: Sequence[str]) -> int:
    """Run the rank; return its status, or end by the signal that ended it."""
    launcher, *command = argv
    by_mpi = launcher == MPI
    try:
        variables = place_in_mpi(os.environ) if by_mpi else {RANK_VARIABLE: os.environ["RANK"]}
    except KeyError as error:
        print(f"agent.launch.rank_parent is for launchers to start: {error.args[0]} is not set", file=sys.stderr)
        return 2
    rank, out = next(iter(variables.values())), (sys.stderr if by_mpi else sys.stdout).fileno()
    if by_mpi:  # mpirun signals the whole group, the rank too. A handler, unlike SIG_IGN, is not inherited.
        _on_signals(lambda *_: None)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env={**os.environ, **variables}) as process:
        if not by_mpi:  # torchrun signals this process alone.
            _on_signals(lambda number, _: process.send_signal(number))
        try:
            status = forward_output(process, rank, out)
            if not by_mpi:
                write(out, [f"{_END.format(rank=rank, status=status)}\n".encode()])
        except OSError:  # The reader is gone, and nothing else would stop the rank.
            process.kill()
            return 1
    return end_alike(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
