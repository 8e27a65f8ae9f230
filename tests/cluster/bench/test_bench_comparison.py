"""Comparing benchmarks: which differences the spread explains, and which it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.bench.bench_comparison import compare
from cluster.bench.measurements import read_bench
from cluster.errors import DeepcdkError
from payload.settings.bench import TRAINING
from tests.cluster.bench.benches import event, scaling, written


@pytest.mark.parametrize("factor", [1.0, 1.04, 0.96, 1.07])
def test_change_within_both_spreads_is_no_change(factor: float, tmp_path: Path) -> None:
    comparison = compare(scaling(tmp_path, "now", factor), scaling(tmp_path, "before"))
    assert comparison.significant == ()
    assert tuple(comparison.sentences()) == (
        "against before: 5 cells compared",
        "no difference beyond the spread, which is up to 8.0% in the noisiest cell",
    )


@pytest.mark.parametrize(("factor", "word"), [(1.2, "20.0% slower"), (1 / 1.2, "16.7% faster")])
def test_change_of_a_fifth_is_found_in_both_directions(factor: float, word: str, tmp_path: Path) -> None:
    comparison = compare(scaling(tmp_path, "now", factor), scaling(tmp_path, "before"))
    assert len(comparison.significant) == 5
    said = "\n".join(comparison.sentences())
    assert f"lenet, 32 images a rank, 4 nodes: {word} (130 ms before" in said
    assert [each["differs"] for each in comparison.document()["cells"]] == [True] * 5


def test_cells_without_noise_need_more_than_run_to_run_variation(tmp_path: Path) -> None:
    before = scaling(tmp_path, "before", noise=0)
    assert compare(scaling(tmp_path, "near", 1.04, noise=0), before).significant == ()
    assert len(compare(scaling(tmp_path, "far", 1.06, noise=0), before).significant) == 5


UNTUNED = ("--nodes", "1,2,4", "--tuning", "defaults")


@pytest.mark.parametrize("tuned_now", [True, False])
def test_ratios_of_tuned_to_default_cells_do_not_depend_on_the_order(tuned_now: bool, tmp_path: Path) -> None:
    tuned, untuned = scaling(tmp_path, "tuned"), scaling(tmp_path, "untuned", 1.25, arguments=UNTUNED)
    comparison = compare(tuned, untuned) if tuned_now else compare(untuned, tuned)
    first, *lines = comparison.sentences()
    assert first == f"against {'untuned' if tuned_now else 'tuned'}: 5 cells compared"
    assert len(lines) == 5
    assert "lenet, 32 images a rank, 4 nodes: tuned 1.25 times as fast as by default (130 ms, 162.5 ms)" in lines
    assert (comparison.document()["tuned"], comparison.document()["tuned_before"]) == (tuned_now, not tuned_now)


def test_ratio_within_the_spread_is_marked(tmp_path: Path) -> None:
    comparison = compare(scaling(tmp_path, "tuned"), scaling(tmp_path, "untuned", 1.01, arguments=UNTUNED))
    lines = list(comparison.sentences())[1:]
    assert all("times as fast as by default" in line and "; within the spread of 8.0%)" in line for line in lines)


@pytest.mark.parametrize("arguments", [("--tuning", "chosen"), ("--tuning",), ("defaults",), ({"--tuning": 1},)])
def test_unknown_tuning_counts_as_chosen(arguments: tuple[str], tmp_path: Path) -> None:
    assert scaling(tmp_path, arguments=arguments).tuning == "chosen"


def test_cells_of_only_one_benchmark_are_counted_and_disjoint_benchmarks_rejected(tmp_path: Path) -> None:
    one = read_bench(written(tmp_path, [event(TRAINING, 1, (0.1, 0.1))], "one"))
    other = read_bench(written(tmp_path, [event(TRAINING, 8, (0.1, 0.1))], "other"))
    comparison = compare(one, scaling(tmp_path))
    assert (
        next(comparison.sentences())
        == "against bench: 1 cell compared; 4 left out, because only one benchmark has them"
    )
    with pytest.raises(DeepcdkError, match="no measurement in common"):
        compare(one, other)
