"""Facts about a notebook on a node: its token shows on no command line, and it ends with whoever asked for it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings

from agent.environment.virtual_environment import RuntimeSetupError
from agent.remote import notebook
from agent.remote.notebook import NotebookError, forwarding, free_port, serve
from agent.spec.remote_command import NotebookRequest
from tests.words import FILE_NAMES, WORDS

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.endswith("token=" + os.environ["JUPYTER_TOKEN"]) else 403)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
LOOK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status)"


def test_a_notebook_ends_with_whoever_asked_and_its_token_shows_on_no_command_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    port, said = free_port(), ""
    asker, hand = os.pipe()
    ended: list[int] = []
    thread = threading.Thread(
        target=lambda: ended.append(serve([sys.executable, "-c", SERVER, str(port)], port, asker=asker))
    )
    thread.start()
    while "token=" not in said and thread.is_alive():
        said += capfd.readouterr().out
    (url,) = re.findall(r"http://127\.0\.0\.1:[0-9]+/lab\?token=\S{32}", said)
    # Another process, for a proxy of this one's environment shall have no part in it.
    done = subprocess.run([sys.executable, "-c", LOOK, url], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "200"
    token = url.partition("token=")[2].encode()
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if token in line]
    os.close(hand)
    thread.join(timeout=60)
    os.close(asker)
    assert ended == [0]
    assert not notebook._listens(port)


def test_a_server_that_never_listens_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "START_S", 0.0)
    with pytest.raises(NotebookError, match="did not listen"):
        serve([sys.executable, "-c", "import time; time.sleep(600)"], free_port(), asker=None)


def test_on_another_node_the_same_port_is_led_there() -> None:
    request = NotebookRequest(node="deeplearning-worker2", efs_mount="/mnt/efs", port=8900)
    command = forwarding("/p/ssh", "/mnt/efs/a b", request)
    assert command[:6] == [
        "/p/ssh", "-o", "ExitOnForwardFailure=yes", "-L", "127.0.0.1:8900:127.0.0.1:8900", "deeplearning-worker2",
    ]  # fmt: skip
    assert command[6].startswith("cd '/mnt/efs/a b' && exec ")
    assert command[6].endswith(f"'{request.to_json()}'")


def test_packages_that_cannot_be_installed_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def fail(*options: str) -> Path:
        raise RuntimeSetupError("Bringing the packages of the runtime failed")

    monkeypatch.setattr("agent.environment.runtime.ensure", fail)
    request = NotebookRequest(node="deeplearning-master", efs_mount=str(tmp_path))
    assert notebook.main([request.to_json()]) == 1
    assert "Bringing the packages of the runtime failed" in capsys.readouterr().err


@settings(max_examples=20)
@given(directory=WORDS, requirements=FILE_NAMES)
def test_the_shell_of_another_node_hands_the_request_over_unchanged(directory: str, requirements: str) -> None:
    asked = NotebookRequest(
        node="deeplearning-worker1", efs_mount="/mnt/efs", program=directory, requirements=requirements
    )
    *_, line = forwarding("ssh", directory, asked)
    *_, here, text = words = shlex.split(line)
    assert (words[1], here, NotebookRequest(**json.loads(text))) == (directory, "--here", asked)
