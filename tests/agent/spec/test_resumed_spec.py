"""The spec of a resumed run: its ranks, its trees, and its starting point."""

from __future__ import annotations

import dataclasses

import pytest

from agent.errors import SpecError
from agent.spec.resumed_spec import resume_point, resumed_spec
from tests.factories import AGENT, PAYLOAD, make_master, make_nodes, make_program_spec, make_spec


def test_resumed_run_keeps_number_of_ranks_by_default() -> None:
    nodes = (make_master(), *make_nodes(3))
    before = make_spec(hosts=nodes[1:3], interface="")
    again = resumed_spec(before, nodes, nodes[2:4], agent=AGENT)
    assert (again.command[-1], again.hosts, again.interface) == ("--resume", nodes[2:4], "ens5")
    assert again.network == "10.0.0.0/23"  # the master's 10.0.0.5 and the workers' 10.0.1.1 to 10.0.1.3
    assert resumed_spec(again, nodes, nodes[1:3], agent=AGENT).command == again.command
    with pytest.raises(SpecError, match=r"had 2 ranks, but these hosts have 3; .*: `fab resume \S+ --nodes 3`"):
        resumed_spec(before, nodes, nodes[1:4], agent=AGENT)
    assert resumed_spec(before, nodes, nodes[1:4], agent=AGENT, other_ranks=True).ranks == 3
    with pytest.raises(SpecError, match="is not a recipe, benchmark or program"):
        resumed_spec(dataclasses.replace(before, command=("train.py",)), nodes, nodes[1:3], agent=AGENT)


@pytest.mark.parametrize(
    ("flags", "program", "checkpoints", "said"),
    [
        ((), "", ["step-00000001", "step-00000004", "step-00000007"], "from step-00000007"),
        ((), "", [], "from the beginning, because it has no checkpoint"),
        (("--checkpoint-dir", "s3://my-runs/one"), "", [], "from the latest checkpoint in its --checkpoint-dir"),
        ((), PAYLOAD, [], "in its directory"),
    ],
)
def test_starting_point_of_resumed_run_is_described(
    flags: tuple[str, ...], program: str, checkpoints: list[str], said: str
) -> None:
    own = make_spec(program=program, command=("-m", "payload.train", *flags))
    assert resume_point(own, checkpoints) == said


def test_resumed_benchmark_measures_only_missing_cells() -> None:
    nodes = make_nodes(2)
    before = make_spec(hosts=nodes, command=("-m", "payload.bench.ranks", "--run-dir", "/run", "--nodes", "1,2"))
    again = resumed_spec(before, nodes, nodes, agent=AGENT)
    assert again.command == (*before.command, "--resume")
    assert resume_point(again, []) == "with the remaining measurements"


def test_resumed_program_is_unchanged_with_requested_ranks() -> None:
    nodes = make_nodes(2)
    before = make_program_spec(command=("train.py", "--flag"), hosts=make_nodes(1, slots=4), ranks_per_node=4)
    again = resumed_spec(before, nodes, nodes[1:], agent=AGENT)
    assert (again.command, again.ranks, again.hosts[0].name) == (before.command, 4, "deeplearning-worker2")


def test_resumed_recipe_keeps_its_agent_and_program_gets_the_new_one() -> None:
    nodes = make_nodes(1)
    recipe = make_spec(hosts=nodes)
    again = resumed_spec(recipe, nodes, nodes, agent="b" * 16)
    assert (again.agent, again.payload) == (AGENT, PAYLOAD)
    assert resumed_spec(make_program_spec(hosts=nodes), nodes, nodes, agent="b" * 16).agent == "b" * 16


def test_own_environment_is_resumed_only_on_matching_hosts() -> None:
    nodes = make_nodes(1, kind="x86_64-sm90-py3.12")
    before = make_program_spec(hosts=nodes, own_environment=True, horovod_for=("torch",))
    other_gpus = make_nodes(1, kind="x86_64-sm80-py3.12")
    assert resumed_spec(before, other_gpus, other_gpus, agent=AGENT).hosts == other_gpus
    for kind in ("x86_64-sm90-py3.13", "x86_64-py3.12", "aarch64-py3.12"):
        others = make_nodes(1, kind=kind)
        with pytest.raises(SpecError, match=rf"locked for x86_64-sm90-py3\.12, but these hosts are {kind}: start"):
            resumed_spec(before, others, others, agent=AGENT)
        plain = make_program_spec(hosts=nodes)
        assert resumed_spec(plain, others, others, agent=AGENT).hosts == others
