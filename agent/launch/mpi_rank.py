"""The parent of one rank that mpirun started: set the rank's variables, and forward what it writes in whole lines.

    python -m agent.launch.mpi_rank COMMAND...    # by mpirun

The rank gets the variables that Horovod's launcher sets, and each line goes out as that one writes it, behind
`[RANK]<stdout>:` or `[RANK]<stderr>:`. mpirun by itself marks pieces of lines, and mixes those of several ranks.
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
from collections.abc import Sequence
from typing import Final

from agent.launch.mpirun import placed

PIECE: Final = 4096
"""What mpirun's daemon reads at once: whole lines up to this size leave as one message, and stay together."""
LINE_END: Final = re.compile(rb"\r\n|\n|\r")
SILENCE_S: Final = 1.0
"""How long after the rank's end to wait for what its children still write."""
DRAIN_S: Final = 0.001


class Lines:
    """Cut what one stream brings into lines, each with its mark."""

    def __init__(self, mark: bytes) -> None:
        self._mark, self._rest = mark, b""

    def feed(self, block: bytes) -> list[bytes]:
        """Return the lines that are whole now, each with its mark and its end; a bar's `\\r` ends one too."""
        text = self._rest + block
        held = b"\r" if text.endswith(b"\r") else b""  # a \n may follow
        *complete, self._rest = LINE_END.split(text.removesuffix(b"\r") if held else text)
        self._rest += held
        return [self._mark + line + b"\n" for line in complete]

    def end(self) -> list[bytes]:
        """Return the last line, where it had no end."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        return [self._mark + rest + b"\n"] if rest else []


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


def main(argv: Sequence[str]) -> int:
    """Run the rank; return its status, or end by the signal that ended it."""
    # mpirun signals the whole group, so the rank has it already. A handler, unlike SIG_IGN, is not handed down.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        place = placed(os.environ)
    except KeyError as error:
        print(f"agent.launch.mpi_rank is for mpirun to start: {error.args[0]} is not set", file=sys.stderr)
        return 2
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **place}) as process:
        try:
            status = forward_output(process, place["HOROVOD_RANK"], sys.stderr.fileno())
        except OSError:  # mpirun's daemon was killed: nothing else would stop the rank
            process.kill()
            return 1
    return end_alike(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
