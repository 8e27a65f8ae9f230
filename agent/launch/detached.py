"""Start a process that lives on by itself: in a session of its own, and no child of the one that starts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence


def start_detached(words: Sequence[str], *, directory: str, environ: Mapping[str, str]) -> bool:
    """Start it without input and output, with these variables alone; return False where it cannot be started.

    It is the grandchild of this process, and its parent has ended when this returns: a program that this one turns
    into, which may wait for any child, learns nothing of it. This process must have no other threads.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setsid()
            null = subprocess.DEVNULL
            subprocess.Popen(words, cwd=directory, env=environ, stdin=null, stdout=null, stderr=null)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0
