"""A user program on the deployed cluster: its arguments, variables, secrets, packages and files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from cluster.ssh.fetch import stored_name
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually
from tests.words import LONG, NASTIEST

TEXTS = tuple(word for word in NASTIEST if "\udcff" not in word)
"""A program's arguments: each is passed on as text or rejected."""
SECRET = f"swordfish-7c41 {''.join(TEXTS)}"
VALUE = f"hello {''.join(TEXTS)}"
WORDS = ("--name", "two words", "$(touch /tmp/evaluated)", *TEXTS, LONG)
NAMES = {name for name in NASTIEST if name and not set(name) & set("/.")}
"""File names, including bytes that are not UTF-8."""
PROGRAM = """\
import contextlib, glob, json, os, sys
import tensorflow as tf
import horovod.tensorflow as hvd
import toy

hvd.init()
total = hvd.allreduce(tf.constant([hvd.rank() + 1.0]), op=hvd.Sum)
lines = []
for name in glob.glob("/proc/[0-9]*/cmdline"):
    with contextlib.suppress(OSError):  # the process exited
        lines.append(open(name, "rb").read().decode(errors="replace"))
with open(f"rank-{hvd.rank()}.json", "w") as file:
    json.dump({
        "words": sys.argv[1:], "value": os.environ["GREETING"], "secret": os.environ["TOKEN"], "sum": float(total[0]),
        "files": sorted(os.listdir("odd")), "size": hvd.size(), "toy": toy.ANSWER, "keras": tf.keras.__version__,
        "on_command_lines": sum(os.environ[name] in line for name in ("TOKEN", "GREETING") for line in lines),
    }, file)
print("rank", hvd.rank(), "is done", flush=True)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a program and a package as a wheel next to it: the hosts cannot reach a package index."""
    root = tmp_path_factory.mktemp("project") / "-rf $(id) 'q' \"ü\" %s"
    (root / "wheels").mkdir(parents=True)
    with zipfile.ZipFile(root / "wheels" / "toy-1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("toy.py", "ANSWER = 42\n")
        metadata = "Metadata-Version: 2.1\nName: toy\nVersion: 1.2\nRequires-Dist: tensorflow>=2.4\n"
        archive.writestr("toy-1.2.dist-info/METADATA", metadata)
        archive.writestr("toy-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("toy-1.2.dist-info/RECORD", "")
    (root / "requirements.txt").write_text("--no-index\n--find-links wheels\ntoy>=1\ntensorflow\nhorovod\n")
    (root / "train.py").write_text(PROGRAM)
    (root / "token").write_text(f"{SECRET}\n")
    (root / "odd").mkdir()
    for name in NAMES:
        (root / "odd" / name).touch()
    return root


def launch(cloud: EmbeddedCloud, project: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """Launch the program on two nodes; return the output and the run's record."""
    arguments = ["--payload", str(project), "--entry", "train.py", "--ranks-per-node", "cores"]
    # The cluster's settings come before the dashes: all words after them belong to the program.
    told = cloud.laptop("fab", "train", "--nodes", "2", "--yes", *demo.settings(2), *arguments, *words)
    return told.stdout, json.loads(cloud.fab("show", "--json").stdout)


@pytest.fixture(scope="module")
def done(cluster: EmbeddedCloud, project: Path) -> Iterator[tuple[EmbeddedCloud, str, dict[str, Any], Path]]:
    secret = ["--secret", f"TOKEN=@{project / 'token'}"]
    output, record = launch(cluster, project, "--env", f"GREETING={VALUE}", *secret, "--", *WORDS)
    cluster.fab("fetch", "--run", record["run_id"])
    yield cluster, output, record, demo.ROOT / "runs" / record["run_id"]
    cluster.fab("rm", "--run", record["run_id"], "--yes")


def test_every_rank_gets_words_and_values_unchanged_and_no_command_line_shows_them(done: Any) -> None:
    cloud, _, record, directory = done
    ranks = sum(host["slots"] for host in record["spec"]["hosts"])
    told = [json.loads((directory / "work" / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    for rank in told:
        assert (rank["words"], rank["value"], rank["secret"]) == (list(WORDS), VALUE, SECRET)
        assert (rank["on_command_lines"], rank["toy"], rank["size"]) == (0, 42, ranks)
        assert rank["sum"] == ranks * (ranks + 1) / 2
        assert rank["keras"].startswith("3.")
        assert set(rank["files"]) == NAMES
    assert {path.name for path in (directory / "work" / "odd").iterdir()} == set(map(stored_name, NAMES))
    for node in (*cloud.instances("master"), *cloud.instances("worker")):
        looked = cloud.on(node["InstanceId"], "ls", "/tmp/evaluated", check=False)
        assert looked.returncode != 0


def test_run_is_followed_by_its_output(done: Any) -> None:
    _, output, _, _ = done
    assert "[0]<stdout>:rank 0 is done" in output
    assert " succeeded after " in output


def test_record_has_exact_command_and_only_names_of_secrets(done: Any) -> None:
    _, output, record, directory = done
    assert record["launch"]["command"][1:3] == ["-m", "agent.launch.horovodrun"]
    assert record["launch"]["rank_command"][1:] == ["train.py", *WORDS]
    assert record["spec"]["secrets"] == ["TOKEN"]
    assert "swordfish" not in json.dumps(record) + output
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(("rank-", "token"))]
    assert not [path for path in files if b"swordfish" in path.read_bytes()]


def test_no_secret_stays_on_a_node(done: Any) -> None:
    cloud, _, record, _ = done
    homes = ("/home/ec2-user", "/home/deepcdk-rank/files")
    folders = [f"{home}/.cache/deepcdk/{name}" for home in homes for name in ("secrets", "taken")]
    nodes = [node["InstanceId"] for node in (*cloud.instances("master"), *cloud.instances("worker"))]

    def left() -> str:
        find = ("find", *folders, "-type", "f", "-name", f"{record['run_id']}*")
        return "".join(cloud.on(node, *find, check=False).stdout for node in nodes)

    # The supervisor removes them after it has reported the end of the run.
    eventually(lambda: not left(), 60.0, left)


def test_unused_files_are_listed_and_removed(done: Any, tmp_path: Path) -> None:
    """Source: ray-project/ray #55898 and Netflix/metaflow #1741."""
    cluster, _, record, _ = done
    (tmp_path / "logs" / "empty").mkdir(parents=True)
    (tmp_path / ".project-root").touch()
    (tmp_path / ".env").write_text("PASSWORD=x\n")
    (tmp_path / "link").symlink_to("logs")
    (tmp_path / "data.bin").write_bytes(b"x" * 1_000_000)
    pushed = cluster.fab("push", "--payload", str(tmp_path), "--json", "--yes")
    assert "not uploaded, because it may contain passwords or keys: .env" in pushed.stderr
    where = json.loads(pushed.stdout)["directory"]
    find = ("find", where, "-printf", "%P %l;")
    listed = cluster.laptop("fab", "run", "--master", *demo.settings(2), "--", *find).stdout
    assert {"program/logs/empty ", "program/.project-root ", "program/link logs"} <= {*listed.split(";")}
    assert ".env" not in listed
    cluster.fab("stage-data", str(tmp_path / "data.bin"), "--to", "local", "--name", "unneeded", "--yes")
    status = cluster.fab("status").stdout
    assert "uploads on the shared file system: " in status and "`fab clean` frees " in status
    found = {
        (each["place"], each["path"])
        for each in json.loads(cluster.fab("clean", "--dry-run", "--json").stdout)["unused"]
    }
    data = {(f"deeplearning-worker{n}", "/home/deepcdk-rank/files/data/unneeded") for n in (1, 2)}
    assert {("shared file system", where), *data} <= found
    spec = json.dumps(record)
    assert not any(Path(path).name in spec for _, path in found if Path(path).name != "unneeded")
    refused = cluster.fab("clean", check=False)
    assert (refused.returncode, "give --yes" in refused.stderr) == (1, True)
    removed = json.loads(cluster.fab("clean", "--json", "--yes").stdout)["removed"]
    assert {(each["place"], each["path"]) for each in removed} == found
    assert cluster.fab("clean").stdout == "nothing to remove\n"


def test_requirements_without_an_index_fail_before_anything_starts(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import toy\n")
    (tmp_path / "requirements.txt").write_text("toy\n")
    entry = ["--payload", str(tmp_path), "--entry", "train.py"]
    failed = cluster.fab("train", "--nodes", "1", "--skip-preflight", "--yes", *entry, check=False)
    assert (failed.returncode, "this machine cannot download from " in failed.stderr) == (1, True), failed.stderr


def test_resumed_program_continues_in_its_directory(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\nseen = os.path.exists('seen')\nopen('seen', 'w').close()\nsys.exit(0 if seen else 3)\n"
    )
    entry = ["--payload", str(tmp_path), "--entry", "train.py"]
    failed = cluster.fab("train", "--nodes", "1", "--skip-preflight", "--yes", *entry, check=False)
    assert (failed.returncode, "failed after" in failed.stderr) == (1, True)
    resumed = cluster.fab("resume", "--skip-preflight", "--yes").stdout
    assert "continues in its directory" in resumed
    assert " succeeded after " in resumed
