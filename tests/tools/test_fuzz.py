"""Facts about the search with hostile bytes: it goes on until the time is over, and a failure ends it with its seed."""

from __future__ import annotations

import re

from tools import fuzz


def test_it_goes_on_until_the_time_is_over_with_another_seed_each_time() -> None:
    seeds: list[int] = []
    said: list[str] = []

    def run(seed: int) -> int:
        seeds.append(seed)
        return 0

    assert fuzz.search(0.0005, run, said.append) == 0
    assert len(set(seeds)) == len(seeds) > 1
    assert said == [f"{len(seeds)} rounds of 500 examples of each test in 0 minutes, and nothing found"]


def test_a_failure_ends_it_with_the_command_that_finds_it_again() -> None:
    said: list[str] = []
    assert fuzz.search(60.0, lambda _: 1, said.append) == 1
    assert re.search(r"round 1 failed .*DEEPCDK_EXAMPLES=500 -m pytest .*--hypothesis-seed=[0-9]+$", said[0])


def test_a_round_that_finds_nothing_ends_well() -> None:
    assert fuzz.main(["--minutes", "0", "-k", "test_a_request_to_the_nodes"]) == 0
