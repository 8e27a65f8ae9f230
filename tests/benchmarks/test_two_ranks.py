"""Facts about the comparison of two ranks: figures are added up, ratios taken within a round, promises held against."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks.two_ranks import Figures, document, figures_of, kept, ratios, table


def figures(images_per_s: float) -> Figures:
    return Figures(images_per_s=images_per_s, cpu_seconds=0.07, seconds=((1.0,), (1.0,)), chosen="cycle 3.4 ms")


FAST = {"ours": figures(98.0), "pair": figures(100.0), "one": figures(50.0)}
SLOW = {"ours": figures(60.0), "pair": figures(100.0), "one": figures(50.0)}


def output(*seconds: float) -> str:
    return (
        "a greeting\n[0]<stdout>:FIGURES " + json.dumps({"seconds": seconds, "cpu_seconds": 0.5, "chosen": "x"}) + "\n"
    )


def test_both_processes_are_added_up_by_their_median_steps() -> None:
    found = figures_of("pair", [output(1.0, 2.0, 9.0), output(4.0)], 8)
    assert found.images_per_s == 8 / 2 + 8 / 4
    assert found.seconds == ((1.0, 2.0, 9.0), (4.0,))


def test_a_process_without_figures_is_an_error_that_shows_what_it_printed() -> None:
    with pytest.raises(RuntimeError, match=r"ours: 1 processes printed figures:\n(.|\n)*Segmentation fault"):
        figures_of("ours", [output(1.0) + "Segmentation fault"], 8)


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert ratios([FAST, SLOW, FAST]) == {"pair": (0.6, 0.98, 0.98), "one": (1.2, 1.96, 1.96)}
    assert kept([FAST, SLOW, FAST])
    assert not kept([SLOW, SLOW, FAST])


def test_the_table_says_which_promise_is_kept() -> None:
    lines = table("lenet", [FAST, FAST, SLOW]).splitlines()
    assert lines[2].endswith("0.980  (0.600 to 0.980)  0.95: kept")
    assert "1.9: kept" in lines[3]
    assert lines[-1] == "  chosen: cycle 3.4 ms"
    assert "NOT kept" in table("lenet", [SLOW])


def test_the_table_tells_what_turns_within_a_run_found() -> None:
    turning = {**SLOW, "ours": dataclasses.replace(SLOW["ours"], in_turns=(0.9, 0.96, 0.97))}
    lines = table("lenet", [turning]).splitlines()
    assert lines[1].endswith("in turns 0.960  (0.900 to 0.970)")
    assert not kept([turning])


def test_a_turn_is_of_all_ranks() -> None:
    def printed(*turns: tuple[float, float]) -> str:
        return output(1.0).replace('"chosen"', f'"turns": {json.dumps(turns)}, "chosen"')

    found = figures_of("ours", [printed((0.2, 0.1), (0.4, 0.4)), printed((0.2, 0.2), (0.4, 0.25))], 8).in_turns
    assert found == pytest.approx(((5 + 5) / (10 + 5), (2.5 + 2.5) / (2.5 + 4)))


def test_the_document_keeps_every_step() -> None:
    read = json.loads(document({"cores": 2}, {"lenet": [FAST]}))
    assert read["networks"]["lenet"]["rounds"][0]["ours"]["seconds"] == [[1.0], [1.0]]
    assert read["networks"]["lenet"]["ratios"]["pair"] == [0.98, 0.98, 0.98]
