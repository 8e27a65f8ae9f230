"""Facts about the comparison of programs of one's own: ranks are added up, ratios taken within a round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.launch.first_steps import choose_cycle
from benchmarks.own_programs import RANKS, document, kept, lay_out, rate, ratios, table

AHEAD = {"ours": 110.0, "bare": 50.0, "bare-mpi": 100.0}
BEHIND = {"ours": 90.0, "bare": 50.0, "bare-mpi": 100.0}


def output(*seconds: float) -> str:
    return f"[0]<stdout>:FIGURES {json.dumps({'seconds': seconds, 'batch': 8, 'loss': 1.0})}\n"


def test_both_ranks_are_added_up_by_their_median_steps() -> None:
    assert rate("ours", output(1.0, 2.0, 9.0) + "a warning\n" + output(4.0)) == 8 / 2 + 8 / 4


def test_a_rank_without_figures_is_an_error_that_shows_what_was_printed() -> None:
    with pytest.raises(RuntimeError, match=r"bare: 1 ranks printed figures:\n(.|\n)*Segmentation fault"):
        rate("bare", output(1.0) + "Segmentation fault")


def test_ours_is_to_be_as_fast_as_both_bare_launchers_in_the_median_of_the_rounds() -> None:
    assert ratios([AHEAD, BEHIND, AHEAD]) == {"bare": (1.8, 2.2, 2.2), "bare-mpi": (0.9, 1.1, 1.1)}
    assert kept([AHEAD, BEHIND, AHEAD])
    assert not kept([AHEAD, BEHIND, BEHIND])
    assert table("mnist", [AHEAD]).splitlines()[-1].endswith("100    1.100  (1.100 to 1.100)")
    assert json.loads(document({"mnist": [AHEAD]}))["mnist"]["rounds"] == [AHEAD]


def test_what_was_measured_is_kept_before_every_program_had_a_round() -> None:
    assert json.loads(document({"mnist": [AHEAD], "resnet": []}))["resnet"] == {"rounds": [], "ratios": {}}


def test_a_run_is_laid_out_as_one_that_has_a_cycle_chosen(tmp_path: Path) -> None:
    spec = lay_out(tmp_path, "mnist", "mpi")
    assert spec.ranks == RANKS
    assert (Path(spec.working_directory) / "own_program.py").exists()
    assert choose_cycle(spec) is not None
