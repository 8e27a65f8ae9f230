from __future__ import annotations

from pathlib import Path

import pytest

from payload.settings.training import StepSpan
from payload.training.reporting.profiling import Profiler


@pytest.mark.tensorflow
def test_only_the_chosen_steps_are_in_the_profile(tmp_path: Path) -> None:
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    profiler = Profiler(tmp_path, StepSpan(first=2, last=3))
    for number in range(1, 6):
        with profiler.waiting():
            pass
        with profiler.step(number):
            tf.linalg.matmul(tf.ones((8, 8)), tf.ones((8, 8)))
        profiler.after(number)
        assert bool(list(tmp_path.rglob("*.xplane.pb"))) == (number >= 3), "written at once, and not in later steps"
    profiler.close()
    (path,) = tmp_path.rglob("*.xplane.pb")
    assert path.parent.parent == tmp_path / "plugins" / "profile", "where TensorBoard's plugin looks"
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    names = [
        plane.event_metadata[event.metadata_id].name
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    ]
    assert names.count("train") == profiler.profiled == 2
    assert names.count("wait for images") == 1, "before step 3; before step 2 it did not run yet"


@pytest.mark.tensorflow
def test_run_that_ends_within_the_span_writes_its_profile(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, StepSpan(first=1, last=100))
    with profiler.step(1):
        pass
    profiler.close()
    profiler.close()
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


def test_without_a_span_nothing_is_imported_or_written(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, None)
    with profiler.waiting(), profiler.step(1):
        pass
    profiler.close()
    assert list(tmp_path.iterdir()) == []
