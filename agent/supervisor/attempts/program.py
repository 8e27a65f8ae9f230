"""Copy the user program into the run's directory. The copy is the working directory of the ranks."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from agent.errors import SpecError
from agent.files.atomic_write import new_directory
from agent.spec.run import RunSpec


def stage(spec: RunSpec) -> None:
    """Copy the pushed program into the run's directory, unless an earlier attempt did. Does nothing for recipes.

    So files that the ranks write belong to this run. The pushed tree, which other runs with the same program share,
    does not change. Every user may write to the copy, but only this run's ranks can enter the run's directory. Raises
    SpecError if the pushed tree does not exist.
    """
    if not spec.program:
        return
    source, target = Path(spec.program_directory), Path(spec.working_directory)
    if target.exists():
        return
    if not source.is_dir():
        raise SpecError(f"the uploaded program of run {spec.run_id} is missing: {source}; launch the run again")
    with new_directory(target) as partial:
        shutil.copytree(source, partial, symlinks=True, dirs_exist_ok=True, copy_function=_copy)
        for directory, _, _ in os.walk(partial):
            Path(directory).chmod(0o777)


def _copy(source: str, target: str) -> None:
    """Copy a file and let every user write to it. Executable files stay executable."""
    shutil.copyfile(source, target)
    Path(target).chmod(stat.S_IMODE(Path(source).stat().st_mode) | 0o666)
