"""Which specs this master has accepted: their digests on its own disk, since every rank can rewrite a run's spec.json.

A spec holds what is run on the master: the commands that tell of the run, and a launcher. So those who carry one out
read it here. A digest is written before its spec is: a crash between the two refuses nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.errors import SpecError
from agent.files.atomic_write import write_atomically
from agent.files.listing import read_regular
from agent.spec.run import RunSpec

FOLDER: Final = ".deepcdk/specs"
"""Below the login user's home: one file a run, a line for each spec that it has had."""


def accept(spec: RunSpec) -> str:
    """Remember a spec as one to carry out; return it as the text that its run's spec.json is to have."""
    text = spec.to_json()
    _write(spec.run_id, [*digests(spec.run_id), _digest(text)])
    return text


def read(path: Path) -> RunSpec:
    """Read a spec in a run's directory, to carry it out. Raises SpecError for one never accepted, and OSError."""
    text, run_id = read_regular(path).decode("utf-8"), path.parent.name
    accepted = digests(run_id)
    if not accepted:
        raise SpecError(
            f"this master has not accepted the spec of run {run_id}, another master did; `fab resume {run_id}` submits "
            "it again"
        )
    if _digest(text) not in accepted:
        raise SpecError(f"{path} was changed after it was submitted; `fab train` submits a run anew")
    spec = RunSpec.from_json(text)
    if spec.run_id != run_id:
        raise SpecError(f"{path} is the spec of another run, {spec.run_id}")
    return spec


def check_unchanged(path: Path) -> None:
    """Raise SpecError for a spec that differs from all that were accepted; OSError for one that cannot be read.

    A run of another master has none accepted, and passes: nothing is carried out here.
    """
    if digests(path.parent.name):
        read(path)


def digests(run_id: str) -> list[str]:
    """Return the digests of the specs that this master has accepted for a run, oldest first."""
    try:
        return _path(run_id).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []


def take_over(run_id: str, accepted: Sequence[str]) -> None:
    """Accept what the master before this one has accepted, unless this one has accepted a spec for the run itself.

    Raises OSError, and ValueError for what are no digests.
    """
    if not all(isinstance(each, str) and re.fullmatch("[0-9a-f]{64}", each) for each in accepted):
        raise ValueError(f"run {run_id} has digests that are none")
    if not digests(run_id):
        _write(run_id, accepted)


def forget(run_id: str) -> None:
    """Forget a run that is removed."""
    _path(run_id).unlink(missing_ok=True)


def _write(run_id: str, accepted: Sequence[str]) -> None:
    path = _path(run_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{each}\n" for each in accepted), mode=0o600)


def _path(run_id: str) -> Path:
    return Path.home() / FOLDER / run_id


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
