"""Public reports about messages: problems are reported early and described correctly."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cluster.aws.errors import aws_errors
from cluster.cli import CODE
from cluster.deploy import bootstrap, change_set
from cluster.deploy.change_effects import change_table
from cluster.errors import AwsError, DeepcdkError, UsageError
from cluster.programs.user_program import Program
from cluster.runs.run_tables import record_table, result_table
from cluster.ssh.push import BrokenPackageError
from cluster.tasks import deploy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a program with scripts that nodes cannot start."""
    files = {
        "train.py": b"print()\n",
        "package/train.py": b"",
        "plain.sh": b"#!/bin/sh\ntrue\n",
        "windows.sh": b"#!/bin/bash\r\ntrue\r\n",
        "bare.sh": b"true\n",
        "bin/tool": b"\x7fELF and so on",
        "latin.py": b"import os\nimport re\n# caf\xe9\n",
    }
    for name, content in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o644 if name == "plain.sh" else 0o755)
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("", "must be the command of each rank"),
        ("'open", "cannot be split into words"),
        ("/etc/train.py", "is not a file in "),
        ("python train.py && python train.py", "has &&, which only a shell interprets"),
        ("python train.py; true", "has ;"),
        ("A=1 python train.py", "put `env` before it"),
        ("uv run train.py", "give only the command after `run`"),
        ("train.ipynb", "jupyter nbconvert --to script train.ipynb"),
        ("./plain.sh", "is not executable: `chmod \\+x"),
        ("./windows.sh --lr 3", "has Windows line ends"),
        ("bash windows.sh", "has Windows line ends"),
        ("./bare.sh", "must start with the line of its interpreter"),
        ("bare.sh", "is a file, not a command: give ./bare.sh"),
        ("./missing.sh", "is not a file in"),
        ("./package", "is not a file in"),
        ("python -u missing.py", "is not a file in"),
        ("-m nomod", "is neither in .* nor in the nodes' environment"),
        ("-m package.nomod", "has neither package/nomod.py nor package/nomod/__main__.py"),
        ("train.py --rank $RANK", r"has \$RANK, which only a shell interprets: give \{rank\}, sh -c"),
        ("train.py --n $(nproc)", "only a shell interprets"),
        ("train.py --n `nproc`", "only a shell interprets"),
        ("train.py > out.txt 2>&1", "has >, which only a shell interprets"),
        ("train.py 2>/dev/null", "has 2>/dev/null, which"),
        ("train.py &", "has &, which only a shell interprets"),
        ("python -u", "starts no program"),
        ("-m", "starts no program"),
        ("sh -c", "starts no program"),
        ("bash -c python train.py", r"runs only python: give bash -c 'python train\.py'"),
        ("sh -ec ./plain.sh 3", "runs only ./plain.sh: give sh -ec './plain.sh 3'"),
        ("ulimit -n 4096", "is a command of the shell"),
    ],
)
def test_entry_that_cannot_start_is_rejected_on_the_laptop(project: Path, entry: str, reason: str) -> None:
    """Such an entry failed only on the nodes, after they had been paid for."""
    with pytest.raises(UsageError, match=f"--entry.*{reason}"):
        Program.from_arguments(str(project), entry, ())


@pytest.mark.parametrize(
    "entry",
    [
        "sh plain.sh", "bash -c 'exit 0'", "bash -euc 'exit 0'", "bash -o pipefail -c true", "bin/tool", "sleep 7200",
        "-m tensorboard.main", "-m timeit", "-m package.train", "python -u train.py", "python -c 'print(1)'",
        "/opt/tool/run", "nvidia-smi", "python --version", "python -V", "bash --version", "sh -c 'exec \"$@\"' _ date",
        "bash -lc nvidia-smi",
    ],
)  # fmt: skip
def test_entry_that_can_start_is_accepted(project: Path, entry: str) -> None:
    """Commands on the nodes, scripts with a shell, and modules remain possible."""
    assert Program.from_arguments(str(project), entry, ()).entry


def test_entry_that_is_not_utf_8_is_rejected(project: Path) -> None:
    """compile() ignores invalid bytes in a comment."""
    with pytest.raises(BrokenPackageError, match=r"latin\.py: .*utf-?8"):
        Program.from_arguments(str(project), "latin.py", ())


def test_payload_that_is_a_file_is_rejected(project: Path) -> None:
    """The message was about --entry."""
    with pytest.raises(
        UsageError, match=r"--payload.*is a file; give its directory, .*project, and the command in --entry"
    ):
        Program.from_arguments(str(project / "train.py"), "train.py", ())


def test_module_of_the_requirements_is_accepted(project: Path) -> None:
    """A module of a required package is not in the program's directory."""
    (project / "requirements.txt").write_text("accelerate\n")
    assert Program.from_arguments(str(project), "-m accelerate.commands.launch train.py", ()).script is None


def test_module_in_src_is_rejected_with_working_entry(project: Path) -> None:
    """Projects with a src layout set PYTHONPATH on the laptop."""
    (project / "src" / "inner").mkdir(parents=True)
    (project / "src" / "inner" / "train.py").touch()
    with pytest.raises(UsageError, match=r"give 'env PYTHONPATH=src python -m inner\.train'"):
        Program.from_arguments(str(project), "-m inner.train", ())
    assert Program.from_arguments(str(project), "env PYTHONPATH=src python -m inner.train", ()).entry


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["./start.sh", "a b"], "./start.sh 'a b'"),
        (["sleep", "7200"], "sleep 7200"),
        (["train.py"], "python train.py"),
        (["python3", "train.py"], "python train.py"),
        (["-m", "package"], "python -m package"),
        ([], ""),
    ],
)
def test_show_prints_command_run_on_nodes(command: list[str], shown: str) -> None:
    """`fab show` printed `python ./start.sh`."""
    state = {"state": "succeeded", "started": 0, "updated": 1}
    record = {"run_id": "r", "state": state, "spec": {"command": command}, "checkpoints": [], "attempts": 1}
    table = record_table({**record, "directory": "/d", "files": 1, "bytes": 1})
    assert ("command", shown) in table.rows


def test_program_without_a_result_file_is_not_reported_as_missing_one(tmp_path: Path) -> None:
    """`fab fetch` of a successful program first printed "no result of ..."."""
    (tmp_path / "state.json").write_text('{"state": "succeeded", "reason": ""}')
    assert result_table(tmp_path).title == f"run {tmp_path.name}"
    (tmp_path / "result.json").write_text("[")
    assert result_table(tmp_path).title == f"no result of {tmp_path.name}"


def test_unknown_region_is_reported_with_its_setting() -> None:
    """A mistyped region caused an InternalFailure, or was blamed on the credentials."""
    text = "Credential should be scoped to a valid region: us-est-1"
    with pytest.raises(AwsError, match=r"(?s)unknown AWS region.*us-est-1.*AWS_REGION"), aws_errors("asking"):
        raise ClientError({"Error": {"Code": "SignatureDoesNotMatch", "Message": text}}, "DescribeStacks")


def test_plan_shows_change_of_only_outputs() -> None:
    """A new version of only the bootstrap printed an empty table."""
    assert change_table("deepcdk", ()).rows == (("changed", "outputs, parameters or metadata", "no resource changes"),)


@pytest.mark.parametrize(
    ("status", "action"),
    [
        ("DELETE_FAILED", r"(?s)was not destroyed completely.*\[Files\].*repeat `fab down`, then `fab up`"),
        ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback --stack-name deepcdk"),
        ("CREATE_COMPLETE", ""),
        ("UPDATE_ROLLBACK_COMPLETE", ""),
    ],
)
def test_up_of_unchangeable_stack_says_what_to_do(status: str, action: str) -> None:
    """After a failed `fab down`, `fab up` printed only CloudFormation's message."""
    reason = "The following resource(s) failed to delete: [Files]."
    with pytest.raises(DeepcdkError, match=action) if action else contextlib.nullcontext():
        change_set.check_changeable("deepcdk", {"StackStatus": status, "StackStatusReason": reason})


@pytest.mark.parametrize("there", [None, {"StackStatus": "CREATE_COMPLETE"}])
def test_plan_without_bootstrap_distinguishes_new_cluster(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, Any] | None
) -> None:
    """`fab up --plan` printed "new cluster" for a deployed cluster."""
    nothing = bootstrap.Bootstrap(
        names=bootstrap.Names(), account="1", region="r", version=None, bucket_exists=False, status=""
    )
    monkeypatch.setattr(bootstrap, "examine", lambda *_: nothing)
    session: Any = SimpleNamespace(config=SimpleNamespace(stack_name="deepcdk"), aws=SimpleNamespace(region="r"))
    with pytest.raises(DeepcdkError) as caught:
        deploy._show_plan(session, there, as_json=False, update_images=False)
    assert ("new cluster" in str(caught.value)) == (there is None)


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("{} recipes >/dev/full", 1, "deepcdk: the output cannot be written: No space left on device\n  do: "),
        ("{} status --help >/dev/full", 1, "deepcdk: the output cannot be written: No space left on device\n  do: "),
        ("{} recipes <&- >&-", 0, ""),
        ("HOME=/etc/passwd {} recipes", 1, "deepcdk: cannot use /etc/passwd/.fabric.yaml: Not a directory\n  do: "),
    ],
)
def test_unusable_streams_and_homes_cause_no_traceback(command: str, status: int, says: str) -> None:
    """A full disk, closed streams and a home that is a file caused tracebacks."""
    program = f"{sys.executable} -c 'from cluster.cli.program import make_program; make_program().run()'"
    done = subprocess.run(
        ["sh", "-c", command.format(program)], cwd=CODE, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr[: len(says)]) == (status, says), done.stderr
    assert "Traceback" not in done.stderr


def test_task_in_a_deleted_directory_reports_it(tmp_path: Path) -> None:
    """It ended with a traceback from pathlib."""
    command = [
        sys.executable,
        "-c",
        f"import os, sys; os.rmdir(os.getcwd()); sys.path.insert(0, {str(CODE)!r}); from tools import fab; fab.main()",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, "the current directory was deleted" in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr
