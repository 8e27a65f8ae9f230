"""Facts about hosts that join an elastic run: which, and that they are prepared before they are offered."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.launch.elastic import offers
from agent.launch.horovodrun_command import Interpreters
from agent.remote.command import Completed
from agent.runs.directory import RunDirectory
from agent.runs.store import LiveRunError
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from agent.supervisor.elastic import elastic_run
from agent.supervisor.elastic.elastic_run import ElasticRun
from agent.supervisor.elastic.joining import Joining
from agent.supervisor.prepare_node import Prepared
from tests.factories import make_node, make_nodes, make_spec
from tests.waiting import eventually

PYTHON = "/opt/runtime/bin/python"
SPEC = make_spec(hosts=make_nodes(2), command=("-m", "payload.train"), elastic=True, preflight="skip")
NEW = make_node(3)


@dataclasses.dataclass(kw_only=True)
class Found:
    """A search that finds what it is given, and the hosts that it prepares."""

    nodes: tuple[Node, ...] = (NEW,)
    python: str = PYTHON
    broken: set[str] = dataclasses.field(default_factory=set)
    """Hosts that cannot be prepared."""
    is_taken: bool = False
    done: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    spec: RunSpec | None = None

    def joining(self, present: Sequence[Node], refused: Collection[str], most: int) -> tuple[Node, ...]:
        left_out = {*refused, *(node.instance_id for node in present)}
        return tuple(node for node in self.nodes if node.instance_id not in left_out)[:most]

    def claim(self, hosts: Sequence[Node]) -> None:
        if self.is_taken:
            raise LiveRunError("other", "live")
        self.done.append(("claimed", [host.name for host in hosts]))

    def hosts(self, spec: RunSpec) -> Found:
        self.spec = spec
        return self

    def signal_run(self, number: signal.Signals, wait_s: float, *, hosts: Sequence[Node]) -> None:
        self.done.append((number.name, [host.name for host in hosts]))

    def remote(self, host: Node | None, argv: Sequence[str], *, as_rank: bool = False) -> list[str]:
        return ["true"]

    def everywhere(self, hosts: Sequence[Node | None], argv: Sequence[str], timeout_s: float) -> dict[str, Completed]:
        assert self.spec is not None
        self.done.append(("prepared", [host.name for host in self.spec.hosts]))
        line = Prepared(python=self.python, runtime="/opt/runtime").line
        names = [host.name if host else "this master" for host in hosts]
        return {name: self.answer(name, line) for name in names}

    def answer(self, name: str, line: str) -> Completed:
        return Completed(status=1, output="broken") if name in self.broken else Completed(status=0, output=line)


def join(tmp_path: Path, found: Found, *, wanted: int = 2) -> tuple[Joining, ElasticRun, list[str], list[RunSpec]]:
    """Search once, in a run of two hosts of which one was lost."""
    run, log, specs = ElasticRun(SPEC, tmp_path / "elastic"), list[str](), list[RunSpec]()
    run.begin()
    run.withdraw([SPEC.hosts[0].instance_id])
    joining = Joining(
        run=run,
        restarts=lambda spec: found,  # type: ignore[arg-type,return-value]  # what it needs of one
        hosts_of=found.hosts,  # type: ignore[arg-type]  # likewise
        directory=RunDirectory(path=tmp_path),
        pythons=Interpreters(launcher=PYTHON, ranks=PYTHON, runtime="/opt/runtime"),
        wanted=wanted,
        take_spec=specs.append,
        log_line=log.append,
        every_s=0.0,
    )
    search(joining)
    return joining, run, log, specs


def search(joining: Joining) -> None:
    """Search once."""
    joining.look(SPEC)
    eventually(lambda: joining._thread is None or not joining._thread.is_alive())


def offered(tmp_path: Path) -> list[str]:
    return [offer.node.name for offer in offers.read_offers(tmp_path / "elastic")]


def test_a_host_is_claimed_freed_and_prepared_before_it_is_offered(tmp_path: Path) -> None:
    found = Found()
    _, _, log, (spec,) = join(tmp_path, found)
    assert [what for what, _ in found.done] == ["claimed", "SIGKILL", "prepared"]
    assert found.done[0][1] == ["deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3"]
    assert found.done[2][1] == ["deeplearning-worker3"]
    assert [host.name for host in spec.hosts] == found.done[0][1]
    assert offered(tmp_path) == ["deeplearning-worker2", "deeplearning-worker3"]
    assert log[-1] == "deeplearning-worker3: prepared, and offered to the launcher"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Found(broken={NEW.name}), "no host joins: "),
        (Found(python="/other/python"), "no host joins: deeplearning-worker3: the ranks' Python is /other/python"),
    ],
)
def test_one_that_cannot_be_prepared_is_not_offered_and_not_tried_again_at_once(
    tmp_path: Path, found: Found, said: str
) -> None:
    joining, _, log, _ = join(tmp_path, found)
    assert log[-1].startswith(said)
    assert offered(tmp_path) == ["deeplearning-worker2"]
    before = len(found.done)
    search(joining)
    assert len(found.done) == before


def test_one_that_could_not_be_prepared_is_tried_again_later_but_after_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic_run, "RETRY_S", 0.0)
    found = Found(broken={NEW.name})
    joining, *_ = join(tmp_path, found, wanted=3)
    assert offered(tmp_path) == ["deeplearning-worker2"]
    found.nodes = (NEW, make_node(4))
    search(joining)
    assert offered(tmp_path) == ["deeplearning-worker2", "deeplearning-worker4"]
    found.broken.clear()
    search(joining)
    assert offered(tmp_path) == ["deeplearning-worker2", "deeplearning-worker4", "deeplearning-worker3"]


def test_one_that_cannot_be_prepared_keeps_the_others_back_once(tmp_path: Path) -> None:
    found = Found(nodes=(NEW, make_node(4)), broken={NEW.name})
    joining, run, *_ = join(tmp_path, found, wanted=3)
    assert offered(tmp_path) == ["deeplearning-worker2"]
    assert run.refused() == {NEW.instance_id: False}
    search(joining)
    assert offered(tmp_path) == ["deeplearning-worker2", "deeplearning-worker4"]


def test_none_is_to_blame_where_the_master_cannot_be_prepared(tmp_path: Path) -> None:
    found = Found(nodes=(NEW, make_node(4)), broken={"this master"})
    _, run, *_ = join(tmp_path, found, wanted=3)
    assert set(run.refused()) == {NEW.instance_id, make_node(4).instance_id}


def test_a_host_that_another_run_has_taken_meanwhile_is_left_alone(tmp_path: Path) -> None:
    found = Found(is_taken=True)
    join(tmp_path, found)
    assert found.done == []
    assert offered(tmp_path) == ["deeplearning-worker2"]


def test_nothing_is_searched_where_no_host_is_missing(tmp_path: Path) -> None:
    found = Found()
    join(tmp_path, found, wanted=1)
    assert found.spec is None
