"""Errors: each has a message, a place and a fix, and inherits the matching builtin."""

from __future__ import annotations

import errno

import pytest

from cluster.errors import (
    DeepcdkError,
    LiveRunError,
    NotReadyError,
    RemoteError,
    SystemRefusedError,
    UsageError,
)


def test_message_has_a_line_each_for_what_where_and_fix() -> None:
    assert str(DeepcdkError("it broke", where="here", remedy="mend it")) == "it broke\n  where: here\n  do: mend it"
    assert str(DeepcdkError("it broke")) == "it broke"


def test_errors_carry_their_data() -> None:
    assert UsageError("--nodes", 0, "must be 1 or more").value == 0
    assert str(UsageError("--nodes", None, "is missing")) == "--nodes: is missing"
    assert RemoteError("failed", status=28, output="no space left\n").status == 28
    told = str(RemoteError("failed", status=28, output="no space left\n"))
    assert told == "failed\nno space left\n  do: fix the cause that this output shows, then repeat the command"
    assert str(RemoteError("failed", status=28, output="")) == "failed\n  do: repeat the command"
    assert RemoteError("failed", status=28, output="", remedy="wait").reworded("broke").remedy == "wait"
    assert LiveRunError("one").run_id == "one"
    wait = "wait for its end (watch it with `fab attach --run one`), or stop it with `fab stop --run one`; then repeat"
    assert str(LiveRunError("one")) == f"run one is live\n  do: {wait} the command"
    assert str(LiveRunError("one", hosts={"one": ["a"]})) == f"run one is live on a\n  do: {wait} the command"
    assert "wait your turn with --queue, watch it" in str(LiveRunError("one", queued=True))
    assert str(LiveRunError("one", hosts={"one": ["a", "b"], "two": ["c"]}, size=5)) == (
        "run one is live on a, b; run two is live on c; too few nodes are free for another run\n"
        "  do: wait your turn with --queue, add nodes with `fab scale 5`, watch it with `fab attach --run one`, "
        "or stop it with `fab stop --run one`"
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EACCES, "Permission denied", "/a"), "/a: Permission denied\n  do: check this path, then repeat"),
        (OSError(errno.ENOSPC, "No space left", "/a"), "/a: No space left\n  do: free some space there, then repeat"),
        (OSError(errno.ENOSPC, "No space left"), "No space left\n  do: free some space, or write the output elsewhere"),
    ],
)
def test_system_error_has_a_fix_for_its_cause(error: OSError, message: str) -> None:
    assert message in str(SystemRefusedError(error))


def test_every_unready_node_shows_its_console() -> None:
    text = str(NotReadyError("1 of 2 nodes are ready", {"i-0aa": "booting\nmount failed"}, remedy="wait"))
    assert text.splitlines() == ["1 of 2 nodes are ready", "  i-0aa:", "    booting", "    mount failed", "  do: wait"]
