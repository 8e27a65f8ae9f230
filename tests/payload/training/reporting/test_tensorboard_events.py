from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Write one event of each kind, and read it with TensorBoard's own loader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from payload.training.reporting.tensorboard_events import Events, markdown_table

    run_dir = tmp_path_factory.mktemp("run")
    with contextlib.closing(Events(run_dir)) as events:
        events.histograms(1, {"weights/conv": np.array([[0.0, 1.0], [3.0, np.nan]]), "weights/none": np.zeros(3)})
        events.text("configuration", markdown_table(["setting", "value"], [["epochs", 3], ["odd", "a|b\nc"]]))
    accumulator = EventAccumulator(str(run_dir / "events"))
    accumulator.Reload()
    yield accumulator


def tensors(read: Any, tag: str) -> list[tuple[int, Any]]:
    from tensorboard.util.tensor_util import make_ndarray

    return [(event.step, make_ndarray(event.tensor_proto)) for event in read.Tensors(tag)]


def test_histograms_count_every_finite_number_in_its_bin(read: Any) -> None:
    ((step, found),) = tensors(read, "weights/conv")
    assert (step, found.shape, found[0, 0], found[-1, 1]) == (1, (30, 3), 0, 3)
    assert {int(row): count for row, count in enumerate(found[:, 2]) if count} == {0: 1, 10: 1, 29: 1}
    ((_, zeros),) = tensors(read, "weights/none")
    assert zeros[:, 2].sum() == 3
    assert read.summary_metadata["weights/conv"].plugin_data.plugin_name == "histograms"


def test_any_configuration_value_keeps_table_valid(read: Any) -> None:
    ((_, found),) = tensors(read, "configuration")
    assert found.item().decode().splitlines() == [
        "| setting | value |",
        "| --- | --- |",
        "| epochs | 3 |",
        "| odd | a\\|b c |",
    ]


def test_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    from agent.files.atomic_write import StorageError
    from payload.training.reporting.tensorboard_events import Events

    (tmp_path / "events").write_text("a file in the way")
    with pytest.raises(StorageError, match="events"):
        Events(tmp_path)
