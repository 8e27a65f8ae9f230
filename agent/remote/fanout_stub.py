"""The stub that the fan-out starts on a node: program text for `python -c`, and the message that is sent to it.

The program reads a command, runs it in a new session, forwards its output, and terminates it when the connection ends.
Background processes that the command leaves behind keep the connection open for at most a second. Sixty-four of these
programs may start concurrently, so each one skips `site`, imports few modules, and reads no files from the shared file
system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

READY: Final = b"deepcdk-fanout-ready\n"
"""Printed by the node's stub before the command's output. Without it, the node was not reached."""
FLAGS: Final = ("-X", "utf8", "-I", "-S")
"""Options of Python: UTF-8 for words, isolated from the user's directories, and without `site`."""

# Signals by number: 15 TERM, 9 KILL. Python ignores 13 PIPE and 25 XFSZ; the command gets their default actions.
_HEAD: Final = """
import os, select, sys, time
def take(size):
    found = b""
    while len(found) < size:
        block = os.read(0, size - len(found))
        if not block:
            os._exit(1)
        found += block
    return found
count, *parts = take(int(take(16))).split(b"\\0")
words, variables = parts[:int(count)], parts[int(count):]
os.write(1, b"deepcdk-fanout-ready\\n")
"""
SCRIPT: Final = (
    _HEAD
    + """
os.chdir(os.path.expanduser("~"))
os.environb.update(variable.split(b"=", 1) for variable in variables)
def fail(status, text):
    os.write(2, b"deepcdk: " + text.encode("ascii", "backslashreplace") + b"\\n")
    os._exit(status)
sources = {}
actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
for target in 1, 2:
    source, end = os.pipe()
    sources[source] = target
    actions.append((os.POSIX_SPAWN_DUP2, end, target))
try:
    child = os.posix_spawnp(words[0], words, os.environb, setsid=True, setsigdef=(13, 25), file_actions=actions)
except FileNotFoundError:
    fail(127, "no such command: " + ascii(os.fsdecode(words[0]))[1:-1])
except OSError as error:
    fail(126, "cannot start " + ascii(os.fsdecode(words[0]))[1:-1] + ": " + str(error.strerror))
for _, end, _ in actions[1:]:
    os.close(end)
def end(number):
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        pass
def forward(ready):
    for source in ready:
        if source in sources:
            block = os.read(source, 65536)
            view = memoryview(block)
            while view:
                view = view[os.write(sources[source], view):]
            if not block:
                del sources[source]
ended = os.pidfd_open(child)
try:
    while True:
        readable, _, _ = select.select([0, ended, *sources], [], [])
        forward(readable)
        if ended in readable:
            break
        if 0 in readable and not os.read(0, 4096):
            raise BrokenPipeError
    # A round reads as much as a pipe holds: the first one gets all that the command has written.
    until = time.monotonic() + 1
    while sources and (readable := select.select([*sources], [], [], 0.2)[0]):
        forward(readable)
        if time.monotonic() > until:
            break
    if sources:
        note = b"the command has exited; processes that it left in the background continue, and each one fails at its"
        note += b" next write (SIGPIPE). To keep such a process, start it with >FILE 2>&1"
        os.write(2, b"deepcdk: " + note + b"\\n")
except BrokenPipeError:
    end(15)
    if not select.select([ended], [], [], 5.0)[0]:
        end(9)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(status if status >= 0 else 128 - status)
"""
)
MODULE_SCRIPT: Final = (
    _HEAD
    + """
import importlib, threading, time
def watch():
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), 15)
    time.sleep(5)
    os._exit(137)
threading.Thread(target=watch, daemon=True).start()
tree, module, *arguments = map(os.fsdecode, words)
sys.path.insert(0, tree)
sys.exit(importlib.import_module(module).main(arguments))
"""
)
"""The same for a module of a pushed tree. Its `main` is called in this process, without starting a second Python."""


def message(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """Return the message to the node's stub: the length of the rest in 16 digits, then the rest.

    The rest is the number of words in `command`, the words, and the variables in `environment` (NAME=VALUE), separated
    by NUL.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    text = "\0".join([str(len(command)), *command, *variables])
    encoded = text.encode("utf-8", errors="surrogateescape")
    return b"%016d" % len(encoded) + encoded
