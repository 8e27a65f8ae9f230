"""The launcher of an elastic run: when a host or a rank is lost, those that are left go on, and further hosts join.

    python -m agent.launch.elastic.launcher RANKS_PYTHON RUN_DIRECTORY [FLAG ...]    # on the master

Which hosts there are it reads from `agent.launch.elastic.offers`; FLAGs are Horovod's settings as horovodrun has them.

Horovod's own elastic launcher starts the ranks of a new host only when the others have left their steps, and these
would wait while TensorFlow is imported there. It waits for each rank of the round before, also for one whose host is
cut off, until SSH has given it up. So this one gives the places itself, and each round has a store of its own.

A rank that is killed, or whose host is lost, has no successor: the others form anew. One that ends with a status
of its own has met an error of the program, and ends the run.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.launch.elastic import offers
from agent.launch.elastic.membership import MemberHost, Membership
from agent.launch.elastic.offers import Reformed, Unjoined, Waiting
from agent.launch.elastic.places import Answers, Server, open_store
from agent.launch.elastic.silent_hosts import SilentHosts, is_there
from agent.launch.host_ranks import END_GRACE_S
from agent.launch.marked_rank import parse_end
from agent.launch.mpi_rank import Lines
from agent.remote.command import SSH_FAILED, remote_command
from agent.runs.directory import RunDirectory
from agent.spec.elastic import LEAVING_VARIABLE, SERVER_VARIABLE, FirstStep, Place
from agent.spec.nodes import LEAVING, Node
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE, RunSpec, placed

KILLED: Final = (-9, 128 + 9)
LAST_LINES: Final = 10
"""How many lines of the rank that ended first are repeated at the end."""
IDLE_ROUNDS: Final = 3
"""After so many rounds in a row in which no step was made, and none was lost, the run ends: something else is wrong."""
_END_S: Final = 3 * END_GRACE_S
_POLL_S: Final = 0.2


@dataclasses.dataclass(kw_only=True, eq=False)
class Connection:
    """The SSH connection with which the ranks of a host live."""

    host: MemberHost
    ssh: subprocess.Popen[bytes]
    lines: Lines = dataclasses.field(default_factory=lambda: Lines(b""))


class Launcher:
    """The ranks of an elastic run on all its hosts."""

    def __init__(self, spec: RunSpec, python: str, folder: Path, variables: Mapping[str, str], out: int) -> None:
        """`variables`: for the ranks, on their command lines; `out`: file descriptor of the log."""
        self._spec, self._python, self._folder, self._variables, self._out = spec, python, folder, variables, out
        self._membership = Membership(max(1, spec.min_nodes))
        self._answers = Answers(self._membership)
        self._server = Server(self._answers)
        self._connections: dict[str, Connection] = {}
        """By the host's instance id."""
        self._started: set[int] = set()
        """Numbers of offers."""
        self._streams = selectors.DefaultSelector()
        self._store: Any = None
        self._failure = ""
        self._blamed: int | None = None
        self._loss = ""
        """The line that would end the log if the ranks did not come to a step again after the last loss."""
        self._lost_in = 0
        """The round of the last loss."""
        self._idle = 0
        self._reformed: Reformed | None = None
        """To be told with its first step."""
        self._silent_hosts = SilentHosts(lambda node: is_there(node, spec.agent_directory))
        self._deadline: float | None = None
        self._last: dict[int, collections.deque[bytes]] = {}
        self._told_waiting: list[MemberHost] = []

    def run(self) -> int:
        """Carry the run through; return 0 where it ended well, else 1."""
        self._take_offers()
        while self._streams.get_map():
            for key, _ in self._streams.select(_POLL_S):
                block = os.read(key.fd, 1 << 16)
                connection: Connection = key.data
                self._forward(connection, connection.lines.feed(block) if block else connection.lines.end())
                if not block:
                    self._streams.unregister(key.fileobj)
                    self._judge(connection)
            self._look()
        self._tell_reformed()
        if self._spec.program and self._loss and self._lost_in == self._membership.round:
            # The others ended without it, which may have had the result to write. Of a recipe that tells the result.
            self._fail(self._loss)
        self._silent_hosts.end()
        if self._failure:
            self._say(self._failure)
            for last in self._last.get(self._blamed, ()) if self._blamed is not None else ():
                _write(self._out, last)
        return 1 if self._failure else 0

    def _look(self) -> None:
        """Do what is due."""
        self._end_where_over()
        if self._failure or self._membership.is_ending:
            return
        self._take_offers()
        self._take_steps()
        self._turn_away()
        self._tell_waiting()
        self._look_for_silent()
        self._form()

    def _take_offers(self) -> None:
        """Start ranks on hosts that are offered, and have those leave that no longer are."""
        try:
            offered = offers.read_offers(self._folder)
        except (OSError, ValueError) as error:
            self._say(f"[launcher] the hosts that are offered cannot be read: {error}")
            return
        for offer in offered:
            if offer.number not in self._started:
                self._started.add(offer.number)
                self._start(offer.node)
        names = {offer.node.instance_id for offer in offered}
        with self._answers.changed:
            for host in self._membership.hosts:
                host.leaves = host.leaves or host.node.instance_id not in names
            unwanted = [host for host in self._membership.hosts if host.leaves and not host.round]
        for host in unwanted:
            self._lose(host, "", f"{host.node.name} is no longer offered")

    def _start(self, node: Node) -> None:
        with self._answers.changed:
            host = self._membership.add(node)
        address = f"{_address_towards(node.address)}:{self._server.port}"
        marks = {
            RUN_VARIABLE: self._spec.run_id,
            RUNS_VARIABLE: self._spec.runs_root,
            SERVER_VARIABLE: address,
            LEAVING_VARIABLE: f"{self._spec.efs_mount}/{LEAVING}/{node.instance_id}",
            "HOROVOD_SIZE": str(self._spec.ranks),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_ELASTIC": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **self._variables,
        }
        place = (node.name, node.address, str(host.members[0]), str(node.slots))
        words = [self._python, "-m", "agent.launch.elastic.host", self._spec.run_directory, *place]
        command = ["env", *(f"{name}={value}" for name, value in marks.items()), *words]
        pipe = subprocess.PIPE
        ssh = subprocess.Popen(
            remote_command(node, self._spec.agent_directory, command, as_rank=True),
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.STDOUT,
        )
        connection = self._connections[node.instance_id] = Connection(host=host, ssh=ssh)
        self._streams.register(ssh.stdout, selectors.EVENT_READ, connection)  # type: ignore[arg-type]  # a pipe

    def _forward(self, connection: Connection, lines: Sequence[bytes]) -> None:
        for line in lines:
            if found := parse_end(line):
                if found[1]:
                    self._ended(connection.host, *found)
                continue
            if line.startswith(b"[") and (number := line[1:].partition(b"]<std")[0]).isdigit():
                self._last.setdefault(int(number), collections.deque(maxlen=LAST_LINES)).append(line)
            _write(self._out, line)

    def _ended(self, host: MemberHost, member: int, status: int) -> None:
        """Take note of a rank that has ended wrongly."""
        if host not in self._membership.hosts:
            return
        line = f"[launcher] rank {member} on {host.node.name} ended first: {status}"
        if status in KILLED:
            self._lose(host, line, f"rank {member} on {host.node.name} was killed")
        elif not host.round and self._membership.round:
            self._lose(host, line, f"rank {member} on {host.node.name} ended with status {status} before it joined")
        else:
            self._fail(self._loss or line, None if self._loss else member)

    def _judge(self, connection: Connection) -> None:
        """Take note of a host whose connection has ended."""
        status, host = connection.ssh.wait(), connection.host
        if host not in self._membership.hosts:
            return
        name = host.node.name
        if not status:
            with self._answers.changed:
                host.has_ended = True
                self._answers.changed.notify_all()
        elif status == SSH_FAILED:
            self._lose(host, f"[launcher] {name} ended: {status}", f"the connection to {name} was lost")
        else:
            self._lose(host, f"[launcher] {name} ended: {status}", f"the ranks on {name} ended with status {status}")

    def _lose(self, host: MemberHost, line: str, why: str, *, for_good: bool = False) -> None:
        """Go on without a host; end the run where it cannot. `for_good`: it would not join another time either."""
        membership = self._membership
        with self._answers.changed:
            was_whole, is_of_round = membership.has_joined, bool(host.round)
            membership.lose(host, why)
            self._answers.changed.notify_all()
        connection = self._connections.pop(host.node.instance_id, None)
        if connection is not None and connection.host is host:
            with contextlib.suppress(OSError):
                connection.ssh.stdin.close()  # type: ignore[union-attr]  # a pipe
        self._say(f"[launcher] lost: {why}")
        if not is_of_round and membership.round:
            if not (self._failure or membership.is_ending or host.leaves):
                offers.tell(self._folder, Unjoined(instance_id=host.node.instance_id, for_good=for_good))
            return
        if not membership.round or membership.is_ending or not was_whole:
            # Horovod cannot be initialised again in a process in which that has failed once.
            self._fail(line)
        elif len(membership.next_hosts) < membership.least:
            self._say(f"[launcher] {len(membership.next_hosts)} nodes are left, and {membership.least} are needed")
            self._fail(line)
        else:
            self._loss, self._lost_in = line, membership.round

    def _turn_away(self) -> None:
        """Give no place to a host that waits to join with other data: with it, the ranks would end the run."""
        with self._answers.changed:
            strangers = self._membership.strangers
        for host in strangers:
            why = f"{host.node.name} reads other data than the others, and is not taken in"
            self._lose(host, "", why, for_good=True)

    def _tell_waiting(self) -> None:
        """Write down which hosts wait to be taken in; the supervisor withdraws one that is late to do so."""
        membership = self._membership
        with self._answers.changed:
            waiting = [host for host in membership.hosts if membership.round and not host.round and host.all_wait]
        for host in waiting:
            if host not in self._told_waiting:
                self._told_waiting.append(host)
                offers.tell(self._folder, Waiting(instance_id=host.node.instance_id))

    def _look_for_silent(self) -> None:
        """Go on without the hosts whose ranks do not ask for a place, while others do, and that are gone."""
        with self._answers.changed:
            silent = list(self._membership.silent)
        for host, why in self._silent_hosts.look(silent):
            ssh = self._connections[host.node.instance_id].ssh
            self._lose(host, f"[launcher] {host.node.name} ended: {SSH_FAILED}", why)
            ssh.kill()  # Where its host is cut off, it would never close the connection.

    def _form(self) -> None:
        """Give the ranks their places in the next round, once all of them wait."""
        membership = self._membership
        with self._answers.changed:
            if not membership.is_ready:
                return
            hosts = membership.next_hosts
            if len(hosts) < membership.least:
                self._fail(self._loss or f"[launcher] {len(hosts)} nodes are left, and {membership.least} are needed")
                return
            names = {member: host.node.name for host in hosts for member in host.members}
            places: dict[int, Place] = {}

            def place(port: int) -> Mapping[int, Place]:
                places.update(membership.form(_address_towards(hosts[0].node.address), port))
                return places

            store, self._store = self._store, open_store(place, names)
            self._answers.places = dict(places)
            self._answers.changed.notify_all()
        if store is not None:
            store.stop()
        self._tell_reformed()
        first = next(iter(places.values()))
        if first.round > 1:
            self._idle = 0 if first.lost or first.joined else self._idle + 1
            self._say(f"[launcher] formed anew, for {first.why}: {placed(first.size, _hosts(hosts))}")
            self._reformed = Reformed(
                time=time.time(),
                why=first.why,
                lost=first.lost,
                joined=first.joined,
                hosts=_hosts(hosts),
                ranks=first.size,
            )
        if self._idle >= IDLE_ROUNDS:
            self._fail("[launcher] the ranks lose each other again and again, though none is lost")

    def _take_steps(self) -> None:
        with self._answers.changed:
            steps, self._answers.steps = self._answers.steps, []
        for step in steps:
            self._loss, self._idle = "", 0
            self._tell_reformed(step)

    def _tell_reformed(self, step: FirstStep | None = None) -> None:
        if self._reformed is not None:
            offers.tell(self._folder, dataclasses.replace(self._reformed, first=step))
            self._reformed = None

    def _fail(self, line: str, member: int | None = None) -> None:
        if not self._failure:
            self._failure, self._blamed = line, member

    def _end_where_over(self) -> None:
        """End all ranks where one has failed, and those that wait to join where the others have ended."""
        present = self._membership.present
        is_over = bool(present) and all(host.has_ended for host in present)
        if not (self._failure or is_over) or RunDirectory(path=Path(self._spec.run_directory)).stop_request.exists():
            return
        connections = {key.data for key in self._streams.get_map().values()}
        if self._deadline is None:
            self._deadline = time.monotonic() + _END_S
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.ssh.stdin.close()
        elif time.monotonic() > self._deadline:
            for connection in connections:
                connection.ssh.kill()

    def _say(self, line: str) -> None:
        _write(self._out, f"{line}\n".encode())


def _hosts(hosts: Sequence[MemberHost]) -> tuple[str, ...]:
    return tuple(host.node.name for host in hosts)


def _address_towards(address: str) -> str:
    """Return this machine's address in the network of another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # Nothing is sent.
        return str(probe.getsockname()[0])


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def horovod_variables(flags: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return Horovod's variables for the ranks: those of this process, and what horovodrun makes of its flags."""
    from horovod.runner import launch
    from horovod.runner.common.util import config_parser

    found = {name: value for name, value in environ.items() if name.startswith("HOROVOD_")}
    before, sys.argv = sys.argv, ["horovodrun", *flags, "-np", "1", "true"]
    try:
        config_parser.set_env_from_args(found, launch.parse_args())
    finally:
        sys.argv = before
    return found


def main(argv: Sequence[str]) -> int:
    """Launch the ranks of a run; return 0 where all ended well."""
    python, directory, *flags = argv
    spec = RunSpec.from_json((Path(directory) / "spec.json").read_text(encoding="utf-8"))
    variables = {**horovod_variables(flags, os.environ), "LANG": os.environ.get("LANG", "C.UTF-8")}
    return Launcher(spec, python, offers.folder_of(spec.run_id), variables, sys.stdout.fileno()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
