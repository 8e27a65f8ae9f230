"""Facts about the file of a trial: it is read back equal, and what is none is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.tools.aws_trial.observations import OBSERVED
from tools.aws_trial.observation import ObservationError, collapsed, median, read


def test_a_file_is_read_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "trial.json"
    path.write_text(OBSERVED.to_json(), encoding="utf-8")
    assert read(path) == OBSERVED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read"),
        ("[]", "no observation of format"),
        ('{"format": 2}', "no observation of format"),
        ('{"format": 1}', "lacks or misnames"),
        (json.dumps({"format": 1, **dataclasses.asdict(OBSERVED), "refusals": [{"nam": 1}]}), "lacks or misnames"),
    ],
)
def test_what_is_no_observation_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trial.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ObservationError, match=why):
        read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="cannot be read"):
        read(tmp_path / "none.json")


def test_states_that_repeat_are_one() -> None:
    assert collapsed(["a", "a", "b", "a"]) == ("a", "b", "a")
    assert collapsed([]) == ()


def test_the_median_is_a_value_that_was_measured() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.0
    with pytest.raises(ValueError, match="no median"):
        median([])
