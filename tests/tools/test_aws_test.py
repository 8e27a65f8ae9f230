"""Facts about `make test-aws`: it spends nothing without confirmation, and it cleans up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.errors import DeepcdkError
from tools import aws_test


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace AWS and the commands; return the names of what is called."""
    called: list[str] = []
    identity = {"Account": "111122223333", "Arn": "arn:aws:iam::111122223333:user/me"}
    client = SimpleNamespace(get_caller_identity=lambda: identity)
    aws = SimpleNamespace(region="eu-west-1", client=lambda _: client)
    monkeypatch.setattr(aws_test, "Session", lambda *_, **__: SimpleNamespace(aws=aws))
    monkeypatch.setattr(aws_test, "describe_deployment", lambda _: "a small cluster, $1.00/h")

    def run(command: list[str], **_: object) -> SimpleNamespace:
        called.append(command[2])
        return SimpleNamespace(returncode=0)

    def destroy(*_: object) -> bool:
        called.append("destroy")
        return True

    monkeypatch.setattr("tools.aws_test.subprocess.run", run)
    monkeypatch.setattr(aws_test, "destroy", destroy)
    return called


def test_without_a_terminal_and_yes_nothing_is_started(started: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert aws_test.main([]) == 1
    said = capsys.readouterr()
    assert "$1.00/h" in said.out and "account 111122223333" in said.out
    assert "there is no terminal to ask on" in said.err
    assert started == []


def test_another_answer_than_the_name_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(DeepcdkError, match="Aborted"):
        aws_test.confirm("deepcdk-test-0a1b", yes=False, ask=lambda _: "yes")
    aws_test.confirm("deepcdk-test-0a1b", yes=False, ask=lambda _: "deepcdk-test-0a1b\n")


def test_the_cluster_is_destroyed_after_the_tests_and_after_ctrl_c(
    started: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert aws_test.main(["--yes", "--into", str(tmp_path)]) == 0
    assert started == ["pytest", "destroy"]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tools.aws_test.subprocess.run", interrupted)
    assert aws_test.main(["--yes", "--into", str(tmp_path)]) == 130
    assert started == ["pytest", "destroy", "destroy"]
