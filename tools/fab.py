"""The command `fab`, which set-up copies to .venv/bin: this project's where one stands in a checkout, else Fabric's."""

import os
import sys
from pathlib import Path

INTERRUPTED_STATUS = 130


def end_at_once(status: int) -> None:
    """End this process without the end of the interpreter.

    Where a task was interrupted threads of Paramiko may still run, and Python 3.11 was seen to end by SIGSEGV while it
    took itself down under them. The task's `finally` and `with` blocks have run by now, and nothing here uses `atexit`.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # Closed, its reader gone, or its disk full: nobody is left to tell.
            continue
    os._exit(status)


def main() -> None:
    """Run the program. Ctrl-C while it is imported ends it as at any later time."""
    checkout = None
    try:
        folders = (Path.cwd(), *Path.cwd().parents)
        checkout = next((folder for folder in folders if (folder / "cluster" / "cli" / "program.py").is_file()), None)
        if checkout is None:
            from fabric.main import make_program
        else:
            sys.path.insert(0, str(checkout))  # The active virtual environment may be another checkout's.
            from cluster.cli.program import make_program
        make_program().run()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        end_at_once(INTERRUPTED_STATUS)
    except SystemExit as ended:
        if checkout is not None and ended.code == INTERRUPTED_STATUS:
            end_at_once(INTERRUPTED_STATUS)
        raise


if __name__ == "__main__":
    main()
