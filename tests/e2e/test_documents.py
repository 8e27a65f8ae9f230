"""With --json, a task prints one document with documented keys to standard output."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually

RUN = {"run_id", "state", "reason", "position", "seconds", "test_accuracy", "usd", "bound"}
DOCUMENTS = (
    (("up", "--yes", "--json"), {"stack", "unchanged", "changes", "status"}),
    (("push", "--json"), {"name", "directory", "uploaded_bytes", "files", "bytes", "seconds"}),
    (
        ("replace", "worker2", "--yes", "--json"),
        {"node", "instance", "new_node", "new_instance", "seconds", "stopped_run"},
    ),
    (("train", "--dry-run", "--json"), {"dry_run"}),
    (("attach", "RUN", "--json"), RUN),
    (("stop", "RUN", "--json"), {"run_id", "state", "was_live"}),
    (("show", "RUN", "--json"), {"run_id", "state", "spec", "result", "checkpoints", "files", "bytes"}),
    (("fetch", "RUN", "--json"), {"run_id", "directory", "files", "bytes"}),
    (("report", "RUN", "--format", "html,md,json", "--json"), {"reports"}),
)


@pytest.fixture(scope="module")
def run_id(cluster: EmbeddedCloud) -> Iterator[str]:
    """Train briefly and check the document of `fab train`; at the end, check that of `fab rm`."""
    document = json.loads(cluster.fab("train", "--epochs", "1", "--skip-preflight", "--yes", "--json").stdout)
    assert (set(document), document["state"]) == (RUN, "succeeded")
    run_id = str(document["run_id"])
    yield run_id
    removed = json.loads(cluster.fab("rm", run_id, "--yes", "--json").stdout)
    assert (set(removed), removed["run_id"]) == ({"run_id", "files", "bytes"}, run_id)


@pytest.mark.parametrize(("words", "keys"), DOCUMENTS, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_output_is_one_document_with_these_keys(
    cluster: EmbeddedCloud, run_id: str, words: tuple[str, ...], keys: set[str], tmp_path: Path
) -> None:
    into = ("--into", f"{tmp_path}/") if words[0] in ("fetch", "report") else ()
    done = cluster.fab(*(run_id if word == "RUN" else word for word in words), *into)
    document = json.loads(done.stdout)
    assert set(document) >= keys
    written = [Path(file) for report in document.get("reports", ()) for file in report["files"].values()]
    assert all(run_id in file.read_text() for file in written)
    assert len(written) == (3 if words[0] == "report" else 0)


def test_runs_are_a_list_of_documents(cluster: EmbeddedCloud, run_id: str) -> None:
    listed = json.loads(cluster.fab("runs", "--json").stdout)
    assert run_id in [run["run_id"] for run in listed]
    assert all({"run_id", "state", "hosts", "started", "updated"} <= set(run) for run in listed)


STAND_IN = """
import http.server, os, sys
port = next(int(word.rpartition("=")[2]) for word in sys.argv if word.startswith("--ServerApp.port="))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        import horovod
        self.send_response(200 if self.path.endswith("token=" + os.environ["JUPYTER_TOKEN"]) else 403)
        self.end_headers()
        self.wfile.write(os.uname().nodename.encode())
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
"""Replaces JupyterLab, because the embedded cloud's hosts cannot reach its packages."""


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a package with JupyterLab's name, as a wheel next to its requirements."""
    root = tmp_path_factory.mktemp("notebook")
    (root / "wheels").mkdir()
    with zipfile.ZipFile(root / "wheels" / "jupyterlab-4.9-py3-none-any.whl", "w") as archive:
        archive.writestr("jupyterlab.py", STAND_IN)
        archive.writestr("jupyterlab-4.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: jupyterlab\nVersion: 4.9\n")
        wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("jupyterlab-4.9.dist-info/WHEEL", wheel)
        archive.writestr("jupyterlab-4.9.dist-info/RECORD", "")
    (root / "requirements.txt").write_text("--no-index\n--find-links wheels\njupyterlab\n")
    return root / "requirements.txt"


def test_notebook_on_worker_is_reached_through_tunnel_until_ctrl_c(cluster: EmbeddedCloud, requirements: Path) -> None:
    task = ("fab", "notebook", "worker1", "--requirements", str(requirements), "--no-browser")
    serving = subprocess.Popen(
        demo.localcloud("run", "--name", cluster.name, "--", *task, *demo.settings(2)),
        cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        lines: list[str] = []
        while not (found := re.search(r"http://localhost:\S+/lab\?token=(\S+)", (lines or [""])[-1])):
            lines.append(serving.stdout.readline())
            assert lines[-1], "".join(lines)
        look = ("python3", "-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())")
        seen = cluster.laptop(*look, found[0]).stdout.strip()
        assert seen in [i["PrivateDnsName"].split(".")[0] for i in cluster.instances("worker")]
        shown = cluster.laptop("fab", "run", *demo.settings(2), "--", "ps", "axww", "-o", "args").stdout
        assert "-m jupyterlab" in shown
        assert found[1] not in shown
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(timeout=PATIENCE_S)
    assert serving.returncode == 0
    gone = ("fab", "run", *demo.settings(2), "--", "pgrep", "-f", "^.*python -m jupyterlab")
    eventually(lambda: cluster.laptop(*gone, check=False).stdout == "")
