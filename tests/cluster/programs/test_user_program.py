"""A user program: early rejection, before anything costs money, and the uploaded files."""

from __future__ import annotations

import importlib.metadata
import io
import os
import shlex
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UsageError
from cluster.programs import user_program as module
from cluster.programs.deepcdkignore import UploadError
from cluster.programs.entry_flag import MAX_WORD_BYTES, check_word
from cluster.programs.files_to_push import CACHES
from cluster.programs.keras3_lint import KerasTrapError
from cluster.programs.python_environment import RUNTIME_MODULES, pinned
from cluster.programs.user_program import Program
from cluster.ssh.push import BrokenPackageError
from cluster.ssh.transfer_on_master import unpack
from tests.words import FILE_NAMES, WORDS

ROOT = Path(__file__).resolve().parents[3] / "agent" / "environment"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create a small project with everything that must not be uploaded."""
    root = tmp_path / "my project"
    (root / "package").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "package" / "__main__.py").write_text("")
    (root / "package" / "train.py").write_text("")
    (root / "old.py").write_text("print 'Python 2 is nobody's business here'")
    (root / "broken.py").write_text("def broken(:\n")
    (root / ".git").mkdir()
    (root / ".git" / "config").touch()
    (root / "venv" / "lib").mkdir(parents=True)
    (root / "venv" / "pyvenv.cfg").touch()
    (root / "venv" / "lib" / "big.so").touch()
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "train.pyc").touch()
    (root / "data").symlink_to("/usr/share")
    (root / "start.sh").write_text("#!/bin/sh\nexec python train.py\n")
    (root / "start.sh").chmod(0o755)
    return root


def make(directory: Path, entry: str, *further: str) -> Program:
    return Program.from_arguments(str(directory), entry, further)


def test_quoted_signs_of_a_shell_are_words(directory: Path) -> None:
    assert make(directory, "train.py ';' \"a && b\" '|'").entry == ("train.py", ";", "a && b", "|")


def test_only_the_script_that_runs_must_be_free_of_syntax_errors(directory: Path) -> None:
    assert make(directory, "train.py").entry == ("train.py",)
    with pytest.raises(BrokenPackageError, match=r"broken\.py:1"):
        make(directory, "broken.py")


@pytest.mark.parametrize(
    ("entry", "label", "script"),
    [
        ("train.py --epochs 3", "train", "train.py"),
        ("-m package.train", "train", "package/train.py"),
        ("-m package", "package", "package/__main__.py"),
        ("-m tensorboard.main", "main", None),
        ("python -u -X dev train.py", "train", "train.py"),
        ("python3 train.py", "train", "train.py"),
        ("./start.sh", "start-sh", None),
    ],
)
def test_entry_shows_run_and_script(directory: Path, entry: str, label: str, script: str | None) -> None:
    program = make(directory, entry)
    assert program.label == label
    assert program.script == (directory / script if script else None)


@given(word=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_every_label_is_valid_in_a_run_id(word: str) -> None:
    label = Program.label.fget(type("Any", (), {"_words": (word,), "directory": Path("/nowhere")})())  # type: ignore[attr-defined]  # the property alone
    assert label
    assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@given(words=st.lists(WORDS, max_size=4), further=st.lists(WORDS, max_size=3))
def test_any_argument_reaches_entry_unchanged_or_is_rejected(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], further: list[str]
) -> None:
    root = tmp_path_factory.getbasetemp()
    try:
        program = Program.from_arguments(str(root), shlex.join(["/bin/start.sh", *words]), further)
    except UsageError as error:
        assert error.name == "--entry"
        assert any("\udc80" <= character <= "\udcff" for character in "".join([*words, *further]))
        return
    assert program.command("/anywhere") == ("/bin/start.sh", *words, *further)


@pytest.mark.parametrize("module", ["/", "/etc/x", ".", "..train", "package.", "a/b"])
def test_invalid_module_name_is_rejected(tmp_path: Path, module: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a module"):
        Program.from_arguments(str(tmp_path), f"-m {module}", ())


@settings(max_examples=25)
@given(names=st.lists(FILE_NAMES, min_size=1, max_size=3))
def test_files_of_any_name_are_uploaded_and_unpacked_under_it(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    root = tmp_path_factory.mktemp("from") / "named" / names[0]
    root.mkdir(parents=True)
    for number, name in enumerate(names):
        (root / name).write_text(str(number))
    tree = Program.from_arguments(str(root), "true", ()).tree()
    into = tmp_path_factory.mktemp("into")
    with tarfile.open(fileobj=io.BytesIO(tree.archive)) as archive:
        unpack(archive, into)
    found = {os.fsencode(p.name): p.read_text() for p in (into / "program").rglob("*")}
    assert found == {os.fsencode(p.name): p.read_text() for p in root.iterdir() if not is_left_out(p.name)}


def is_left_out(name: str) -> bool:
    return name in CACHES or name.endswith((".pyc", ".pyo"))


@pytest.mark.parametrize("name", ["../other.txt", "nothere.txt", "a" * 300])
def test_missing_requirements_are_rejected(directory: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"--requirements = .* is not a file in .* or in the current directory"):
        Program.from_arguments(str(directory), "train.py", (), requirements=name)


def test_name_of_two_files_is_rejected_below_the_programs_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = directory / "examples"
    below.mkdir()
    (below / "train.py").touch()
    monkeypatch.chdir(below)
    with pytest.raises(
        UsageError, match=rf"--entry = 'train.py': matches two files, {directory}/train.py and {below}/train.py"
    ):
        Program.from_arguments(str(directory), "train.py", ())
    for name in ("train.py", "examples/train.py"):
        assert Program.from_arguments(str(directory), shlex.quote(str(directory / name)), ()).entry == (name,)


def test_script_excluded_from_upload_is_rejected(directory: Path) -> None:
    (directory / "linked.py").symlink_to(__file__)
    (directory / ".git" / "x.py").touch()
    for entry in ("linked.py", "-m linked", ".git/x.py"):
        with pytest.raises(
            UsageError, match=r"is not uploaded: (it is a symbolic link out of the directory|it is in a cache)"
        ):
            make(directory, entry)
    assert make(directory, "./train.py").script == directory / "train.py"


def test_script_excluded_by_deepcdkignore_names_that_file(directory: Path) -> None:
    rules = directory / ".deepcdkignore"
    rules.write_text("package/\n")
    with pytest.raises(UsageError, match=r"is not uploaded: \.deepcdkignore excludes it; correct the line"):
        make(directory, "package/train.py")
    rules.unlink()
    rules.mkdir()
    with pytest.raises(UploadError, match=r"cannot read .*\.deepcdkignore: Is a directory") as caught:
        make(directory, "train.py")
    assert caught.value.remedy == "make it readable; nothing was uploaded"


def test_too_large_directory_is_rejected_with_its_largest_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TREE_BYTES", 10)
    with pytest.raises(UsageError, match=r"more than 10; the largest file is old\.py"):
        make(directory, "train.py").tree()


def test_impossible_argument_is_rejected_without_showing_it() -> None:
    check_word("--entry", "x" * MAX_WORD_BYTES)
    with pytest.raises(UsageError, match="131,072 bytes") as caught:
        check_word("--entry", "x" * (MAX_WORD_BYTES + 1))
    assert len(str(caught.value)) < 200
    with pytest.raises(UsageError, match="NUL"):
        check_word("--entry", "a\0b")
    with pytest.raises(UsageError, match="not UTF-8"):
        check_word("--entry", "a\udcff")


def test_imports_have_full_names_and_invalid_files_are_skipped(directory: Path) -> None:
    (directory / "package" / "train.py").write_text(
        "def late():\n    import horovod.torch as hvd\nfrom tensorflow import keras\nfrom . import other\n"
    )
    (directory / "venv" / "lib" / "own.py").write_text("import mxnet\n")
    wanted = make(directory, "sh -c 'python package/train.py'").wanted(horovod=True)
    assert wanted.modules == {"horovod.torch", "tensorflow", "tensorflow.keras"}
    assert wanted.uses_torch and wanted.uses_tensorflow
    assert not make(directory, "-m package.train").wanted(horovod=False).uses_torch


def test_unimported_file_does_not_affect_environment(directory: Path) -> None:
    (directory / "train.py").write_text("import horovod.tensorflow\nfrom package import train\n")
    (directory / "package" / "train.py").write_text("import keras\n")
    (directory / "other.py").write_text("import horovod.torch\n")
    wanted = make(directory, "train.py").wanted(horovod=True)
    assert not wanted.uses_torch and {"horovod.tensorflow", "keras"} <= wanted.modules
    assert make(directory, "sh start.sh").wanted(horovod=True).uses_torch


def test_lock_file_is_uploaded_with_program_and_changes_its_tree(directory: Path, tmp_path: Path) -> None:
    program = make(directory, "train.py")
    with tarfile.open(fileobj=io.BytesIO(program.tree("numpy==1.26.4\n").archive)) as archive:
        names = archive.getnames()
        entry = archive.extractfile("environment.txt")
        assert entry is not None and entry.read() == b"numpy==1.26.4\n"
    assert "program/train.py" in names
    assert len({program.tree(lock).name for lock in ("", "numpy==1.26.4\n", "numpy==2.0.2\n")}) == 3


def test_keras_check_waits_for_resolved_requirements(directory: Path) -> None:
    trap = "import horovod.tensorflow as hvd\nhvd.DistributedOptimizer(None)\n"
    (directory / "train.py").write_text(trap)
    with pytest.raises(KerasTrapError):
        make(directory, "train.py")
    (directory / "requirements.txt").write_text("tensorflow==2.15.*\n")
    program = make(directory, "train.py")
    with pytest.raises(KerasTrapError):
        program.check_keras_traps()
    Program.from_arguments(str(directory), "train.py", (), keras="3").check_keras_traps()


def test_modules_of_runtime_match_its_lock_file() -> None:
    packages = {name.lower().replace("_", "-") for name in pinned((ROOT / "requirements.txt").read_text())}
    provided = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if module.isidentifier() and not module.startswith("_")
        and packages & {owner.lower().replace("_", "-") for owner in owners}
    }  # fmt: skip
    assert {"tensorflow", "sklearn", "PIL"} < provided
    assert provided - {"tests", "examples", "tools"} <= RUNTIME_MODULES  # three that packages leave behind
