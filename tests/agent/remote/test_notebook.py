"""A notebook on a node: its token is on no command line, and it exits together with the task that started it."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings

from agent.environment.install_step import RuntimeSetupError
from agent.remote import notebook
from agent.remote.notebook import NotebookError, forwarding, free_port, serve
from agent.spec.laptop_requests import NotebookRequest
from tests.words import WORDS

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.endswith("token=" + os.environ["JUPYTER_TOKEN"]) else 403)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
NOTEBOOK = """
import sys
from agent.remote.notebook import serve
sys.exit(serve(sys.argv[1:], int(sys.argv[-1]), asker=0))
"""


def test_notebook_stops_with_its_user_and_hides_its_token() -> None:
    port = free_port()
    command = [sys.executable, "-c", NOTEBOOK, sys.executable, "-c", SERVER, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline()
        address = re.fullmatch(rf"http://127\.0\.0\.1:{port}/lab\?token=(\S{{32}})\n", said)
        assert address, said
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(said.strip()) as answer:
            assert answer.status == 200
        token = address[1].encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # Processes may exit in the meantime.
                assert token not in path.read_bytes()
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert not notebook._listens(port)


def test_server_that_never_listens_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "START_S", 0.0)
    with pytest.raises(NotebookError, match="did not start listening"):
        serve([sys.executable, "-c", "import time; time.sleep(600)"], free_port(), asker=None)


def test_same_port_is_forwarded_to_another_node() -> None:
    request = NotebookRequest(node="deeplearning-worker2", efs_mount="/mnt/efs", tree="/mnt/efs/t", port=8900)
    command = forwarding("/p/ssh", "/mnt/efs/a b", request)
    assert command[:6] == [
        "/p/ssh", "-o", "ExitOnForwardFailure=yes", "-L", "127.0.0.1:8900:127.0.0.1:8900", "deeplearning-worker2",
    ]  # fmt: skip
    assert command[6].startswith("cd '/mnt/efs/a b' && exec ")
    assert command[6].endswith(f"'{request.to_json()}'")


def test_packages_that_cannot_be_installed_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def fail(*_: object) -> Path:
        raise RuntimeSetupError("Downloading the packages of the runtime failed")

    monkeypatch.setattr("agent.environment.runtime.ensure", fail)
    request = NotebookRequest(node="deeplearning-master", efs_mount=str(tmp_path), tree=str(tmp_path))
    assert notebook.main([request.to_json()]) == 1
    assert "Downloading the packages of the runtime failed" in capsys.readouterr().err


def test_jupyterlab_comes_from_the_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = mock.Mock()
    monkeypatch.setattr("agent.environment.runtime.ensure", lambda *_: tmp_path)
    monkeypatch.setattr(notebook, "Overlay", locked)
    request = NotebookRequest(node="deeplearning-master", efs_mount=str(tmp_path), tree=str(tmp_path))
    (tmp_path / "environment.txt").write_text("jupyterlab==4.9\n")
    notebook.make_python(request, tmp_path)
    given = locked.call_args.kwargs
    assert (given["program"], given["lock"]) == (tmp_path / "program", "jupyterlab==4.9\n")


@settings(max_examples=20)
@given(directory=WORDS)
def test_shell_of_another_node_passes_request_unchanged(directory: str) -> None:
    asked = NotebookRequest(node="deeplearning-worker1", efs_mount="/mnt/efs", tree=directory)
    *_, line = forwarding("ssh", directory, asked)
    *_, here, text = words = shlex.split(line)
    assert (words[1], here, NotebookRequest(**json.loads(text))) == (directory, "--here", asked)
