"""Facts about the files that show a benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.bench.results import write_results
from cluster.errors import DeepcdkError
from tests.cluster.bench.benches import scaling


def test_both_files_lie_beside_what_was_measured_and_are_written_again(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    for _ in range(2):
        document, picture = write_results(tmp_path / "bench", bench)
    assert json.loads(document.read_text())["training"][2]["efficiency"] == pytest.approx(0.1 / 0.13)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_place_that_takes_no_file_is_named(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    (tmp_path / "bench" / "bench.json").mkdir()
    with pytest.raises(DeepcdkError, match=r"cannot write .*bench\.json"):
        write_results(tmp_path / "bench", bench)
