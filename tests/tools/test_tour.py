"""The tour: it visits every task, and shows nothing about the machine that recorded it."""

from __future__ import annotations

import re

import pytest

from cluster import demo
from fabfile import ns
from tools import tour
from tools.tour import (
    TOUR,
    Step,
    TourError,
    parse_step,
    render,
    resolve_names,
    run_step,
    shortened,
    with_settings,
    without_places,
)

STOPS = [parse_step(line) for line in TOUR.splitlines() if not line.startswith("## ")]


def test_tour_runs_every_task_except_demo() -> None:
    assert set(ns.task_names) - {"demo"} <= {stop.words[0] for stop in STOPS}


def test_record_shows_every_task_and_no_local_paths() -> None:
    text = (demo.ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    for stop in STOPS:
        assert f"$ fab {stop.words[0]}" in text
        assert stop.why in text
    for place in ("/root/", "/home/", "/var/lib/localcloud", "/tmp/"):
        assert place not in re.sub("/home/(ec2-user|deepcdk-rank)/", "", text), (
            "homes on nodes are no places of this one"
        )


def test_step_is_parsed_from_its_line() -> None:
    step = Step(words=("down", "--yes"), why="Why?", status=1, lines=8, until="x")
    assert parse_step("down --yes | Why? | status=1 lines=8 until=x") == step
    assert parse_step("runs | All runs.") == Step(words=("runs",), why="All runs.")


def test_settings_precede_the_words_of_a_command() -> None:
    assert with_settings(["run", "--", "nproc"], ["--set", "a=b"]) == ["run", "--set", "a=b", "--", "nproc"]
    assert with_settings(["recipes", "digits"], ["--set", "a=b"]) == ["recipes", "digits"]
    assert resolve_names(("show", "RUN"), {"RUN": "one"}) == ["show", "one"]


def test_omissions_are_marked() -> None:
    text = "1\n\n2 \n3\n4\n5\n"
    assert shortened(text, 2) == "1\n2\n[...]\n4\n5"
    assert shortened(text, 0) == "1\n2\n3\n4\n5"


def test_local_paths_and_hosts_are_replaced() -> None:
    places = [("/x/home", "~"), ("/x/home/project", "~/deepcdk")]
    assert without_places("\x1b[1m/x/home/project/a /x/home/b", places) == "~/deepcdk/a ~/b"
    refusal = "This node cannot use a package index: mirror.corp:8080 cannot be reached"
    assert without_places(refusal, places) == "This node cannot use a package index: index.example cannot be reached"


def test_command_is_shown_quoted_for_the_shell() -> None:
    stop = Step(words=("stage-data", "DATA"), why="Why.")
    assert render(stop, ["stage-data", "~/shards", "--name", "a b"], "done\n", 1.26) == (
        "Why. (1.3 s)\n\n```\n$ fab stage-data ~/shards --name 'a b'\ndone\n```\n"
    )


def test_hanging_step_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "TIMEOUT_S", 0.2)
    step = Step(words=("tensorboard",), why="Why?", until="never printed")
    with pytest.raises(TourError, match="exited with -9, expected 0\nserving"):
        run_step(step, ["sh", "-c", "echo serving; exec sleep 600"])


def test_step_is_interrupted_after_its_line() -> None:
    step = Step(words=("tensorboard",), why="Why?", until="serving", status=-2)
    assert run_step(step, ["sh", "-c", "echo serving; exec sleep 600"])[0] == "serving\n"
