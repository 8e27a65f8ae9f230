"""The exchange with the master: each request gets its answer, and its end is reported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import pytest

from agent.staging.upload_stream import SourceChangedError
from cluster.errors import DeepcdkError, RemoteError
from cluster.ssh.master import SilenceError
from cluster.staging.connection import StagingConnection
from cluster.staging.node_reports import StagingError


class Answering:
    """Replace the master: give the answer that each line asks for."""

    where = "here"

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def lines(self, argv: Sequence[str], *, directory: str, silence_s: float, feed: Iterable[bytes]) -> Iterator[str]:
        for block in feed:
            self.heard.append(block)
            asked = json.loads(block) if block.startswith(b"{") else {}
            if "fail" in asked:
                raise RemoteError("failed", status=1, output="Traceback")
            if "answer" in asked:
                yield '{"alive": true}'
                yield json.dumps(asked["answer"])
        yield from ()


def talk(master: Answering) -> StagingConnection:
    return StagingConnection(master, ["serve"], "/tree")  # type: ignore[arg-type]  # stands in for the master


def test_requests_are_answered_in_order() -> None:
    master = Answering()
    with talk(master) as dialogue:
        assert dialogue.request({"answer": {"done": {"found": 1}}}, (b"one", b"two")) == {"found": 1}
        assert dialogue.request({"answer": {"done": {"found": 2}}}) == {"found": 2}
    assert master.heard[1:3] == [b"one", b"two"]


def test_error_of_master_is_raised() -> None:
    with talk(Answering()) as dialogue, pytest.raises(StagingError, match="no room") as caught:
        dialogue.request({"answer": {"error": "no room", "kind": "full"}})
    assert caught.value.kind == "full"


def test_stream_ending_without_message_is_reported() -> None:
    with talk(Answering()) as dialogue, pytest.raises(RemoteError, match="staging failed on the master"):
        dialogue.request({"fail": True})
    dialogue = talk(Answering())
    dialogue.__exit__()
    with pytest.raises(SilenceError, match="closed the connection"):
        dialogue.request({"answer": {"done": {}}})


def test_silent_master_is_reported_after_twice_the_time_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.staging.connection.SILENCE_S", 0.05)
    with talk(Answering()) as dialogue, pytest.raises(SilenceError, match=r"nothing was received for 0\.1 s"):
        dialogue.request({"no": "answer"})


def test_file_changed_during_transfer_is_reported_with_fix() -> None:
    def brings() -> Iterator[bytes]:
        yield b"one"
        raise SourceChangedError("f: has another size")

    class Broken(Answering):
        def lines(
            self, argv: Sequence[str], *, directory: str, silence_s: float, feed: Iterable[bytes]
        ) -> Iterator[str]:
            list(feed)
            yield '{"error": "the connection ended", "kind": "broken off"}'

    with talk(Broken()) as dialogue, pytest.raises(DeepcdkError, match="another size") as caught:
        dialogue.request({"receive": []}, brings())
    assert "when the files are readable and no longer change" in caught.value.remedy
