"""Facts about the measurement of waits: they are read from a profile, and held against what is wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.data_wait import Waits, document, main, run, table, traced


def waits(wait_ms: float) -> Waits:
    return Waits(
        network="resnet50", ranks=2, steps=10, step_ms=500.0, wait_ms=wait_ms, epoch_part=0.03, images_per_s=64.0
    )


@pytest.mark.tensorflow
def test_the_steps_and_the_waits_are_read_from_all_lines_of_a_profile() -> None:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    plane = space.planes.add()
    names = {1: "train", 2: "wait for images", 3: "MatMul"}
    for number, name in names.items():
        plane.event_metadata[number].name = name
    for events in ([(1, 4e11), (3, 1e11), (2, 2e9)], [(1, 6e11)]):
        line = plane.lines.add()
        for number, picoseconds in events:
            line.events.add(metadata_id=number, duration_ps=int(picoseconds))
    assert traced(space.SerializeToString()) == ([400.0, 600.0], [2.0])


def test_a_wait_of_more_than_a_hundredth_is_not_kept() -> None:
    lines = table([waits(5.0), waits(5.1)]).splitlines()
    assert [line.rsplit(": ")[-1] for line in lines[1:]] == ["kept", "NOT kept"]
    assert "1.00%" in lines[1]


def test_all_that_was_measured_is_kept() -> None:
    found = json.loads(document({"processor": "X"}, [waits(5.0)]))
    assert found["machine"] == {"processor": "X"}
    assert found["runs"][0]["wait_ms"] == 5.0


@pytest.mark.horovod
def test_a_run_that_fails_ends_the_measurement_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)resnet-x on 1 ranks ended with [0-9]+:.*resnet-x"):
        run("resnet-x", 1, 6, tmp_path, tmp_path / "run")


def test_too_few_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--steps", "5"])
    assert "--steps 5: must be at least 6" in capsys.readouterr().err
