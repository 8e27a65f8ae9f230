"""Entry points of the commands `deepcdk` (tasks) and `cdk` (the CDK CLI included in the wheel)."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

INTERRUPTED_STATUS = 130


def keep_bytecode(site_packages: Path) -> None:
    """Store Python's bytecode in the user's cache if this user cannot write it to `site_packages`.

    Without bytecode, each synthesis compiles the CDK's modules again. Nothing changes if `site_packages` has bytecode,
    or if a variable of Python controls it. Processes that this one starts do the same.
    """
    cdk = site_packages / "aws_cdk"
    if not cdk.is_dir() or os.access(cdk, os.W_OK) or (cdk / "__pycache__").exists():
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111  # may have no home
    if cache.is_absolute() and not sys.pycache_prefix and not sys.dont_write_bytecode:
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(cache / "deepcdk" / "bytecode")


def exit_at_once(status: int) -> None:
    """Flush stdout and stderr, ignoring errors, and exit without the interpreter's shutdown.

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
    """Run the tasks on the command line and exit with their status. After Ctrl-C, also during imports, it is 130."""
    try:
        keep_bytecode(Path(__file__).parents[1])
        from cluster.cli import COLLECT_AFTER, check_platform

        gc.set_threshold(COLLECT_AFTER)

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
    """Replace this process with the CDK CLI, with the same arguments. This Python and its Node are first in PATH."""
    try:
        keep_bytecode(Path(__file__).parents[1])
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
