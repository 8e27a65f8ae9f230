"""Facts about what the model assumes."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.planner.assumptions import Assumptions, assume, without_start_up
from cluster.planner.fast_ai_2018 import DAWNBENCH
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.plan_table import WORDS

RUN = DAWNBENCH[0].workload


def test_every_figure_has_a_source_and_a_name_in_words() -> None:
    assumed = assume(RUN, hardware_of("p4d.24xlarge"))
    names = {field.name for field in dataclasses.fields(Assumptions)}
    assert set(WORDS) == names
    assert all(assumed.figure(name).source for name in names)


def test_one_figure_moves_by_itself_and_loses_its_range() -> None:
    assumed = assume(RUN, hardware_of("p4d.24xlarge"))
    moved = assumed.at("images_s", 7)
    assert moved.images_s.value == 7
    assert set(assumed.uncertain()) - set(moved.uncertain()) == {"images_s"}


def test_a_clock_that_starts_with_the_first_step_knows_no_start_up() -> None:
    assert without_start_up(assume(RUN, hardware_of("p4d.24xlarge")), "the clock").start_up_s.value == 0


def test_a_node_whose_speed_is_unknown_is_refused() -> None:
    with pytest.raises(LookupError, match="GPU X1"):
        assume(RUN, Hardware(instance_type="x", gpus=1, gpu="X1", vcpus=4, cores=2, network_gbit_s=1))
