"""Copy the user's own program for a run: a copy in the run's directory, in which its ranks work."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from agent.errors import SpecError
from agent.files.atomic_write import new_directory
from agent.spec.run import RunSpec


def stage(spec: RunSpec) -> None:
    """Copy the pushed program into the run's directory, unless an earlier attempt has; nothing for other runs.

    What the ranks write into their working directory so belongs to the run, and the pushed tree, which other runs
    share by its content, stays as its hash says. All of it may be changed by the user for ranks, which alone but this
    one and root can reach it while the run is live. Raises SpecError where the tree is not there.
    """
    if not spec.program:
        return
    source, target = Path(spec.program_directory), Path(spec.working_directory)
    if target.exists():
        return
    if not source.is_dir():
        raise SpecError(f"{source}, which run {spec.run_id} is to run, is not there")
    with new_directory(target) as partial:
        shutil.copytree(source, partial, symlinks=True, dirs_exist_ok=True, copy_function=_copy)
        for directory, _, _ in os.walk(partial):
            Path(directory).chmod(0o777)


def _copy(source: str, target: str) -> None:
    """Copy a file so that every user may write it, and execute what was executable."""
    shutil.copyfile(source, target)
    Path(target).chmod(stat.S_IMODE(Path(source).stat().st_mode) | 0o666)
