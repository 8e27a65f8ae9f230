"""Whatever a rank leaves on the shared file system, the master reads it or rejects it with an error of the project."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import shutil
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import SpecError
from agent.launch.output_lines import BAR_S, Lines
from agent.preflight import nccl_log, node_checks
from agent.preflight.node_facts import MARK, NodeFacts
from agent.runs import run_messages, run_record
from agent.runs import stored_state as states
from agent.runs.node_claims import Runs
from agent.spec.laptop_requests import RemoteCommand
from agent.spec.nodes import parse_nodes
from agent.spec.run import RunSpec
from agent.spec.submission import Submission
from agent.staging.manifest import Entry, Manifest, ManifestError
from agent.supervisor import bucket_copy, cli, failure, prepare_node
from tests.agent.preflight import test_node_checks as preflight
from tests.agent.preflight.test_nccl_log import OURS_2_32
from tests.factories import make_nodes, make_spec, make_state, nodes_text
from tests.fuzz.hostile import EXAMPLES, encoded, json_of, repeated, spoilt, texts_like

SPEC: Final = make_spec(run_id="one")
STATE: Final = make_state(run_id="one", state="failed").to_document()
ORIGIN: Final[dict[str, Any]] = {
    "bucket": "b", "region": "us-east-1", "instance_types": {"i-00000001": "c5.large"},
    "usd_per_hour": {"c5.large": 1.0}, "master": "i-000000ff",
}  # fmt: skip
FILES: Final[dict[str, Any]] = {
    "state.json": STATE,
    "spec.json": json.loads(SPEC.to_json()),
    "origin.json": ORIGIN,
    "launch.json": {"command": ["horovodrun"], "rank_environment": {"A": "b"}},
    "course.json": {"archive": "s3://b/runs/one"},
    "preflight.json": {"lines": ["well"]},
    "result.json": {"test_accuracy": 0.5},
    "metrics.jsonl": {"event": "epoch", "epoch": 1, "test_accuracy": 0.5},
}
REQUEST: Final = {"command": ["true"], "nodes": 0, "master": False, "is_module": False, "environment": [["A", "b"]]}
LOG: Final = (
    "[supervisor] $ horovodrun\n[0]<stderr>:Traceback (most recent call last):\n[1]<stdout>:x\n"
    "Process 1 exit with status code 1.\n[0]<stderr>: Timed out waiting 30000ms for recv operation\n"
)

PROOF: Final = preflight.here(*preflight.NAMES) + OURS_2_32 + preflight.proof(*preflight.NAMES)
PREFLIGHT_SPEC, PREFLIGHT_REPORT = preflight.SPEC, preflight.judged()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the master a home of its own, for its database of runs."""
    monkeypatch.setenv("HOME", str(tmp_path))


def runs_with(root: Path, **texts: str) -> Runs:
    """Return two runs. Run "one" has files with these texts (write `_` for the dot in their names)."""
    shutil.rmtree(Path.home() / ".deepcdk", ignore_errors=True)
    runs = Runs(root=root / "runs")
    for run_id in ("one", "two"):
        directory = runs[run_id].path
        directory.mkdir(parents=True)
        for name, document in FILES.items():
            (directory / name).write_text(json.dumps(document).replace('"one"', f'"{run_id}"'))
    for name, text in texts.items():
        (runs["one"].path / name.replace("_", ".")).write_text(text, errors="surrogateescape")
    states.import_copies(runs.root)
    return runs


@settings(max_examples=EXAMPLES)
@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_files_of_one_run_do_not_prevent_listing_others(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    text = data.draw(json_of(FILES[name]) | texts_like(json.dumps(FILES[name])))
    runs = runs_with(tmp_path_factory.mktemp("efs"), **{name.replace(".", "_"): text})
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(["--root", str(runs.root), "status", "--list"]) == 0
        assert {"two"} <= {each["run_id"] for each in json.loads(said.getvalue())} <= {"one", "two"}
        for words in (["show", "one"], ["status", "one"], ["follow", "one"], ["show", "two"]):
            said.truncate(said.seek(0))
            status = cli.main(["--root", str(runs.root), *words])
            assert status in (0, cli.FAILED) or name == "state.json"
            assert status == 0 or words[1] == "one"


@settings(max_examples=EXAMPLES)
@given(text=json_of(FILES["spec.json"]) | texts_like(SPEC.to_json()))
def test_spec_of_a_run(text: str) -> None:
    for read in (RunSpec.from_json, Submission.from_json):
        with contextlib.suppress(SpecError):
            spec = read(text)
            assert isinstance(spec, RunSpec | Submission)


@settings(max_examples=EXAMPLES)
@given(text=json_of({"spec": FILES["spec.json"], "origin": ORIGIN}))
def test_a_submission(text: str) -> None:
    with contextlib.suppress(SpecError):
        Submission.from_json(text)


@settings(max_examples=EXAMPLES)
@given(text=json_of(ORIGIN))
def test_origin_of_a_run(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    runs = runs_with(tmp_path_factory.mktemp("efs"), origin_json=text)
    with contextlib.suppress(ValueError):
        address, _ = bucket_copy.destination(runs["one"])
        assert address == "" or address.startswith("s3://")
    assert isinstance(run_record.record(runs["one"]), dict)


@settings(max_examples=EXAMPLES)
@given(text=texts_like(nodes_text(make_nodes(3))))
def test_list_of_nodes(text: str) -> None:
    said: list[str] = []
    parse_nodes(text, said.append)
    assert all(each.isascii() and each.isprintable() for each in said)


@settings(max_examples=EXAMPLES)
@given(text=texts_like(Manifest.of([Entry(path="a/b", size=1, sha256="0" * 64), Entry(path="c", size=2)]).to_text()))
def test_a_manifest(text: str) -> None:
    with contextlib.suppress(ManifestError):
        manifest = Manifest.from_text(text)
        assert all(not entry.path.startswith("/") and ".." not in entry.path.split("/") for entry in manifest.entries)


@settings(max_examples=EXAMPLES)
@given(text=json_of(REQUEST))
def test_request_to_the_nodes(text: str) -> None:
    with contextlib.suppress(SpecError):
        RemoteCommand.from_line(text.encode(errors="surrogateescape")).hosts(nodes_text(make_nodes(2)), print)


FACTS: Final[dict[str, Any]] = {
    "time": 1.0, "boot_id": "x", "free_bytes": 1, "shared_free_bytes": 1, "spec_sha256": "", "interface": "ens5",
    "versions": [["python", "3.12"]], "gpus": [], "efa_domains": None, "began": None,
}  # fmt: skip


@settings(max_examples=EXAMPLES)
@given(text=json_of(FACTS) | texts_like(json.dumps(FACTS)))
def test_facts_of_a_node(text: str) -> None:
    with contextlib.suppress(ValueError):
        NodeFacts.parse(f"banner\n{MARK}{text}\n")


@settings(max_examples=EXAMPLES)
@given(text=texts_like("0 1 5"))
def test_stuck_ranks_of_a_node(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    spec = make_spec(run_id="one", efs_mount=str(tmp_path_factory.mktemp("efs")))
    Path(spec.run_directory).mkdir(parents=True)
    Path(spec.run_directory, f"stalled-1-{spec.hosts[1].name}").write_text(text, errors="surrogateescape")
    named = failure.stuck_ranks(spec)
    assert named == "" or " on deeplearning-worker2 w" in named


@settings(max_examples=EXAMPLES)
@given(log=texts_like(LOG * 3) | repeated(LOG), status=st.integers(-70, 300))
def test_log_of_a_run(log: str, status: int) -> None:
    began = time.monotonic()
    assert failure.reason(SPEC, status, log)
    assert all(isinstance(run_messages.is_of_rank(line, 0), bool) for line in log.splitlines())
    assert time.monotonic() - began < 20


@settings(max_examples=EXAMPLES)
@given(output=texts_like(PROOF) | repeated(PROOF), status=st.integers(0, 1))
def test_output_of_the_pre_flight(output: str, status: int) -> None:
    began = time.monotonic()
    report = node_checks.judge_allreduce(PREFLIGHT_SPEC, PREFLIGHT_REPORT, status, output)
    assert len(json.dumps(report.to_document())) < 20_000
    assert all(isinstance(process.route + process.pair, str) for process in nccl_log.parse(output).values())
    assert time.monotonic() - began < 20


PREPARED: Final = prepare_node.Prepared(python="/opt/python3", runtime="/opt/runtime")


@settings(max_examples=EXAMPLES)
@given(text=json_of(dataclasses.asdict(PREPARED)) | texts_like(json.dumps(dataclasses.asdict(PREPARED))))
def test_preparation_result_of_a_node(text: str) -> None:
    with contextlib.suppress(ValueError):
        found = prepare_node.parse(f"banner\n{prepare_node.PREPARED}{text}\n")
        assert isinstance(found.python, str)
        assert isinstance(found.runtime, str)


BLOCKS: Final = st.binary(max_size=9).map(lambda block: block.replace(b"\x1b", b""))
"""Output without escape sequences."""


@settings(max_examples=EXAMPLES)
@given(
    blocks=st.lists(BLOCKS | st.sampled_from((b"\r", b"\n", b"\r\n", b"\b", b"x" * 50)), max_size=20),
    max_bytes=st.integers(1, 20),
)
def test_lines_of_a_rank_are_short_and_lose_no_byte(blocks: list[bytes], max_bytes: int) -> None:
    """A clock that is slow enough turns each state of a progress bar into a line."""
    lines = Lines(b"[0]:", max_bytes, itertools.count(0, BAR_S).__next__)
    found = [line for block in blocks for line in lines.feed(block)] + lines.end()
    texts = [line.removeprefix(b"[0]:").removesuffix(b"\n") for line in found]
    assert all(line.startswith(b"[0]:") and line.endswith(b"\n") for line in found)
    assert all(len(text) <= max_bytes and b"\n" not in text for text in texts)
    assert shown(b"".join(texts)) == shown(b"".join(blocks))


def shown(output: bytes) -> bytes:
    """Return an output without cursor movements."""
    return output.translate(None, b"\r\n\b\t ")


EVENTS: Final[list[dict[str, Any]]] = [
    {"event": "start", "time": 1.0, "steps_per_epoch": 10, "resumed_from": None},
    {"event": "step", "time": 2.0, "epoch": 1, "step": 5, "steps_per_epoch": 10},
    {"event": "epoch", "time": 3.0, "epoch": 1, "total_steps": 10},
    {"event": "straggler", "rank": 0, "host": "deeplearning-worker1", "is_over": False},
    {"event": "start", "time": 5.0, "steps_per_epoch": 10, "resumed_from": "checkpoints/step-00000010"},
]


@settings(max_examples=EXAMPLES)
@given(events=spoilt(EVENTS), restarts=spoilt([{"time": 4.0, "for": "a node"}]), cut=st.integers(0, 1000))
def test_metrics_of_a_run_with_restarts(
    tmp_path_factory: pytest.TempPathFactory, events: Any, restarts: Any, cut: int
) -> None:
    lines = [encoded(event) for event in (events if isinstance(events, list) else [events])]
    text = "\n".join(lines) + "\n"
    runs = runs_with(
        tmp_path_factory.mktemp("efs"),
        metrics_jsonl=text[: len(text) - cut % len(text)],
        course_json=encoded({"times": {}, "restarts": restarts}),
    )
    document = run_record.record(runs["one"])
    json.dumps(document)
    assert isinstance(document["restart_costs"], list)
