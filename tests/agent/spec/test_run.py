"""The launch of a run: nodes, hosts, commands, environment, and the round trip of the spec through JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import SpecError
from agent.spec.horovod import Knobs
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits
from tests.factories import make_program_spec, make_spec
from tests.words import FILE_NAMES, LONG, WORDS


def test_program_works_in_its_own_copy_and_the_payload_in_the_pushed_tree() -> None:
    spec = make_spec()
    assert spec.working_directory == spec.payload_directory == "/mnt/efs/payloads/0123456789abcdef"
    assert spec.agent_directory == "/mnt/efs/payloads/aaaaaaaaaaaaaaaa"
    own = make_program_spec()
    assert own.working_directory == f"{own.run_directory}/work"
    assert own.program_directory == "/mnt/efs/payloads/fedcba9876543210/program"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "../escape"),
        ("agent", "../../etc"),
        ("payload", ""),
        ("program", "../../etc"),
        ("knobs", Knobs(hierarchical_allreduce=True)),
        ("knobs", Knobs(hierarchical_allgather=True)),
        ("interface", "ens5;id"),
        ("network", "10.0.0.0/20;id"),
        ("controller", "smoke"),
        ("rank_launcher", "mpiexec"),
        ("placement", "some"),
        ("own_gpu", True),
        ("efs_mount", "/mnt/$(reboot)"),
        ("hosts", ()),
        ("stall_after_s", -1),
        ("stall_after_s", True),
        ("stall_after_s", 86_401),
        ("environment", (("A=B", "x"),)),
    ],
)
def test_impossible_launch_is_rejected_at_construction(field: str, value: object) -> None:
    with pytest.raises(SpecError):
        make_spec(**{field: value})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"hosts": 3}', '{"knobs": {"cycle_time_ms": -1}}'])
def test_invalid_spec_is_rejected(text: str) -> None:
    with pytest.raises(SpecError):
        RunSpec.from_json(text)


def test_hierarchical_allreduce_needs_mpi_and_gpus() -> None:
    knobs = Knobs(hierarchical_allreduce=True)
    with pytest.raises(SpecError, match=r"^--hierarchical-allreduce needs --controller mpi: "):
        make_spec(knobs=knobs)
    with pytest.raises(SpecError, match=r"^--hierarchical-allreduce: the nodes have no GPUs, .*; omit the flag$"):
        make_spec(knobs=knobs, controller="mpi")


def test_spec_that_is_not_utf_8_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_bytes(b"\xff")
    with pytest.raises(SpecError, match=f"^{tmp_path}/spec.json: it is not UTF-8$"):
        RunSpec.read(tmp_path)


def test_spec_with_unknown_fields_or_without_agent_is_rejected() -> None:
    document = json.loads(make_spec().to_json())
    with pytest.raises(SpecError, match="unknown fields: color; another version of deepcdk wrote the spec"):
        RunSpec.from_json(json.dumps({**document, "color": "blue"}))
    with pytest.raises(SpecError, match="agent = '': must be 16 hexadecimal digits"):
        RunSpec.from_json(json.dumps({**document, "agent": ""}))
    del document["agent"]
    with pytest.raises(SpecError, match=r"^the run's spec is invalid: missing: 'agent'$"):
        RunSpec.from_json(json.dumps(document))


@settings(max_examples=25)
@given(words=st.lists(WORDS | st.just(LONG), max_size=4), path=FILE_NAMES)
def test_spec_survives_json_with_any_arguments(words: list[str], path: str) -> None:
    knobs = Knobs(cycle_time_ms=2.5, autotune=True)
    values = {
        "environment": (("ANY", path),),
        "knobs": knobs,
        "bounds": RunLimits(max_usd=5.0),
        "secrets": ("A", "B_2"),
    }
    spec = make_program_spec(command=("x", *words), **values)
    assert RunSpec.from_json(spec.to_json()) == spec
    spec.to_json().encode("ascii")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"own_environment": True, "horovod_for": ()},
            "horovod_for is empty: Horovod needs TensorFlow or",
        ),
        ({"own_environment": True, "horovod_for": ("mxnet",)}, "horovod_for = "),
        ({"own_environment": False, "horovod_for": ("torch",)}, "is only for a program with own_environment"),
    ],
)
def test_own_environment_with_horovod_needs_a_framework(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        make_program_spec(**changes)


def test_own_environment_has_lock_file_in_program_tree() -> None:
    own = make_program_spec(own_environment=True, horovod_for=("torch",))
    assert own.lock_file == "/mnt/efs/payloads/fedcba9876543210/environment.txt"
    assert RunSpec.from_json(own.to_json()) == own
    assert make_program_spec(own_environment=True, rank_launcher="plain").horovod_for == ()
    with pytest.raises(SpecError, match="a recipe uses the runtime"):
        make_spec(own_environment=True)
