"""The place of a run in a sweep: it is part of the spec, and an invalid one is rejected."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SpecError
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec
from agent.spec.sweep_trial import Trial
from tests.factories import make_spec
from tests.words import NASTIEST

TRIAL = Trial(sweep="s", number=2, parameters=(("lr", "0.1"), ("x", "".join(NASTIEST))), repeat=1, seed=7, first="one")


def test_trial_survives_json_with_its_spec() -> None:
    spec = make_spec(trial=TRIAL)
    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_json(make_spec().to_json()).trial == Trial()


@pytest.mark.parametrize(
    ("field", "value"),
    [("sweep", "../x"), ("number", -1), ("repeat", True), ("seed", "7"), ("first", 3), ("parameters", (("a",),))],
)
def test_invalid_trial_is_rejected(field: str, value: Any) -> None:
    with pytest.raises(SpecError, match="trial: "):
        dataclasses.replace(TRIAL, **{field: value})


@pytest.mark.parametrize("change", [{"parameters": 3}, {"parameters": [["a", 1]]}, {"color": 1}, {"sweep": ""}])
def test_listing_shows_a_trial_only_if_the_spec_has_a_valid_one(tmp_path: Path, change: dict[str, Any]) -> None:
    document = json.loads(make_spec(trial=dataclasses.replace(TRIAL, plan="{}")).to_json())
    directory = RunDirectory(path=tmp_path)
    directory.spec.write_text(json.dumps(document))
    found = directory.trial()
    assert found is not None and found["parameters"][0] == ("lr", "0.1") and "plan" not in found
    document["trial"] |= change
    directory.spec.write_text(json.dumps(document))
    assert directory.trial() is None


def test_parameters_are_described_in_order() -> None:
    assert dataclasses.replace(TRIAL, parameters=(("lr", "0.1"), ("depth", "3"))).text == "lr=0.1, depth=3"
