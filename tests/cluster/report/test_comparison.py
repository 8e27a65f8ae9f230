"""Facts about runs side by side."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import Any

import pytest

from cluster.report.comparison import SCALING, Spread, compare
from cluster.report.model import RunReport
from cluster.report.run_report import ACCURACY, SPEED_PER_NODE, report_of
from tests.cluster.report.recorded_runs import DIGITS, RESUMED, changed, raw, report


def run(number: int, *, accuracy: float = 0.9, **settings: Any) -> RunReport:
    """Return the recorded run as another one, with other settings."""
    result = raw()["result"]
    built = report_of(changed(result={"test_accuracy": accuracy, "settings": {**result["settings"], **settings}}))
    return dataclasses.replace(built, run_id=f"run-{number}")


def on_nodes(found: RunReport, nodes: int, per_node: float) -> RunReport:
    """Return a run on other nodes, at another speed."""
    headlines = tuple(
        dataclasses.replace(each, value=per_node) if each.key == SPEED_PER_NODE else each for each in found.headlines
    )
    return dataclasses.replace(found, nodes=nodes, headlines=headlines)


def test_runs_that_differ_in_the_seed_alone_are_repeats() -> None:
    found = compare([run(1), run(2, learning_rate=0.1), run(3, seed=7), run(4)])
    assert [(group.label, group.runs) for group in found.repeats] == [("A", (0, 2, 3)), ("B", (1,))]
    assert found.labels == ("A1", "B", "A2", "A3")


@pytest.mark.parametrize(
    "other",
    [
        {"spec": {"payload": "other"}},
        {"spec": {"controller": "mpi"}},
        {"result": {"versions": {"tensorflow": "2.22.0"}}},
        {"origin": {"instance_types": {"i-1": "p5.48xlarge"}}},
    ],
)
def test_runs_of_other_code_versions_launcher_or_machines_are_no_repeats(other: dict[str, Any]) -> None:
    assert len(compare([report(), report_of(changed(**other))]).repeats) == 2


def test_runs_on_other_numbers_of_nodes_are_no_repeats() -> None:
    assert len(compare([report(), on_nodes(report(), 4, 800.0)]).repeats) == 2


def test_repeats_have_mean_and_spread_of_each_figure() -> None:
    accuracies = [0.90, 0.92, 0.97]
    found = compare([run(number, accuracy=value, seed=number) for number, value in enumerate(accuracies)])
    (group,) = found.repeats
    assert dict(group.figures)[ACCURACY] == Spread(
        count=3, mean=statistics.fmean(accuracies), deviation=statistics.stdev(accuracies), least=0.90, most=0.97
    )


def test_a_single_run_has_no_deviation() -> None:
    assert Spread.of([3.0]) == Spread(count=1, mean=3.0, deviation=None, least=3.0, most=3.0)


def test_curves_of_repeats_are_the_means_of_the_epochs_that_all_have() -> None:
    one, other = run(1), run(2, seed=2)
    halved = tuple(
        dataclasses.replace(point, test_accuracy=(point.test_accuracy or 0) / 2) for point in other.curves.epochs[:15]
    )
    found = compare([one, dataclasses.replace(other, curves=dataclasses.replace(other.curves, epochs=halved))])
    (group,) = found.repeats
    assert [point.epoch for point in group.epochs] == list(range(1, 16))
    for point, measured in zip(group.epochs, one.curves.epochs, strict=False):
        assert point.test_accuracy is not None and measured.test_accuracy is not None
        assert point.test_accuracy.mean == pytest.approx(0.75 * measured.test_accuracy)


def test_scaling_is_measured_by_the_run_on_the_fewest_nodes() -> None:
    found = compare([on_nodes(run(1), 8, 720.0), on_nodes(run(2), 2, 900.0)])
    shares = {run.run_id: line[-1].value for run, line in zip(found.runs, found.headlines, strict=True)}
    assert shares == {"run-1": 0.8, "run-2": 1.0}
    assert found.headlines[0][-1].key == SCALING


def test_on_one_number_of_nodes_there_is_no_scaling() -> None:
    assert all(each.key != SCALING for each in compare([run(1), run(2)]).headlines[0])


def test_each_setting_that_differs_is_found_and_no_other() -> None:
    found = compare([run(1), run(2, learning_rate=0.1, seed=4)])
    differing = {each.name: each.values for each in found.settings if each.differs}
    assert differing == {"learning_rate": ("0.05", "0.1"), "seed": ("1", "4")}
    same = {each.name for each in found.settings if not each.differs}
    assert same >= raw()["result"]["settings"].keys() - {"learning_rate", "seed"}


def test_a_setting_that_one_run_lacks_differs() -> None:
    found = compare([run(1), run(2, new_setting=3)])
    assert [each.values for each in found.settings if each.name == "new_setting"] == [("-", "3")]


def test_many_runs_have_labels_each() -> None:
    found = compare([run(number, epochs=number) for number in range(30)])
    assert found.labels[-5:] == ("Z", "AA", "AB", "AC", "AD")


def test_recorded_runs_are_compared_as_they_are() -> None:
    found = compare([report(DIGITS), report(RESUMED)])
    differing = {each.name: each.values for each in found.settings if each.differs}
    assert differing["epochs"] == ("20", "60")
    assert json.dumps(dataclasses.asdict(found))
