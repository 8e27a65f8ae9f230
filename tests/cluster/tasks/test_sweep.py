"""`fab sweep`: it shows number, time and price before anything starts, and explains invalid input."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.cli.program import make_program
from cluster.tasks.sweep import missing
from tests.cluster.sweeps.test_plan import plan
from tests.cluster.tasks.test_train import dry_run

__all__ = ["dry_run"]
Sweep = Callable[..., tuple[str, str]]


@pytest.fixture
def sweep(
    dry_run: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Sweep:
    """Return a function that calls `fab sweep` on two workers, in a project with train.py. It returns both outputs."""
    prices = "cluster.aws.prices.Prices.per_hour"
    monkeypatch.setattr(prices, lambda _, kinds, *__, **___: dict.fromkeys(kinds, 0.34))
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('hello')\n")
    monkeypatch.setattr("cluster.tasks.train.PROJECT", project)

    def call(*words: str) -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["fab", "sweep", *words])
        with contextlib.suppress(SystemExit):
            make_program().run()
        printed = capsys.readouterr()
        return printed.out, printed.err

    return call


def test_dry_run_shows_number_time_and_price_and_every_run(sweep: Sweep) -> None:
    out, _ = sweep("--dry-run", "--grid", "augmented-epochs=0,25,50", "--repeats", "2", "--epochs", "5")
    lines = out.splitlines()
    assert (
        "-sweep-digits-" in lines[0] and "6 runs, 2 at a time: about " in lines[0] and "for their workers" in lines[0]
    )
    assert lines[1].split() == ["run", "augmented-epochs", "repeat", "seed"]
    assert [line.split() for line in lines[2:]] == [
        ["1", "0", "1", "1"], ["2", "25", "1", "1"], ["3", "50", "1", "1"],
        ["4", "0", "2", "2"], ["5", "25", "2", "2"], ["6", "50", "2", "2"],
    ]  # fmt: skip


def test_dry_run_of_a_program_shows_its_commands(sweep: Sweep) -> None:
    words = ("--entry", "train.py --lr {lr}", "--grid", "lr=0.1,<b>x", "--nodes-each", "1,2", "--max-hours", "0.5")
    out, _ = sweep("--dry-run", "--json", "--together", "no", *words)
    found = json.loads(out)
    assert [run["command"] for run in found["runs"]] == [
        ["train.py", "--lr", value] for value in ("0.1", "0.1", "<b>x", "<b>x")
    ]
    assert [run["parameters"]["nodes"] for run in found["runs"]] == ["1", "2", "1", "2"]
    assert (found["estimate"]["runs"], found["estimate"]["seconds"]) == (4, None)


def test_ten_thousand_runs_ask_with_number_time_and_price(sweep: Sweep) -> None:
    _, err = sweep("--grid", "learning-rate=0.001..0.1..0.001", "--grid", "batch-per-rank=1..100", "--epochs", "1")
    assert "10,000 runs, 2 at a time: about " in err and "for their workers" in err
    assert "There is no terminal on which to ask" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--grid", "lr=1,2", "--entry", "train.py"), "does not use {lr}"),
        (("--grid", "lr=1,2", "--entry", "train.py {lr} {depth}"), "{depth}"),
        (("--grid", "lr=1", "--grid", "lr=2", "--entry", "train.py {lr}"), "is given twice"),
        (("--grid", "learning-rate=a,b"), "--learning-rate"),
        (("--grid", "epochs=1,2", "--nodes-each", "17"), "17"),
        (("--resume", "s", "--grid", "a=1"), "leave out --grid"),
        (("--resume", "s", "--repeats", "3", "--max-cost", "5"), "leave out --repeats, --max-cost"),
        (("--resume", "s", "--", "--lr", "3"), "leave out the words after --"),
        (("--name", "A B", "--grid", "epochs=1,2"), "--name"),
        ((), "must have a parameter"),
    ],
)
def test_invalid_input_is_explained(sweep: Sweep, words: tuple[str, ...], message: str) -> None:
    out, err = sweep("--dry-run", *words)
    assert message in err and not out.startswith("sweep ")


def test_missing_runs_are_those_without_success_and_untried_ones_come_first() -> None:
    found = plan("x=a,b,c,d,e,f")
    states = [(1, "failed"), (2, "succeeded"), (3, "queued"), (4, "running"), (5, "stopped"), (2, "failed")]
    assert [trial.number for trial in missing(found, "s", states)] == [5, 6, 1]
