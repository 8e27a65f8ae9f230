"""Staging as the laptop controls it, with the nodes' own programs running here."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from agent.spec.laptop_requests import RemoteCommand
from agent.staging.manifest import Entry, Manifest
from cluster.errors import DeepcdkError, RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh.command_on_nodes import HostResult
from cluster.ssh.master import Completed
from cluster.staging import files_to_stage
from cluster.staging.node_reports import Reports, StagingError
from cluster.staging.stager import Stager, readers
from cluster.terminal.progress import PlainProgress
from tests.factories import make_nodes

PROJECT = Path(__file__).resolve().parents[3]
NODES = make_nodes(2)
HOSTS = tuple(node.name for node in NODES)


SCRIPT = """
import sys
from agent.staging import copy_to_local
copy_to_local.own_index = lambda _: INDEX
module = sys.argv.pop(1)
from agent.staging import node_commands
main = node_commands.main if module == "agent.staging.node_commands" else copy_to_local.main
sys.exit(main(sys.argv[1:]))
"""


class LocalMaster:
    """Run the master's commands here."""

    where = "here"

    def __init__(self) -> None:
        self.uploads = self.sent = 0
        self.asked: list[RemoteCommand] = []

    def run(self, argv: Sequence[str], *, directory: str = "", stdin: bytes = b"") -> Completed:
        words = [sys.executable, *argv[1:]] if "agent.staging.node_commands" in argv else argv
        done = subprocess.run(words, cwd=PROJECT, input=stdin, capture_output=True, check=False)
        return Completed(status=done.returncode, stdout=done.stdout, stderr=done.stderr.decode())

    def check(self, argv: Sequence[str], *, doing: str) -> Completed:
        return self.run(argv)

    def lines(self, argv: Sequence[str], *, directory: str, silence_s: float, feed: Iterable[bytes]) -> Iterator[str]:
        words = [sys.executable, *argv[1:]]
        process = subprocess.Popen(words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin and process.stdout

        def send(stdin: IO[bytes]) -> None:
            with contextlib.suppress(BrokenPipeError), stdin:
                for block in feed:
                    self.uploads += b'{"receive"' in block
                    self.sent += len(block)
                    stdin.write(block)
                    stdin.flush()

        threading.Thread(target=send, args=(process.stdin,), daemon=True).start()
        for line in process.stdout:
            yield line.decode()
        if status := process.wait():
            raise RemoteError("failed", status=status, output="")


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> LocalMaster:
    """Return a master with this machine as all of its workers; each is identified by its position in --nodes."""
    master = LocalMaster()

    def run(_: Any, directory: str, request: RemoteCommand, shown: Any) -> tuple[HostResult, ...]:
        results = []
        master.asked.append(request)
        for host in HOSTS[: request.nodes or None]:
            words = request.command[1:] if request.is_module else request.command[request.command.index("-m") + 1 :]
            code = SCRIPT.replace("INDEX", str(HOSTS.index(host)))
            words = tuple(word.replace("DISK", host) for word in words)
            done = subprocess.run([sys.executable, "-c", code, *words], cwd=PROJECT, capture_output=True, check=False)
            shown.feed(host, "stdout", done.stdout)
            results.append(
                HostResult(
                    name=host, exit_code=done.returncode, reached=True, seconds=0, stdout=b"", stderr=done.stderr
                )
            )
        return tuple(results)

    monkeypatch.setattr("cluster.ssh.command_on_nodes.run", run)
    return master


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "laptop"
    root.mkdir()
    for number in range(6):
        (root / f"f{number}").write_bytes(bytes([number]) * 1000)
    return root


class Scene:
    def __init__(self, master: LocalMaster, tmp_path: Path, folder: Path) -> None:
        self.lines: list[str] = []
        self.master, self.efs, self.disks, self.folder = master, tmp_path / "efs", tmp_path / "DISK", folder
        self.stager = Stager(master, "/tree", "/tree", str(self.efs), "set", NODES, PlainProgress(self.lines.append))  # type: ignore[arg-type]

    def upload(self) -> int:
        found, manifest = self.read()
        return self.stager.upload(found.root, manifest)

    def copy(self, *, sharded: bool) -> Reports:
        found, manifest = self.read()
        return self.stager.upload_and_copy(found.root, manifest, str(self.disks), sharded=sharded)[1]

    def read(self) -> tuple[files_to_stage.Source, Manifest]:
        found = files_to_stage.survey(str(self.folder), follow_links=False)
        return found, found.manifest(lambda *_: None)

    def disk(self, host: str) -> Path:
        return Path(str(self.disks).replace("DISK", host)) / "set"


@pytest.fixture
def scene(master: LocalMaster, tmp_path: Path, folder: Path) -> Scene:
    return Scene(master, tmp_path, folder)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_data_is_uploaded_once(scene: Scene) -> None:
    assert scene.upload() == 6000
    assert (scene.upload(), scene.master.uploads) == (0, 1)
    assert {request.as_rank for request in scene.master.asked} == {False}
    (scene.folder / "f6").write_bytes(b"new")
    (scene.folder / "f0").unlink()
    assert scene.upload() == 3
    assert names(scene.efs / "set") == names(scene.folder)


def test_number_of_verifying_workers_depends_on_data(
    master: LocalMaster, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = PlainProgress(scene.lines.append)
    scene.stager = Stager(master, "/tree", "/tree", str(scene.efs), "set", make_nodes(3), shown)  # type: ignore[arg-type]
    scene.upload()
    assert [(request.nodes, request.master) for request in master.asked] == [(2, False)]
    found, _ = scene.read()
    manifest = found.manifest(lambda *_: None)
    monkeypatch.setattr("cluster.staging.stager.READER_FILES", 2)
    assert [readers(manifest), readers(Manifest.of([]))] == [3, 2]
    assert readers(Manifest.of([Entry(path="f", size=3 * (128 << 20) + 1, sha256="0" * 64)])) == 4


def test_damaged_file_is_reported_sent_again_and_verified_by_another_worker(scene: Scene) -> None:
    scene.upload()
    (scene.efs / "set" / "f3").write_bytes(b"X" * 1000)
    assert scene.upload() == 1000
    assert "damaged on the shared file system, staged again: 'f3'" in scene.lines
    assert (scene.efs / "set" / "f3").read_bytes() == (scene.folder / "f3").read_bytes()
    turns = [request.command[request.command.index("--round") + 1] for request in scene.master.asked]
    assert turns == ["1", "0", "1"]
    assert {request.nodes for request in scene.master.asked} == {0}, "the parts are those of as many workers"


def test_shards_are_disjoint_and_complete_and_replaced_by_whole_copies(scene: Scene) -> None:
    reports = scene.copy(sharded=True)
    one, two = (names(scene.disk(host)) for host in HOSTS)
    assert (len(one), len(two), one | two) == (3, 3, names(scene.folder))
    assert {host: done["files"] for host, done in reports.done.items()} == dict.fromkeys(HOSTS, 3)
    reports = scene.copy(sharded=False)
    assert all(names(scene.disk(host)) == names(scene.folder) for host in HOSTS)
    assert [done["came_bytes"] for done in reports.done.values()] == [3000, 3000]
    assert scene.master.uploads == 1
    assert {path.name for path in scene.efs.iterdir()} == {"set", "set.manifest", ".set.lock", ".set.staging"}
    as_rank = {request.as_rank for request in scene.master.asked if "agent.staging.copy_to_local" in request.command}
    assert as_rank == {True}, "copies on workers' disks belong to the ranks' user"


def test_file_changed_during_upload_is_reported(scene: Scene) -> None:
    found, manifest = scene.read()
    (scene.folder / "f2").write_bytes(b"longer" * 1000)
    with pytest.raises(DeepcdkError, match="f2: size changed") as caught:
        scene.stager.upload(found.root, manifest)
    assert "complete files are kept" in caught.value.remedy
    (scene.folder / "f2").write_bytes(bytes([2]) * 1000)
    assert scene.upload() < 6000


def test_file_damaged_during_copy_is_sent_and_copied_again(scene: Scene) -> None:
    scene.upload()
    (scene.efs / "set" / "f1").write_bytes(b"X" * 1000)
    reports = scene.copy(sharded=False)
    assert "damaged on the shared file system, staged again: 'f1'" in scene.lines
    assert all(names(scene.disk(host)) == names(scene.folder) for host in HOSTS)
    assert {host: done["came_bytes"] for host, done in reports.done.items()} == dict.fromkeys(HOSTS, 6000)
    assert scene.master.uploads == 2


def test_concurrent_staging_of_different_data_under_one_name_is_rejected(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "f0").write_bytes(b"other bytes")
    second = Scene(scene.master, tmp_path, theirs)
    read_back, refused = scene.stager.missing, list[StagingError]()

    def staged_meanwhile(manifest: Manifest, attempt: int = 0, among: int | None = None) -> tuple[Entry, ...]:
        with pytest.raises(
            StagingError, match=r"another `fab stage-data` has been writing to \S+/efs/set since"
        ) as caught:
            second.upload()
        refused.append(caught.value)
        return read_back(manifest, attempt, among)

    monkeypatch.setattr(scene.stager, "missing", staged_meanwhile)
    assert scene.upload() == 6000
    assert "wait until the other command ends, then repeat, or give another --name" in refused[0].remedy
    assert (scene.efs / "set" / "f0").read_bytes() == bytes(1000)
    assert not (scene.efs / "set.manifest.new").exists()
    assert second.upload() == len(b"other bytes")
    assert names(scene.efs / "set") == {"f0"}


def test_master_gets_the_data_once_for_any_number_of_workers(scene: Scene) -> None:
    sent = []
    for workers in (NODES[:1], NODES):
        before = scene.master.sent
        found, manifest = scene.read()
        name = f"set{len(workers)}"
        shown = PlainProgress(scene.lines.append)
        stager = Stager(scene.master, "/tree", "/tree", str(scene.efs), name, workers, shown)  # type: ignore[arg-type]
        stager.upload_and_copy(found.root, manifest, str(scene.disks), sharded=False)
        sent.append(scene.master.sent - before)
    assert sent[0] == sent[1] > manifest.size


def test_failure_is_reported_with_nodes_and_fix(scene: Scene) -> None:
    scene.disk(HOSTS[1]).parent.mkdir()
    scene.disk(HOSTS[1]).write_text("in the way")
    with pytest.raises(StagingError, match="worker2: ") as caught:
        scene.copy(sharded=True)
    assert len(caught.value.failures) == 1


def test_file_not_staged_cannot_be_missing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    _, manifest = scene.read()
    reports = Reports(None)
    reports.take("deeplearning-worker1", '{"missing": ["../../.ssh/id_ed25519"]}')
    with pytest.raises(AnswerError, match=r"the file is not in the data set\n  answer: '\.\./"):
        scene.stager._lacking(manifest, reports, 0)
