"""What all tasks have in common: the words of their flags, and how their errors end them."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from invoke.exceptions import Exit

from agent.errors import SpecError
from cluster.errors import DeepcdkError
from cluster.terminal.status_line import aside
from cluster.terminal.wrap import fitted
from stacks.config import ConfigError

PROJECT: Final = Path(__file__).resolve().parents[2]
SET: Final = "override a value of context.cluster in cdk.json, as key=value; may be repeated"
KEY: Final = "private SSH key; default: the agent's and those in ~/.ssh"
RUN: Final = "id of the run; default: the live one, else the newest"
YES: Final = "answer every question with yes"
QUEUE: Final = "where another run is live, wait for its end and those before; default: refuse"
SKIP_PREFLIGHT: Final = "do not look at the nodes before the run"
FULL_PREFLIGHT: Final = "prove an allreduce even where these nodes have done so since their boot"
FROM_BUCKET: Final = "read the copy in the bucket, as is done where the cluster is gone"
JSON: Final = "print JSON"

INTERRUPTED: Final = "\ninterrupted"
INTERRUPTED_STATUS: Final = 130


def say(text: str) -> None:
    """Print a line of a task's output at once, as it is."""
    with aside():
        print(text, flush=True)


def tell(text: str) -> None:
    """Print a sentence, folded on a terminal."""
    with aside():
        print(fitted(text, sys.stdout), flush=True)


def remark(text: str) -> None:
    """Print a sentence beside the output that a program may read."""
    with aside():
        print(fitted(text, sys.stderr), file=sys.stderr, flush=True)


def teller(*, json: bool) -> Callable[[str], None]:
    """Return what tells how a task gets on; with --json the standard output is for the document alone."""
    return remark if json else tell


def guarded(body: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors of a task into a message and an exit status, here and nowhere else."""

    @functools.wraps(body)
    def run(*args: object, **kwargs: object) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A file's name need not be UTF-8, and to print it must not end the task; stderr is so by itself.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            body(*args, **kwargs)
        except DeepcdkError as error:
            raise Exit(fitted(f"deepcdk: {error}", sys.stderr), code=error.exit_status) from None
        except (ConfigError, SpecError) as error:
            raise Exit(fitted(f"deepcdk: {error}", sys.stderr), code=1) from None
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED, code=INTERRUPTED_STATUS) from None
        except BrokenPipeError:
            # Whoever read our output has gone, as `head` does; nothing is left to be said.
            sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115  # must outlive this function
            raise Exit(code=1) from None

    return run
