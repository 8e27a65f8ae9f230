"""Files that a benchmark writes and reads: complete, in both places, and removed at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ReportedError
from payload.bench.storage import BLOCK, StorageBench
from payload.settings.bench import LOCAL, READ, SHARED, WRITE, Cell


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    found = {SHARED: tmp_path / "run", LOCAL: tmp_path / "home"}
    for path in found.values():
        path.mkdir()
    return found


@pytest.fixture
def bench(places: dict[str, Path]) -> StorageBench:
    return StorageBench(places[SHARED], places[LOCAL], 3)


def cell(kind: str, place: str, blocks: int = 2) -> Cell:
    return Cell(kind=kind, place=place, message_bytes=blocks * BLOCK, nodes=1)


@pytest.mark.parametrize("place", [SHARED, LOCAL])
def test_complete_file_is_written_each_time(bench: StorageBench, places: dict[str, Path], place: str) -> None:
    for blocks in (1, 3):
        assert bench.seconds(cell(WRITE, place, blocks)) > 0
        (file,) = places[place].iterdir()
        assert (file.name, file.stat().st_size) == (".bench-3", blocks * BLOCK)
    bench.remove()
    assert not list(places[place].iterdir())
    bench.remove()


def test_file_to_read_is_written_before_timing(bench: StorageBench, places: dict[str, Path]) -> None:
    assert bench.seconds(cell(READ, SHARED)) > 0
    (file,) = places[SHARED].iterdir()
    before = file.stat().st_mtime_ns
    bench.seconds(cell(READ, SHARED))
    assert file.stat().st_mtime_ns == before
    bench.seconds(cell(READ, SHARED, 5))
    assert file.stat().st_size == 5 * BLOCK


def test_failing_disk_is_reported_with_fix_and_left_clean(places: dict[str, Path]) -> None:
    places[LOCAL].rmdir()
    bench = StorageBench(places[SHARED], places[LOCAL], 0)
    bench.seconds(cell(WRITE, SHARED))
    with pytest.raises(
        ReportedError, match=r"local, 1 node: .*No such file.*; check the directory, or set --storage-mib 0"
    ):
        bench.seconds(cell(WRITE, LOCAL))
    assert not list(places[SHARED].iterdir())
