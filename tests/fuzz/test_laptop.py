"""Whatever the master or a worker sends, the laptop uses it or rejects it with an error that names it."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tarfile
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.spec.nodes import RULES
from agent.spec.run_id import is_run_id
from cluster.errors import DeepcdkError
from cluster.nodes import node_load
from cluster.report.run_files import read_run
from cluster.runs.follow import follow
from cluster.runs.progress_display import PlainDisplay, describe_end, document
from cluster.runs.run_tables import record_table, result_table, runs_table
from cluster.runs.supervisor_client import Supervisor
from cluster.ssh import command_on_nodes, fetch
from cluster.ssh.host_keys import BEGIN, END, parse_console
from cluster.ssh.master import Completed
from cluster.ssh.web_tunnel import find_address
from cluster.staging.node_reports import Reports
from cluster.terminal.tables import print_table
from cluster.terminal.wrap import fitted
from tests.cluster.report.recorded_runs import DIGITS
from tests.cluster.runs.test_supervisor_client import AnsweringMaster
from tests.cluster.ssh.test_fetch import RUN, tar_of, tree
from tests.cluster.terminal.test_wrap import Terminal
from tests.factories import make_node, make_stack
from tests.fuzz.hostile import EXAMPLES, encoded, json_of, mutated, spoilt, texts_like

PATIENCE_S: Final = 20.0
"""Time limit for one example on a busy machine; only malicious input takes longer."""
SUMMARY: Final[dict[str, Any]] = {
    "run_id": "one", "state": "failed", "reason": "status 1", "started": 1.0, "updated": 2.5, "hosts": ["w1"],
    "last_lines": ["a"], "position": None, "epoch": {"epoch": 2, "test_accuracy": 0.9}, "last": None, "exit_code": 1,
}  # fmt: skip
RECORD: Final[dict[str, Any]] = json.loads((DIGITS / "record.json").read_text())
MESSAGES: Final[list[dict[str, Any]]] = [
    {**SUMMARY, "type": "state", "state": "running"},
    {"type": "heartbeat", "time": 3.0},
    {"type": "log", "run_id": "one", "next": 2, "lines": ["x"]},
    {"type": "metric", "line": 1, "record": {"event": "start", "epochs": 2, "steps_per_epoch": 3, "ranks": 1}},
    {"type": "metric", "line": 2, "record": {"event": "step", "epoch": 1, "step": 2, "loss": 0.5, "eta_s": 2.0}},
    {"type": "metric", "line": 3, "record": {"event": "epoch", "epoch": 1, "train_loss": 0.5, "weights_agree": True}},
    {"type": "preflight", "lines": ["well"]},
    {**SUMMARY, "type": "state"},
]
HOST: Final = "deeplearning-worker1"
OUTPUT: Final[list[dict[str, Any]]] = [
    {"warning": "line 3 is left out"},
    {"hosts": [HOST]},
    {"host": HOST, "stream": "stdout", "data": base64.b64encode(b"one\ntwo").decode()},
    {"host": HOST, "exit_code": 1, "reached": True, "seconds": 0.5, "trouble": None},
]
REPORTS: Final[list[dict[str, Any]]] = [
    {"files": 1, "bytes": 2},
    {"missing": ["a"], "spoiled": ["b"], "damaged": ["c"]},
    {"error": "full", "kind": "full"},
    {"done": {"files": 1, "bytes": 2, "digest": "00", "came_bytes": 3}},
]
LOAD: Final[dict[str, Any]] = {
    "processor": 0.5, "cores": 4, "memory_used": 1, "memory_total": 2, "received_per_s": 1.0, "sent_per_s": 2.0,
    "disk_used": 1, "disk_total": 2,
    "gpus": [{"name": "T4", "utilization": 0.5, "memory_used": 1, "memory_total": 2}],
}  # fmt: skip
NAMES: Final = ("record.json", "metrics.jsonl", "result.json", "state.json", "settings.json")
KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Fail if the block takes longer than PATIENCE_S."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PATIENCE_S


def check_shown(text: str) -> None:
    """Check that a printed error contains no control characters."""
    shown = fitted(text, Terminal())
    assert not [each for each in shown if unicodedata.category(each) == "Cc" and each not in "\n\t"]


@contextlib.contextmanager
def refused_in_words() -> Iterator[None]:
    """Allow the block to end only with a printable error of the tasks."""
    with in_time():
        try:
            yield
        except DeepcdkError as error:
            check_shown(str(error))


def supervisor(text: str, status: int = 0) -> Supervisor:
    said = Completed(status=status, stdout=text.encode(errors="surrogateescape"), stderr=text[:500])
    return Supervisor(AnsweringMaster(said), make_stack(), "/x")


@settings(max_examples=EXAMPLES)
@given(text=json_of(RECORD))
def test_record_of_a_run(text: str) -> None:
    with refused_in_words():
        record = supervisor(text).show("")
        print_table(record_table(record), check_shown)


@settings(max_examples=EXAMPLES)
@given(text=json_of([SUMMARY, SUMMARY]))
def test_list_of_runs(text: str) -> None:
    with refused_in_words():
        print_table(runs_table(supervisor(text).runs()), check_shown)


@settings(max_examples=EXAMPLES)
@given(text=json_of(SUMMARY) | texts_like(json.dumps(SUMMARY)), status=st.sampled_from((0, 1, 2, 3, 4, 255)))
def test_any_other_answer_of_the_supervisor(text: str, status: int) -> None:
    for ask in ("status", "remove", "stop"):
        with refused_in_words():
            caller = supervisor(text, status)
            arguments: tuple[Any, ...] = {"remove": ("one",), "stop": ("one", 3.0)}.get(ask, ())
            answer = getattr(caller, ask)(*arguments)
            assert answer["run_id"] == "one" or ask == "status"


@settings(max_examples=EXAMPLES)
@given(
    text=json_of({"live": [{"run_id": "one", "hosts": ["deeplearning-worker1"]}], "queued": ["two"]}),
    refused=json_of({"live": "one", "state": "live", "held": [{"run_id": "one", "hosts": ["deeplearning-worker1"]}]}),
)
def test_which_runs_have_which_nodes(text: str, refused: str) -> None:
    with refused_in_words():
        for run_id, hosts in supervisor(text).occupancy().hosts.items():
            assert is_run_id(run_id) and all(RULES["name"].fits(host) for host in hosts)
    with refused_in_words():
        supervisor(refused, 3).status("one")


@settings(max_examples=EXAMPLES)
@given(messages=spoilt(MESSAGES).filter(lambda made: isinstance(made, list)), live=st.booleans())
def test_stream_of_a_followed_run(messages: list[Any], live: bool) -> None:
    shown: list[str] = []
    with refused_in_words(), contextlib.redirect_stdout(Terminal()) as terminal:
        from cluster.runs.progress_display import LiveDisplay

        display = LiveDisplay(1.0) if live else PlainDisplay(shown.append, 1.0)
        with display:
            progress = follow(
                lambda _: iter(map(encoded, messages)), display, run_id="one", pauses_s=(), wait=lambda _: None
            )
        check_shown(describe_end(progress, 1.0)[0])
        json.dumps(document("one", progress, 1.0))
    assert "\x1b]" not in terminal.getvalue()


@settings(max_examples=EXAMPLES)
@given(messages=spoilt(OUTPUT).filter(lambda made: isinstance(made, list)))
def test_output_of_a_command_on_the_nodes(messages: list[Any]) -> None:
    lines: list[str] = []
    with refused_in_words(), contextlib.redirect_stderr(io.StringIO()):
        shown = command_on_nodes.PrefixedOutput(lambda _, line: lines.append(line), colored=False)
        results = command_on_nodes.collect(map(encoded, messages), shown, "ec2-user@198.18.1.2")
        json.dumps([result.to_document() for result in results])
        if any(result.failed for result in results):
            raise command_on_nodes.CommandFailedError(results)


@settings(max_examples=EXAMPLES)
@given(messages=spoilt(REPORTS).filter(lambda made: isinstance(made, list)))
def test_reports_of_a_staging(messages: list[Any]) -> None:
    with refused_in_words():
        reports = Reports(None, "ec2-user@198.18.1.2")
        for message in messages:
            reports.feed(HOST, "stdout", encoded(message).encode(errors="surrogateescape") + b"\n")
        reports.check()


@settings(max_examples=EXAMPLES)
@given(text=json_of(LOAD) | texts_like(json.dumps(LOAD)))
def test_load_of_a_node(text: str) -> None:
    result = command_on_nodes.HostResult(
        name=HOST, exit_code=0, reached=True, seconds=1.0, stdout=text.encode(errors="surrogateescape"), stderr=b""
    )
    with refused_in_words():
        found = node_load._load(result)
        rows = [node_load.Row(instance_id=make_node().instance_id, name=HOST, load=found)]
        print_table(node_load.table(rows), check_shown)
        json.dumps(node_load.documents(rows))


@settings(max_examples=EXAMPLES)
@given(data=mutated(tar_of({"result.json": b"{}", "events/one": b"x" * 600, "a/b/c": b""})))
def test_tar_of_a_fetched_run(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    above = tmp_path_factory.mktemp("above")
    (above / "fabfile.py").write_text("mine")
    with refused_in_words():
        fetch.unpack(iter([data[:700], data[700:]]), above / "runs", RUN)
    outside = {name for name in tree(above) if not name.startswith(f"runs/{RUN}")}
    assert outside - {"runs"} == {"fabfile.py"}
    assert not any(path.is_symlink() or path.stat().st_mode & 0o7000 for path in above.rglob("*"))


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """Return a tar with malicious headers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=draw(st.sampled_from((0, 1, 2)))) as archive:
        for _ in range(draw(st.integers(1, 4))):
            names = ["a", "a/b", "..", "../x", "/tmp/x", "a/../../x", "a//b", ".git/config", ".HG./x", "a\n", "\udcff"]
            names += ["a" * 300, "a/" * 200 + "a"]
            entry = tarfile.TarInfo(draw(st.sampled_from(names)))
            entry.type = draw(st.sampled_from((b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"L", b"S", b"g", b"x", b"V")))
            entry.linkname = draw(st.sampled_from(("", "..", "/etc/passwd", "a")))
            entry.mode = draw(st.sampled_from((0, 0o777, 0o4777, 0o7777)))
            entry.mtime = draw(st.sampled_from((0, -1, 2**40)))
            data = draw(st.sampled_from((b"", b"x" * 10, b"13 path=../x\n", b"22 GNU.sparse.size=9\n")))
            entry.size = draw(st.sampled_from((len(data), len(data), 0, 1000)))
            with contextlib.suppress(ValueError, UnicodeEncodeError):
                archive.addfile(entry, io.BytesIO(data.ljust(entry.size, b"\0")) if entry.isreg() else None)
    return buffer.getvalue()


@settings(max_examples=EXAMPLES)
@given(data=entries())
def test_malicious_tar(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    above = tmp_path_factory.mktemp("above")
    with refused_in_words():
        fetch.unpack(iter([data]), above / "runs", RUN)
    assert {name for name in tree(above) if not name.startswith(f"runs/{RUN}")} <= {"runs"}
    assert not any(path.is_symlink() or path.stat().st_mode & 0o7000 for path in above.rglob("*"))
    assert {path.name for path in above.rglob(".*")} <= {fetch.MARKER}


@settings(max_examples=EXAMPLES)
@given(
    name=st.sampled_from(("record.json", "metrics.jsonl", "result.json", "state.json", "settings.json")), data=st.data()
)
def test_files_of_a_fetched_run(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("run")
    for each, document_ in (("record.json", RECORD), ("state.json", SUMMARY), ("result.json", {"test_accuracy": 0.5})):
        (directory / each).write_text(json.dumps(document_))
    sound = (directory / name).read_text() if (directory / name).exists() else json.dumps(MESSAGES[4]["record"])
    text = data.draw(json_of(json.loads(sound)) | texts_like(sound))
    Path(directory / name).write_text(text, errors="surrogateescape")
    with refused_in_words():
        print_table(result_table(directory), check_shown)
    with refused_in_words():
        read_run(directory)


@settings(max_examples=EXAMPLES)
@given(text=texts_like(f"boot\n{BEGIN}\n{KEY} root@x\n{END}\nlogin: " * 3))
def test_console_of_an_instance(text: str) -> None:
    with in_time():
        assert {str(key) for key in parse_console(text)} <= {str(key) for key in parse_console(text)} | {KEY}
        for line in text.splitlines():
            find_address(line)


@pytest.mark.parametrize("text", [BEGIN * 1900, f"{BEGIN}\n" * 1900, (BEGIN + END) * 900, "ssh-" * 16000, " " * 64000])
def test_console_of_64_kb_designed_to_be_slow(text: str) -> None:
    with in_time():
        assert parse_console(text) == ()
