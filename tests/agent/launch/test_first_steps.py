"""Facts about the steps of an earlier run, and the cycle of Horovod's that follows from them."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.launch.first_steps import VARIABLE, Cycle, Measured, choose_cycle, read_record, record_path
from agent.spec.horovod import CYCLE_TIME, GLOO, MPI, Knobs
from agent.spec.run import RunSpec
from tests.factories import make_node, make_program_spec, make_spec


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return make_program_spec(efs_mount=str(tmp_path), controller=GLOO, hosts=(make_node(1, slots=2),))


def measured(spec: RunSpec, step_ms: float, run_id: str = "earlier") -> Path:
    path = record_path(spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"step_ms": step_ms, "run": run_id}))
    return path


def chosen(spec: RunSpec) -> Cycle:
    found = choose_cycle(spec)
    assert found is not None
    return found


def test_a_record_is_of_the_same_words_on_as_many_ranks_and_outlives_a_change_of_the_code(spec: RunSpec) -> None:
    same = dataclasses.replace(spec, program="c" * 16, run_id="another", environment=(("NAME", "value"),))
    assert record_path(same) == record_path(spec)
    others: list[dict[str, Any]] = [{"command": ("train.py", "--batch", "8")}, {"recipe": "b"}, {"controller": MPI}]
    paths = {
        record_path(dataclasses.replace(spec, **other)) for other in [*others, {"hosts": (make_node(1, slots=4),)}]
    }
    assert len(paths | {record_path(spec)}) == 5


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "\xff", '{"step_ms": null, "run": "a"}', '{"step_ms": -1, "run": "a"}'),
        *('{"step_ms": NaN, "run": "a"}', '{"step_ms": 1e999, "run": "a"}'),
    ],
)
def test_what_is_no_record_counts_as_none(spec: RunSpec, text: str) -> None:
    path = measured(spec, 40)
    assert read_record(path) == Measured(step_ms=40, run_id="earlier")
    path.write_bytes(text.encode("latin-1"))
    assert read_record(path) is None
    assert str(chosen(spec)) == "2.2 ms, for steps of 25 ms, assumed: none was measured"


def test_without_a_record_a_step_is_assumed_and_the_run_is_to_measure_its_own(spec: RunSpec) -> None:
    found = chosen(spec)
    assert str(found) == "2.2 ms, for steps of 25 ms, assumed: none was measured"
    assert found.variables == {CYCLE_TIME: "2.2", VARIABLE: f"{spec.run_directory}/first-steps.json"}


def test_what_rank_0_measured_is_kept_for_later_runs_under_its_runs_name_unless_it_is_a_link(spec: RunSpec) -> None:
    found = chosen(spec)
    found.keep(spec.run_id)
    assert not record_path(spec).exists()
    found.measured.parent.mkdir(parents=True)
    found.measured.write_text(json.dumps({"step_ms": 40, "run": "whatever a rank says"}))
    found.keep(spec.run_id)
    assert read_record(record_path(spec)) == Measured(step_ms=40, run_id=spec.run_id)
    elsewhere = found.measured.with_name("elsewhere")
    elsewhere.write_text(json.dumps({"step_ms": 50, "run": "a"}))
    found.measured.unlink()
    found.measured.symlink_to(elsewhere)
    found.keep(spec.run_id)
    assert read_record(record_path(spec)) == Measured(step_ms=40, run_id=spec.run_id)


def test_a_later_run_has_the_cycle_of_the_step_that_was_measured_over_its_controller(spec: RunSpec) -> None:
    measured(spec, 4000)
    over_mpi = dataclasses.replace(spec, controller=MPI)
    measured(over_mpi, 40)
    assert str(chosen(spec)) == "28 ms, for steps of 4000 ms, measured in run earlier"
    assert chosen(over_mpi).variables[CYCLE_TIME] == "1.3"


def test_other_words_have_the_latest_step_of_their_script_until_they_are_measured(spec: RunSpec) -> None:
    for age, (batch, step_ms) in enumerate([("64", 4000), ("8", 400)]):
        path = measured(dataclasses.replace(spec, command=("train.py", batch)), step_ms, f"batch-{batch}")
        os.utime(path, (1e9 - age, 1e9 - age))
    assert "steps of 4000 ms, measured in run batch-64" in str(chosen(spec))
    measured(spec, 40, "itself")
    os.utime(record_path(spec), (1, 1))
    assert "steps of 40 ms, measured in run itself" in str(chosen(spec))
    assert "assumed" in str(chosen(dataclasses.replace(spec, recipe="another")))


@pytest.mark.parametrize(
    "given",
    [
        {"knobs": Knobs(cycle_time_ms=2)},
        {"knobs": Knobs(autotune=True)},
        {"environment": (("HOROVOD_CYCLE_TIME", "2"),)},
        {"environment": (("HOROVOD_AUTOTUNE", "1"),)},
        {"secrets": ("HOROVOD_CYCLE_TIME",)},
    ],
)
def test_a_cycle_or_the_autotuner_that_the_user_chose_stays_and_nothing_is_measured(
    spec: RunSpec, given: dict[str, Any]
) -> None:
    assert choose_cycle(dataclasses.replace(spec, **given)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"rank_launcher": "plain"},
        {"rank_launcher": "torchrun"},
        {"hosts": (make_node(1, slots=1),)},
        {"hosts": (make_node(1, slots=2, kind="x86_64-sm90"),)},
        {"launcher": ("sleep", "1")},
    ],
)
def test_one_rank_gpus_and_ranks_without_horovod_have_no_cycle(spec: RunSpec, other: dict[str, Any]) -> None:
    assert choose_cycle(dataclasses.replace(spec, **other)) is None


def test_a_recipe_chooses_by_itself() -> None:
    assert choose_cycle(make_spec()) is None
