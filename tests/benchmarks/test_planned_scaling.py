"""Facts about the planner's own benchmark: one node is what is known, and an expectation that is far off fails it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from agent.spec.states import RECORD_FILE
from benchmarks import planned_scaling
from benchmarks.planned_scaling import Point, by_batch, draw, judge, table
from payload.settings.bench import BENCH_FILE, TRAINING
from tests.cluster.bench.benches import event, scaling, written
from tests.cluster.planner.test_past_runs import record


@pytest.fixture
def fetched(tmp_path: Path) -> Path:
    """Return a directory with the benchmarks over one link, as `--runs` takes it."""
    directory = tmp_path / "100-Mbit-s"
    directory.mkdir()
    scaling(directory)
    written(directory, [event(TRAINING, 1, [0.09, 0.1, 0.12])], "alone")
    for name in ("bench", "alone"):
        (directory / name / RECORD_FILE).write_text(json.dumps(record()))
    return tmp_path


def test_one_node_is_known_and_the_others_are_expected(fetched: Path) -> None:
    one, two, four = judge(fetched / "100-Mbit-s", "100 Mbit/s")
    assert (one.nodes, two.nodes, four.nodes) == (1, 2, 4)
    assert one.measured == pytest.approx(320)
    assert one.off == pytest.approx(0, abs=1e-3)
    assert two.measured == pytest.approx(2 * 32 / 0.11)
    assert two.slowest < two.measured < two.quickest
    assert (one.slowest, one.quickest) == pytest.approx((32 / 0.12, 32 / 0.09))


def test_the_benchmarks_of_each_batch_are_judged_together(fetched: Path) -> None:
    directory = fetched / "100-Mbit-s"
    before = judge(directory, "100 Mbit/s")
    for name in ("bench", "alone"):
        shutil.copytree(directory / name, directory / f"other-{name}")
        path = directory / f"other-{name}" / BENCH_FILE
        path.write_text(path.read_text().replace('"lenet"', '"resnet20"'))
    both = judge(directory, "100 Mbit/s")
    assert [each for each in both if each.network == "lenet"] == before
    assert [each.nodes for each in both if each.network == "resnet20"] == [1, 2, 4]


def test_each_network_has_a_batch_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert by_batch("lenet:64,resnet20:8,vgg16:8") == {64: ["lenet"], 8: ["resnet20", "vgg16"]}
    with pytest.raises(SystemExit):
        planned_scaling.main(["--networks", "lenet"])
    assert "'lenet' must be a network and its batch, as lenet:64" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["alone", "bench"])
def test_without_a_benchmark_on_one_node_or_on_several_nothing_is_judged(fetched: Path, missing: str) -> None:
    shutil.rmtree(fetched / "100-Mbit-s" / missing)
    with pytest.raises(SystemExit, match="there must be a benchmark on one node and one on several"):
        judge(fetched / "100-Mbit-s", "100 Mbit/s")


def test_the_table_says_how_far_each_is_off_and_a_far_one_fails(
    fetched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = tmp_path / "plot.png"
    status = planned_scaling.main(["--runs", str(fetched), "--plot", str(plot)])
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("the farthest off: ")
    assert "100 Mbit s" in said[2]
    assert said[2].endswith("known")
    assert plot.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(planned_scaling, "WANTED", 0.0)
    assert (status, planned_scaling.main(["--runs", str(fetched)])) == (status, 1)


def test_a_picture_has_a_part_for_each_link() -> None:
    point = Point(link="a", network="lenet", nodes=1, measured=1.0, quickest=1.1, slowest=0.9, expected=1.0)
    points = [dataclasses.replace(point, link=link, nodes=nodes) for link in ("a", "b") for nodes in (1, 2)]
    assert len(draw(points).axes) == 2
    assert len(list(table(points))) == 5
