"""Entry points of the commands `deepcdk` (tasks) and `cdk` (the CDK CLI included in the wheel)."""

from __future__ import annotations

import os
import sys

INTERRUPTED_STATUS = 130


def exit_at_once(status: int) -> None:
    """Flush stdout and stderr, and exit without the interpreter's shutdown.

    After an interrupted task, threads of Paramiko may still run. Python 3.11 has crashed with SIGSEGV when it shut down
    under them. The task's `finally` and `with` blocks have run by now, and this package does not use `atexit`.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # closed, its reader exited, or its disk is full
            continue
    os._exit(status)


def main() -> None:
    """Run the tasks. Ctrl-C has the same effect during imports as later."""
    try:
        from cluster.cli import check_platform

        check_platform()  # before modules are imported that Windows lacks

        from cluster.cli.program import make_program

        make_program().run()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        exit_at_once(INTERRUPTED_STATUS)
    except SystemExit as ended:
        if ended.code == INTERRUPTED_STATUS:
            exit_at_once(INTERRUPTED_STATUS)
        raise


def cdk() -> None:
    """Run the CDK CLI, with this Python and its Node first in PATH."""
    try:
        from cluster.cli import check_platform

        check_platform()

        from cluster.cli.program import provide_user
        from cluster.deploy.cdk import become_cli

        provide_user()
        become_cli(sys.argv[1:])
    except KeyboardInterrupt:
        exit_at_once(INTERRUPTED_STATUS)


if __name__ == "__main__":
    main()
