"""Which specs are carried out: those that were accepted, as they were accepted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.runs import accepted_spec
from agent.runs.directory import RunDirectory
from tests.factories import make_spec

SPEC = make_spec(run_id="one")


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    path = tmp_path / "runs" / "one"
    path.mkdir(parents=True)
    return RunDirectory(path=path)


def test_a_spec_is_read_as_it_was_accepted_also_an_earlier_attempts(directory: RunDirectory, home: Path) -> None:
    first = accepted_spec.accept(SPEC)
    second = accepted_spec.accept(dataclasses.replace(SPEC, notify=("true",)))
    for text, notify in ((first, ()), (second, ("true",))):
        directory.spec.write_text(text)
        assert accepted_spec.read(directory.spec).notify == notify
    path = home / accepted_spec.FOLDER / "one"
    assert (path.stat().st_mode & 0o777, len(path.read_text().split())) == (0o600, 2)


def test_a_changed_byte_is_refused_by_the_files_name(directory: RunDirectory) -> None:
    directory.spec.write_text(accepted_spec.accept(SPEC) + " ")
    for check in (accepted_spec.read, accepted_spec.check_unchanged):
        with pytest.raises(SpecError, match=r"/one/spec\.json was changed after it was submitted; `fab train`"):
            check(directory.spec)


def test_one_that_was_never_accepted_is_shown_and_not_carried_out(directory: RunDirectory) -> None:
    directory.spec.write_text(SPEC.to_json())
    accepted_spec.check_unchanged(directory.spec)
    with pytest.raises(SpecError, match="`fab resume one` submits it again"):
        accepted_spec.read(directory.spec)


def test_a_removed_run_is_forgotten(directory: RunDirectory) -> None:
    directory.spec.write_text(accepted_spec.accept(SPEC))
    accepted_spec.forget("one")
    with pytest.raises(SpecError, match="has not accepted"):
        accepted_spec.read(directory.spec)
