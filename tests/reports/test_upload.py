"""Public reports about uploads: which files of the user's directory are uploaded, and which are not."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from agent.environment.install_step import RuntimeSetupError
from agent.environment.virtual_environment import Installer
from agent.files.atomic_write import StorageError, describe_full_disk
from agent.supervisor.failure import full_disk_hint
from agent.supervisor.prepare_hosts import stage
from cluster.cli import PROJECT
from cluster.cli.task_modules import collection
from cluster.errors import DeepcdkError, RemoteError, UsageError
from cluster.programs.deepcdkignore import UploadError
from cluster.programs.environment_choice import wheels_tree
from cluster.programs.files_to_push import survey
from cluster.programs.large_upload import ASKED_FILES, describe_size, is_large
from cluster.programs.user_program import Program
from cluster.runs.provenance import read_diff
from cluster.session import Session
from cluster.ssh.push import pack, push
from cluster.ssh.transfer_on_master import EntryError, unpack, unpack_as
from cluster.staging.node_reports import REMEDIES
from tests.factories import make_nodes, make_program_spec

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    write(root, "train.py", "print('done')\n")
    return root


def write(root: Path, name: str, text: str = "x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def files(root: Path) -> set[str]:
    return {str(name) for name in survey(root).files}


def unpacked(root: Path, into: Path) -> Path:
    program = Program(directory=root, entry=("true",))
    assert unpack_as(into, program.tree().archive) == 0
    return into / "program"


@pytest.mark.parametrize("with_git", [True, False])
def test_hidden_files_and_empty_directories_are_uploaded(project: Path, tmp_path: Path, with_git: bool) -> None:
    """Source: Netflix/metaflow #1741."""
    write(project, "logs/.gitkeep", "")
    write(project, ".project-root", "")
    write(project, ".streamlit/config.toml")
    (project / "empty" / "below").mkdir(parents=True)
    if with_git:
        git(project, "init")
    found = unpacked(project, tmp_path / "into")
    names = {str(path.relative_to(found)) for path in found.rglob("*")}
    expected = {"train.py", "logs", "logs/.gitkeep", ".project-root", ".streamlit", ".streamlit/config.toml"}
    assert names == expected | {"empty", "empty/below"}


def test_files_ignored_by_git_are_not_uploaded(project: Path) -> None:
    """Source: skypilot-org/skypilot #225."""
    git(project, "init")
    write(project, ".gitignore", "/data\n*.ckpt\n/old/\n")
    write(project, "package/.gitignore", "*.tmp\n")
    for name in ("data/images.bin", "a.ckpt", "package/a.tmp", "package/code.py", "new.py"):
        write(project, name)
    (project / "old").mkdir()
    found = survey(project)
    assert files(project) == {".gitignore", "package/.gitignore", "package/code.py", "new.py", "train.py"}
    assert found.folders == ()
    assert found.ignored == ("a.ckpt", "data/", "old/", "package/a.tmp")
    assert any("!a.ckpt to .deepcdkignore" in note for note in found.notes())


def test_tracked_ignored_files_are_uploaded_but_not_deleted_ones(project: Path) -> None:
    write(project, "data/kept.bin")
    write(project, "data/dropped.bin")
    write(project, "gone.py")
    git(project, "init")
    git(project, "add", "data/kept.bin", "gone.py")
    write(project, ".gitignore", "data/\n")
    (project / "gone.py").unlink()
    assert files(project) == {".gitignore", "data/kept.bin", "train.py"}


def test_deepcdkignore_excludes_and_includes_files(project: Path) -> None:
    for with_git in (False, True):
        if with_git:
            git(project, "init")
            write(project, ".gitignore", "data/\n")
        for name in ("data/words.txt", "data/images.bin", "notes/a.md", "certs/test.pem", ".env"):
            write(project, name, PEM if name.endswith("pem") else "x")
        write(project, ".deepcdkignore", "\ufeffnotes/\r\n*.bin\r\n!data/words.txt\n!certs/test.pem\n")
        wanted = {".deepcdkignore", "train.py", "data/words.txt", "certs/test.pem"}
        assert files(project) - {".gitignore"} == wanted
        assert survey(project).secrets == (".env",)


def test_subdirectory_worktree_submodule_and_nested_repository(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other, "module.py")
    write(other, "cache.bin")
    write(other, ".gitignore", "*.bin\n")
    git(other, "init")
    git(other, "add", ".")
    git(other, "commit", "-m", "a")
    git(project, "init")
    write(project, ".gitignore", "*.log\n")
    write(project, "part/a.py")
    write(project, "part/a.log")
    git(project, "submodule", "add", str(other), "third_party/other")
    git(project, "add", ".")
    git(project, "commit", "-m", "a")
    shutil.copytree(other, project / "nested")
    write(project / "third_party" / "other", "new.py")
    write(project / "third_party" / "other", "new.bin")
    third = {"third_party/other/.gitignore", "third_party/other/module.py", "third_party/other/new.py"}
    assert files(project) == {
        *(".gitignore", ".gitmodules", "train.py", "part/a.py", "nested/module.py", "nested/.gitignore"),
        *third,
    }
    assert files(project / "part") == {"a.py"}
    git(project, "worktree", "add", str(tmp_path / "tree"))
    tree = tmp_path / "tree"
    write(tree, "b.log")
    assert files(tree) == {".gitignore", ".gitmodules", "train.py", "part/a.py"}
    assert Path("third_party/other") in survey(tree).folders  # the submodule was not initialized there


def test_directory_ignored_by_its_repository_is_uploaded_as_without_git(project: Path) -> None:
    git(project.parent, "init")
    write(project.parent, ".gitignore", "*\n")
    (project / "empty").mkdir()
    assert files(project) == {"train.py"}
    assert survey(project).folders == (Path("empty"),)


@pytest.mark.parametrize("with_git", [True, False])
def test_caches_and_environments_are_skipped_unless_tracked(project: Path, with_git: bool) -> None:
    names = ("__pycache__/a.pyc", "venv/pyvenv.cfg", ".venv/pyvenv.cfg", "env/conda-meta/x", "node_modules/a/b.js")
    for name in (*names, ".mypy_cache/x", "b.pyc"):
        write(project, name)
    if with_git:
        git(project, "init")
        git(project, "add", "-f", "node_modules")
    assert files(project) == {"train.py"} | ({"node_modules/a/b.js"} if with_git else set())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "RATE=0.1"),
        (".aws/credentials", "[default]"),
        ("id_rsa", "x"),
        ("any-name", "Bag Attributes\n" + PEM),
        ("deploy.key", PEM.replace("RSA ", "OPENSSH ")),
        ("account.json", '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nM"}'),
        ("adc.json", '{"client_secret": "a", "refresh_token": "b"}'),
        ("settings.ini", "[a]\naws_secret_access_key = abc\n"),
        (".npmrc", "//registry.example/:_authToken=abc\n"),
        ("env.sh", "export AWS_ACCESS_KEY_ID=AKIA\nexport AWS_SECRET_ACCESS_KEY='abc'\n"),
        ("keys.json", '{"AWS_SECRET_ACCESS_KEY": "abc"}'),
        ("prod.env", "x"),
        (".streamlit/secrets.toml", "x"),
        ("config.json", '{"auths": {"https://registry.example/": {"auth": "YTpi"}}}'),
    ],
)
def test_key_files_are_skipped_with_hint_about_secret_option(project: Path, name: str, text: str) -> None:
    """Source: Netflix/metaflow #1741."""
    write(project, name, text)
    found = survey(project)
    assert files(project) == {"train.py"}
    assert found.secrets == (name,)
    assert [name in note and "--secret NAME" in note for note in found.notes()] == [True]


def test_files_resembling_keys_are_uploaded(project: Path) -> None:
    names = ("ca.pem", "id_rsa.pub", ".env.example", "environment", "keys.py", ".npmrc", "env.json", "example.env")
    for name in names:
        write(project, name, "-----BEGIN CERTIFICATE-----\n" if name.endswith("pem") else "a = 1\n")
    write(project, "keys.py", f'KEY = """\n{PEM}"""\n')
    write(project, "env.sh", 'AWS_SECRET_ACCESS_KEY=$OTHER\nexport AWS_SECRET_ACCESS_KEY="${OTHER}"\n')
    write(project, "unset.sh", "export AWS_SECRET_ACCESS_KEY=\npython train.py\n# AWS_SECRET_ACCESS_KEY=...\n")
    write(project, "docker.json", '{"auths": {"registry.example": {}}, "credsStore": "desktop"}')
    assert files(project) == {"train.py", "env.sh", "unset.sh", "docker.json", *names}


def test_ignored_env_file_is_reported_as_secret(project: Path) -> None:
    git(project, "init")
    write(project, ".gitignore", ".env\n")
    write(project, ".env")
    assert survey(project).secrets == (".env",)
    assert survey(project).ignored == ()


def test_diff_omits_deleted_ignored_and_filtered_files(project: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(20))
    for name in (".env", "own.env", "old.txt", "private/notes.txt"):
        write(project, name, f"hunter2\n{lines}")
    write(project, "job.sh", f"export AWS_SECRET_ACCESS_KEY=hunter2\n{lines}end\n")
    write(project, "far.txt", f"{PEM}{lines}hunter2\n")
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "a")
    (project / ".env").unlink()
    (project / "old.txt").unlink()
    write(project, ".deepcdkignore", "private/\n")
    write(project, "private/notes.txt", "hunter2 again\n")
    write(project, "own.env", "hunter2 again\n")
    write(project, "job.sh", lines)
    write(project, "far.txt", f"{PEM}{lines}hunter3\n")
    write(project, "train.py", "print('changed')\n")
    diff = read_diff(project)
    assert "hunter" not in diff
    assert "changed" in diff and "a/old.txt" in diff


def test_links_within_directory_are_kept_and_others_reported(project: Path, tmp_path: Path) -> None:
    outside = write(tmp_path, "outside/secret.txt")
    write(project, "data/v3/a.txt")
    (project / "data" / "latest").symlink_to("v3")
    (project / "data" / "absolute").symlink_to(project / "data" / "v3")
    (project / "run.py").symlink_to("train.py")
    (project / "out.txt").symlink_to(outside)
    (project / "up").symlink_to("../outside")
    (project / "loop").symlink_to("loop")
    found = survey(project)
    assert [text.partition(" ")[0] for text in found.outside] == ["out.txt", "up"]
    assert any("fab stage-data" in note and str(outside) in note for note in found.notes())
    there = unpacked(project, tmp_path / "into")
    assert (there / "data" / "latest" / "a.txt").read_text() == "x"
    assert (there / "data" / "absolute").readlink() == Path("v3")
    assert (there / "run.py").is_symlink()
    Program.from_arguments(str(project), "run.py", ())
    (project / "bad.py").symlink_to(outside)
    with pytest.raises(UsageError, match="is not uploaded: it is a symbolic link out of the directory"):
        Program.from_arguments(str(project), "bad.py", ())


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../..", "a/../../../x"])
def test_links_out_of_tree_are_rejected_by_receiver(tmp_path: Path, target: str) -> None:
    tree = pack(tmp_path, [], "program", links=[(Path("link"), target)])
    assert unpack_as(tmp_path / "into", tree.archive) == 1
    with (
        tarfile.open(fileobj=io.BytesIO(pack(tmp_path, [], "p", links=[(Path("a"), "b")]).archive)) as archive,
        pytest.raises(EntryError),
    ):
        unpack(archive, tmp_path / "fetched")


def test_sockets_and_pipes_are_reported(project: Path) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(project, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/s")
        os.close(here)
    found = survey(project)
    assert found.special == ("pipe", "s")
    assert files(project) == {"train.py"}


NAMES = ("line\nbreak.txt", os.fsdecode(b"latin-\xe9.txt"), " space ", "quote\"'.txt", "-n", "ünïcode", "tab\t")


def test_git_lfs_pointers_are_reported_with_download_command(project: Path) -> None:
    """Reported as huggingface/transformers #8497: a cryptic error when a program read the pointer as weights."""
    oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    write(project, "w/model.bin", f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 12345\n")
    write(project, "notes.txt", "oid of a version https://git-lfs.github.com/spec/v1\n")
    found = survey(project)
    assert Path("w/model.bin") in found.files
    (note,) = found.notes()
    assert note.startswith("uploaded as Git LFS pointers, without their content: w/model.bin. ")
    assert note.endswith(f"git -C {project} lfs pull")


def test_any_file_name_is_uploaded_and_printed_escaped(project: Path, tmp_path: Path) -> None:
    for name in NAMES:
        write(project, f"{name}/{name}", name.encode(errors="replace").decode())
        (project / "e" / name).mkdir(parents=True)
    write(project, f"{NAMES[0]}/.env")
    git(project, "init")
    there = unpacked(project, tmp_path / "into")
    assert {path.name for path in there.iterdir()} == {*NAMES, "train.py", "e"}
    assert {path.name for path in (there / "e").iterdir()} == {*NAMES}
    assert all(note.isprintable() for note in survey(project).notes())


class Denied:
    """Deny reading below one path, as the kernel does for users other than root."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        for module, name in ((os, "open"), (os, "scandir")):
            monkeypatch.setattr(module, name, self.wrap(getattr(module, name)))

    def wrap(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(path: object, *words: object, **options: object) -> object:
            if isinstance(path, str | Path) and Path(path) == self.path:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *words, **options)

        return call


@pytest.mark.parametrize("name", ["secret.bin", "pkg"])
def test_unreadable_file_or_directory_is_reported_with_fix(
    project: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: ray-project/ray PR 15772."""
    write(project, "secret.bin")
    write(project, "pkg/module.py")
    Denied(project / name, monkeypatch)
    with pytest.raises(UploadError, match=f"{name}: Permission denied") as caught:
        Program(directory=project, entry=("true",)).tree()
    assert ".deepcdkignore" in str(caught.value.remedy)


def test_file_removed_before_packing_is_reported(project: Path) -> None:
    """Source: ray-project/ray PR 15772."""
    gone = write(project, "c108")
    program = Program(directory=project, entry=("true",))
    assert Path("c108") in program.upload.files
    gone.unlink()
    with pytest.raises(UploadError, match="c108 disappeared while it was read"):
        program.tree()


def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = write(tmp_path, "bin/git", f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_git_errors_are_reported_with_fix(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "init")
    fake_git(
        tmp_path, monkeypatch, f"echo \"fatal: detected dubious ownership in repository at '{project}'\" >&2; exit 128"
    )
    with pytest.raises(UploadError, match="dubious ownership") as caught:
        survey(project)
    assert f"run `git config --global --add safe.directory '{project}'`; nothing" in str(caught.value.remedy)
    fake_git(tmp_path, monkeypatch, "echo \"warning: could not open directory 'pkg/': Permission denied\" >&2")
    with pytest.raises(UploadError, match=r"cannot read .*/pkg: Permission denied"):
        survey(project)
    fake_git(tmp_path, monkeypatch, "echo 'fatal: index file corrupt' >&2; exit 128")
    with pytest.raises(UploadError, match="index file corrupt"):
        survey(project)


def test_repository_without_git_installed_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "init")
    write(project, ".gitignore", "data\n")
    write(project, "data")
    monkeypatch.setenv("PATH", "/nowhere")
    assert files(project) == {"train.py", ".gitignore", "data"}
    assert any("git is not installed" in note for note in survey(project).notes())


def test_name_in_wrong_case_is_reported_with_real_name(project: Path) -> None:
    found = survey(project)
    os.link(project / "train.py", project / "Train.py")
    assert "its name is train.py" in found.reason_against(Path("Train.py"))


def test_git_stub_of_macos_counts_as_missing(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the command line tools, git failed with `xcrun: error: invalid active developer path`."""
    git(project, "init")
    fake_git(tmp_path, monkeypatch, "echo 'xcrun: error: invalid active developer path (/Library)' >&2; exit 1")
    assert files(project) == {"train.py"}
    assert any("xcode-select --install" in note for note in survey(project).notes())


def test_unreadable_ignored_directory_is_skipped(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "init")
    write(project, ".gitignore", "cache/\n")
    write(project, "pkg/cache/data")
    write(project, "pkg/module.py")
    (project / "pkg" / "empty").mkdir()
    Denied(project / "pkg" / "cache", monkeypatch)
    assert files(project) == {"train.py", ".gitignore", "pkg/module.py"}
    assert survey(project).folders == (Path("pkg/empty"),)


def test_git_hook_variables_of_another_repository_are_ignored(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    write(other, "other.py")
    git(other, "init")
    git(other, "add", ".")
    git(project, "init")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert files(project) == {"train.py"}


def test_same_files_make_the_same_tree_with_and_without_git(project: Path) -> None:
    write(project, "logs/.gitkeep")
    (project / "empty").mkdir()
    (project / "link").symlink_to("train.py")
    before = Program(directory=project, entry=("true",)).tree()
    git(project, "init")
    git(project, "add", ".")
    after = Program(directory=project, entry=("true",)).tree()
    assert before == after
    (project / "link").unlink()
    assert Program(directory=project, entry=("true",)).tree().name != after.name


def test_large_upload_by_size_or_count_lists_five_largest(project: Path) -> None:
    """Source: skypilot-org/skypilot #225."""
    for number in range(7):
        with write(project, f"data{number}.bin").open("wb") as file:
            file.truncate(8_000_000 + number)
    tree = Program(directory=project, entry=("true",)).tree()
    assert is_large(tree)
    assert describe_size(tree).startswith(
        "the upload is large: 8 files, 56,000,035 bytes; the largest: data6.bin 8,000,006, data5.bin"
    )
    assert "data1.bin" not in describe_size(tree)
    (project / "data0.bin").unlink()
    assert not is_large(Program(directory=project, entry=("true",)).tree())
    for number in range(ASKED_FILES):
        (project / f"{number}").touch()
    assert is_large(Program(directory=project, entry=("true",)).tree())


def test_wheels_built_on_laptop_count_as_upload(tmp_path: Path) -> None:
    """Gigabytes of wheels from an index with a password were uploaded without a question."""
    for number in range(2):
        with (tmp_path / f"torch{number}.whl").open("wb") as file:
            file.truncate(26_000_000 + number)
    tree = wheels_tree(sorted(tmp_path.iterdir()))
    assert tree is not None
    assert is_large(tree)
    assert describe_size(tree).endswith(
        ": 2 files, 52,000,001 bytes; the largest: torch1.whl 26,000,001, torch0.whl 26,000,000"
    )
    one = wheels_tree([tmp_path / "torch0.whl"])
    assert one is not None and ": 1 file, 26,000,000 bytes; the largest: " in describe_size(one)
    with tarfile.open(fileobj=io.BytesIO(tree.archive)) as archive:
        assert archive.getnames() == ["wheels/torch0.whl", "wheels/torch1.whl"]


def test_large_upload_is_confirmed_once_unless_cluster_has_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: skypilot-org/skypilot #225."""
    with write(project, "data.bin").open("wb") as file:
        file.truncate(51_000_000)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    session, tree, printed = Session(PROJECT, []), Program(directory=project, entry=("true",)).tree(), list[str]()
    there: list[bool] = [False]
    monkeypatch.setattr(session, "find_pushed", lambda *_: there[0])
    with pytest.raises(DeepcdkError, match="no terminal on which to ask") as caught:
        session.confirm_upload(mock.Mock(), tree, printed.append, yes=False)
    assert caught.value.remedy == "give --yes"
    assert "2 files, 51,000,014 bytes; the largest: data.bin 51,000,000, train.py 14" in printed[0]
    there[0] = True
    session.confirm_upload(mock.Mock(), tree, printed.append, yes=False)
    there[0] = False
    session.confirm_upload(mock.Mock(), tree, printed.append, yes=True)
    session.confirm_upload(mock.Mock(), tree, printed.append, yes=False)  # with another environment
    assert len(printed) == 2


@pytest.mark.parametrize("name", ["stage-data", "push", "notebook", "train", "bench", "scale", "rm"])
def test_tasks_with_questions_accept_yes(name: str) -> None:
    assert "--yes" in {f"--{flag.parameter}" for flag in collection([name])[name].flags}


def test_link_in_pushed_program_is_kept_in_copy_of_run(project: Path, tmp_path: Path) -> None:
    (project / "link").symlink_to("train.py")
    (project / "dangling").symlink_to("missing")
    mount = tmp_path / "efs"
    made = make_program_spec(efs_mount=str(mount))
    shutil.copytree(project, made.program_directory, symlinks=True)
    Path(made.run_directory).mkdir(parents=True)
    stage(made)
    assert (Path(made.working_directory) / "link").readlink() == Path("train.py")
    assert (Path(made.working_directory) / "dangling").is_symlink()


def test_full_disk_is_reported_with_host_path_and_fab_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: ray-project/ray #55898."""
    error, host = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), socket.gethostname()
    place = tmp_path / "x"
    texts = [
        str(StorageError(place, error)),
        describe_full_disk(place, str(error)),
        describe_full_disk(place, "pip: Disk quota exceeded"),
    ]
    master = mock.Mock(where="admin@198.51.100.7")
    for text in texts:
        assert host in text and str(place) in text and "`fab clean`" in text
    assert describe_full_disk(place, "Permission denied") == ""
    monkeypatch.setattr(
        "cluster.ssh.push._upload", mock.Mock(side_effect=RemoteError("x", status=1, output=str(error)))
    )
    monkeypatch.setattr("cluster.ssh.push.find_pushed", lambda *_: frozenset())
    with pytest.raises(RemoteError) as caught:
        push(master, "/mnt/efs/payloads", pack(tmp_path, [], "program"))
    assert "/mnt/efs/payloads: `fab clean`" in str(caught.value.remedy)
    assert "`fab clean`" in REMEDIES["full"]
    log = "[supervisor] x\n[0]<stdout>:a\n[1]<stderr>:OSError: [Errno 28] No space left on device: '/tmp/a'\n"
    quota = full_disk_hint(make_nodes(2), "[0]<stderr>:OSError: [Errno 122] Disk quota exceeded\n")
    assert quota.startswith("; a disk on deeplearning-worker1 is full") and "`fab clean`" in quota
    hint = full_disk_hint(make_nodes(2), log)
    assert hint.startswith("; a disk on deeplearning-worker2 is full: [1]<stderr>:OSError") and "`fab clean`" in hint
    assert full_disk_hint(make_nodes(2), "[1]<stderr>:a\n") == ""


@pytest.fixture
def full_directory(tmp_path: Path) -> Iterator[Path]:
    """Return the working directory of a run on a disk of 2 MiB."""
    place = tmp_path / "runs" / "one" / "work"
    place.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.root
@pytest.mark.parametrize("launcher", ["gloo", "group"])
def test_program_filling_a_disk_is_reported_with_host_and_path(full_directory: Path, launcher: str) -> None:
    """Sources: pullpreview/action PR #54, pypa/pip #12444. Python's error of a write names no path."""
    code = "open('x', 'wb').write(bytes(4_000_000))"
    run = {"DEEPCDK_RUNS": str(full_directory.parents[1]), "DEEPCDK_RUN": "one", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-m", "agent.launch.rank_parent", launcher, sys.executable, "-c", code],
        cwd=full_directory, env={**os.environ, "RANK": "1", "HOROVOD_RANK": "1", **run},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    line = f"[launcher] rank 1: the disk with {full_directory} is full (0.0 MiB free)\n"
    assert (done.stdout + done.stderr).count(line) == 1
    hint = full_disk_hint(make_nodes(2), f"[1]<stderr>:OSError: [Errno 28] No space left on device\n[1]<stderr>:{line}")
    assert hint.startswith(f"; the disk with {full_directory} on deeplearning-worker2 is full (0.0 MiB free); do: free")
    assert "`fab clean`" in hint


def test_installation_on_full_disk_is_reported(tmp_path: Path) -> None:
    """Source: ray-project/ray #55898."""
    made = Installer(root=tmp_path)
    with pytest.raises(RuntimeSetupError, match=r"failed with exit status 1\n.*\n.*is full.*`fab clean`"):
        made.run("Installing", ["sh", "-c", "echo 'OSError: [Errno 28] No space left on device'; exit 1"])
