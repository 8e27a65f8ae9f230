"""The master's answers: a malformed one always ends in an error that names it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import DeepcdkError
from cluster.master_answers import REMEDY, AnswerError, parse
from cluster.runs.progress_display import describe_end
from cluster.runs.run_progress import RunProgress, parse_message, reduce
from cluster.runs.run_tables import record_table, runs_table
from cluster.runs.supervisor_client import Supervisor
from cluster.ssh.master import Completed
from cluster.terminal.tables import plain_lines
from tests.cluster.runs.test_supervisor_client import AnsweringMaster, answer
from tests.factories import make_stack

SUMMARY: dict[str, Any] = {
    "run_id": "one", "state": "failed", "reason": "status 1", "started": 1.0, "updated": 2.5, "hosts": ["w1"],
    "last_lines": ["a"], "position": None, "epoch": {"epoch": 2, "test_accuracy": 0.9}, "last": None, "exit_code": 1,
}  # fmt: skip
SPEC: dict[str, Any] = {
    "run_id": "one", "efs_mount": "/mnt/efs", "payload": "0" * 16, "command": ["-m", "payload.train"],
    "hosts": [{"name": "deeplearning-worker1", "address": "10.0.1.1", "instance_id": "i-1", "slots": 1}],
    "launcher": [], "secrets": [], "git_commit": "0123", "program": "",
}  # fmt: skip
RECORD: dict[str, Any] = {
    "run_id": "one", "directory": "/mnt/efs/runs/one", "state": SUMMARY, "spec": SPEC,
    "origin": {"diff_bytes": 3, "template_sha256": "00"}, "launch": {"command": ["horovodrun"]},
    "course": {"archive": "s3://b/runs/one", "trouble": ""}, "result": {"test_accuracy": 0.9, "finished": 3.0},
    "usd": 0.5, "spot": {"hosts": 1, "usd": 0.2, "prices_of": ""},
    "checkpoints": ["step-1"], "attempts": 2, "files": 3, "bytes": 4,
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "status": SUMMARY,
    "show": RECORD,
    "stop": {"run_id": "one", "state": "stopped", "was_live": True},
    "remove": {"run_id": "one", "files": 1, "bytes": 2},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("./.."),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)


def ask(said: Completed, verb: str, run_id: str) -> Any:
    caller = Supervisor(AnsweringMaster(said), make_stack(), "/x")
    if verb == "stop":
        return caller.stop(run_id, 30)
    return {"status": caller.status, "show": caller.show, "remove": caller.remove}[verb](run_id)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value within a document."""
    below = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for key, value in below for place in places(value, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    spoilt = copy.deepcopy(document)
    part = spoilt
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return spoilt


@pytest.mark.parametrize("verb", ANSWERS)
def test_invalid_run_id_is_rejected_with_name_of_master(verb: str) -> None:
    done = "the master may have run the command anyway: check with `fab runs`; "
    for bad in ("./..", "../fabfile.py", "", "-rf", "a\x1b[2J", "a/b", 7, None, ["one"]):
        with pytest.raises(AnswerError, match=f"the master's answer to `{verb}` is invalid: run_id") as caught:
            ask(answer({**ANSWERS[verb], "run_id": bad}), verb, "")
        assert caught.value.where == "ec2-user@198.18.1.2"
        assert caught.value.remedy == (done if verb in ("stop", "remove") else "") + REMEDY
        assert ascii(bad) in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize("verb", ANSWERS)
def test_answer_about_another_run_is_rejected(verb: str) -> None:
    with pytest.raises(AnswerError, match="it is about another run than two\n  answer: 'one'"):
        ask(answer(ANSWERS[verb]), verb, "two")
    assert ask(answer(ANSWERS[verb]), verb, "one") == ANSWERS[verb]
    assert ask(answer(ANSWERS[verb]), verb, "") == ANSWERS[verb] or verb == "remove"


def test_record_is_of_one_run() -> None:
    for part in ("state", "spec"):
        spoilt = put(RECORD, (part, "run_id"), "two")
        with pytest.raises(AnswerError, match=f"{part} belongs to another run"):
            ask(answer(spoilt), "show", "one")


@settings(max_examples=600)
@given(place=st.sampled_from([(verb, path) for verb in ANSWERS for path in places(ANSWERS[verb])]), value=JSON)
def test_any_value_in_an_answer_is_shown_or_rejected(place: tuple[str, tuple[Any, ...]], value: Any) -> None:
    verb, path = place
    spoilt = put(ANSWERS[verb], path, value)
    try:
        taken = ask(answer(spoilt), verb, "")
    except DeepcdkError as error:
        assert error.where == "ec2-user@198.18.1.2"
        return
    if verb == "show":
        list(plain_lines(record_table(taken)))
    if verb == "status":
        list(plain_lines(runs_table([taken])))


@given(value=JSON)
def test_rejection_must_name_a_run(value: Any) -> None:
    with pytest.raises(DeepcdkError):
        ask(answer(value, status=3), "status", "")
    with pytest.raises(AnswerError, match="live must be a run's id"):
        ask(answer({"live": "\x1b]0;x\x07", "state": "live"}, status=3), "status", "")


@pytest.mark.parametrize("text", ["Welcome", "", "1" * 400, "[" * 100_000, '{"run_id": ' + "9" * 19 + "}"])
def test_invalid_json_is_rejected_with_a_short_message(text: str) -> None:
    with pytest.raises(AnswerError, match="it is not JSON") as caught:
        ask(Completed(status=0, stdout=text.encode(), stderr=""), "status", "")
    assert len(str(caught.value)) < 1200


@given(value=JSON)
def test_numbers_strings_and_lists_are_parsed_strictly(value: Any) -> None:
    text = json.dumps(value)
    try:
        assert json.dumps(parse(text)) == text
    except ValueError as error:
        assert "18 digits" in str(error)


MESSAGES: list[dict[str, Any]] = [
    {**SUMMARY, "type": "state"},
    {"type": "heartbeat", "time": 3.0},
    {"type": "log", "run_id": "one", "next": 2, "lines": ["x"]},
    {"type": "metric", "line": 1, "record": {"event": "start", "epochs": 2, "steps_per_epoch": 3, "ranks": 1}},
    {"type": "metric", "line": 2, "record": {"event": "step", "epoch": 1, "step": 2, "loss": 0.5, "eta_s": 2.0}},
    {"type": "metric", "line": 3, "record": {"event": "epoch", "epoch": 1, "train_loss": 0.5, "weights_agree": True}},
    {"type": "preflight", "lines": ["well"]},
]


@settings(max_examples=300)
@given(place=st.sampled_from([(each, path) for each in MESSAGES for path in places(each)]), value=JSON)
def test_any_value_in_a_message_of_a_followed_run_is_shown_or_rejected(place: tuple[Any, Any], value: Any) -> None:
    message, path = place
    from cluster.runs.progress_display import PlainDisplay

    said = parse_message(json.dumps(put(message, path, value)))
    if said is None:
        return
    shown: list[str] = []
    display = PlainDisplay(lambda *lines: shown.extend(lines), usd_per_hour=1.0)
    progress = RunProgress(run_id="one", epochs=2, steps_per_epoch=3)
    try:
        progress = reduce(progress, said)
    except AnswerError:
        return
    display.show(progress, said)
    text, _ = describe_end(progress, 1.0)
    assert "run one" in text


@pytest.mark.parametrize("bad", ["two", "./..", "one\x1b[2J", 1])
def test_followed_run_must_be_the_requested_one(bad: object) -> None:
    with pytest.raises(AnswerError, match="`follow` is invalid"):
        reduce(RunProgress(run_id="one"), {**SUMMARY, "type": "state", "run_id": bad})
