"""Facts about building a launch from a task's arguments: bad ones are refused here, good ones arrive unchanged."""

from __future__ import annotations

import datetime
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.spec.horovod import Knobs
from agent.spec.nodes import Node, parse_nodes
from agent.spec.run import RunSpec
from cluster.aws.stack import Stack
from cluster.errors import UsageError
from cluster.runs.launch import (
    Preflight,
    ProgramFlags,
    RankOptions,
    RecipeFlags,
    RunOptions,
    Training,
    build,
    dry_run_lines,
    git_commit,
    read_work,
    split_args,
    supervisor,
)
from cluster.runs.program import Program
from cluster.ssh.connection import remote_line
from payload.recipes.config import TrainConfig
from tests.words import LONG, WORDS

STACK = Stack(
    name="deepcdk", status="CREATE_COMPLETE", master_group="m", worker_group="w", efs_mount="/mnt/efs", bucket="b",
    login_user="ec2-user", max_workers=16,
)  # fmt: skip
NODES = parse_nodes(
    "deeplearning-master 10.0.0.12 i-000000aa 1 ens5 us-east-1a\n"
    "deeplearning-worker1 10.0.1.11 i-000000bb 4 ens5 us-east-1a\n"
    "deeplearning-worker2 10.0.1.12 i-000000cc 4 ens5 us-east-1a\n",
    pytest.fail,
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def make_launch(
    nodes: tuple[Node, ...] = NODES,
    count: int = 2,
    training: Training | Program | None = None,
    options: RunOptions | None = None,
    cores: dict[str, int] | None = None,
) -> RunSpec:
    return build(
        STACK,
        training or Training(),
        nodes,
        count,
        agent="a" * 16,
        tree="fedcba9876543210" if isinstance(training, Program) else "0123456789abcdef",
        options=options or RunOptions(),
        cores=cores,
        now=datetime.datetime(2026, 11, 20, 12, 13, 14),
        token="ab12",
        git_commit="c0ffee+",
    )


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("epochs", "0", "--epochs"),
        ("epochs", "many", "epochs"),
        ("batch_per_rank", "-4", "--batch-per-rank"),
        ("learning_rate", "nan", "learning-rate"),
        ("seed", "x", "seed"),
        ("recipe", "digit", "did you mean digits"),
    ],
)
def test_the_ranks_refusals_come_before_anything_is_asked(field: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RecipeFlags(**{field: value}).training()


@pytest.mark.parametrize("further", [("--run-dir", "/mnt/efs/runs/other"), ("--run-dir=/mnt/efs/runs/other",)])
def test_a_run_cannot_be_sent_to_the_directory_of_another(further: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"--run-dir = '/mnt/efs/runs/other': each run has a directory of its own"):
        Training(arguments=further)


def test_only_what_was_given_reaches_the_ranks() -> None:
    assert Training().command("/mnt/efs/runs/x") == (
        "-m", "payload.train", "--recipe", "digits", "--run-dir", "/mnt/efs/runs/x",
    )  # fmt: skip
    assert RecipeFlags(epochs="3", seed="7").training(("--momentum", "0.8")).command("/r")[6:] == (
        "--epochs", "3", "--seed", "7", "--momentum", "0.8",
    )  # fmt: skip


def test_a_launch_knows_where_it_writes_and_what_it_came_from() -> None:
    launch = make_launch()
    assert launch.run_directory == "/mnt/efs/runs/20261120-121314-digits-ab12"
    assert launch.run_directory in launch.command
    assert launch.interface == "ens5"
    assert dict(launch.environment) == {"DEEPCDK_GIT_COMMIT": "c0ffee+", "DEEPCDK_PAYLOAD_HASH": "0123456789abcdef"}
    assert (launch.agent, launch.payload, launch.program) == ("a" * 16, "0123456789abcdef", "")


def test_a_dry_run_names_the_nodes_that_would_be_added() -> None:
    lines = list(dry_run_lines(NODES, 4, lambda nodes: make_launch(tuple(nodes), 4)))
    assert "2 nodes are ready" in lines[0]
    assert lines[0].endswith("deeplearning-worker3, deeplearning-worker4")
    assert "-H deeplearning-worker1:4,deeplearning-worker2:4,deeplearning-worker3:4" in lines[2]
    assert len(list(dry_run_lines(NODES, 2, lambda nodes: make_launch(tuple(nodes), 2)))) == 4


@pytest.mark.parametrize("nodes", [NODES[:1], ()])
def test_a_dry_run_needs_no_node_and_names_no_network_before_there_is_one(nodes: tuple[Node, ...]) -> None:
    options = RunOptions(ranks=RankOptions(controller="mpi"))
    lines = list(dry_run_lines(nodes, 2, lambda found: make_launch(tuple(found), 2, options=options)))
    assert "-H deeplearning-worker1:1,deeplearning-worker2:1" in lines[2]
    assert "0.0.0.0" not in " ".join(lines)
    assert "--network-interfaces" not in lines[2]


def test_a_dry_run_shows_what_each_rank_becomes_and_where(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    program = Program(directory=tmp_path, entry=("train.py", "--name", "two words"))
    launch = make_launch(training=program)
    assert (launch.recipe, launch.run_id) == ("train", "20261120-121314-train-ab12")
    where, what = list(dry_run_lines(NODES, 2, lambda _: launch))[-2:]
    assert "in /mnt/efs/runs/20261120-121314-train-ab12/work" in where
    assert what == "RUNTIME/bin/python train.py --name 'two words'"


def test_ranks_are_as_many_as_asked_and_else_as_registered() -> None:
    assert [host.slots for host in make_launch().hosts] == [4, 4]
    asked = make_launch(options=RunOptions(ranks=RankOptions(ranks_per_node="2")))
    assert ([host.slots for host in asked.hosts], asked.ranks_per_node) == ([2, 2], 2)
    cores = RunOptions(ranks=RankOptions(ranks_per_node="cores"))
    by_cores = make_launch(options=cores, cores={"deeplearning-worker1": 8, "deeplearning-worker2": 6})
    assert [host.slots for host in by_cores.hosts] == [8, 6]
    for text in ("0", "many", "-1", "1025"):
        with pytest.raises(UsageError, match="--ranks-per-node"):
            RankOptions(ranks_per_node=text)


@pytest.mark.parametrize(
    ("asked", "given", "count", "chosen"),
    [
        ("auto", "8", 1, "mpi"),  # more than the GPUs' slots: on the cores of one host
        ("auto", "cores", 1, "mpi"),
        ("auto", "8", 2, "gloo"),
        ("auto", "4", 1, "gloo"),
        ("auto", "", 1, "gloo"),
        ("gloo", "8", 1, "gloo"),
        ("mpi", "", 2, "mpi"),
    ],
)
def test_ranks_on_the_cores_of_one_host_meet_over_open_mpi(asked: str, given: str, count: int, chosen: str) -> None:
    options = RunOptions(ranks=RankOptions(ranks_per_node=given, controller=asked))
    assert make_launch(count=count, options=options, cores={"deeplearning-worker1": 8}).controller == chosen


def test_a_secret_is_in_the_spec_by_name_alone_and_not_a_variable_as_well() -> None:
    assert make_launch(options=RunOptions(secrets=("TOKEN",))).secrets == ("TOKEN",)
    with pytest.raises(UsageError, match=r"TOKEN.*--env too"):
        RunOptions(environment=(("TOKEN", "x"),), secrets=("TOKEN",))


def test_options_reach_the_spec() -> None:
    launch = make_launch(options=RunOptions(environment=(("NAME", "value"),), knobs=Knobs(autotune=True)))
    assert ("NAME", "value") in launch.environment
    assert launch.knobs.autotune


@pytest.mark.parametrize(
    ("payload", "entry", "further", "recipe", "says"),
    [
        ("", "train.py", (), {}, "--entry = 'train.py': needs --payload"),
        (".", "train.py", (), {"batch_per_rank": "8"}, "--batch-per-rank = '8': is a recipe's"),
        (".", "train.py", (), {"recipe": "digits"}, "--recipe = 'digits': is a recipe's"),
    ],
)
def test_a_mixture_of_recipe_and_program_is_refused(
    payload: str, entry: str, further: tuple[str, ...], recipe: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_work(RecipeFlags(**recipe), ProgramFlags(payload=payload, entry=entry), further)


def test_without_a_payload_the_work_is_a_recipe() -> None:
    assert read_work(RecipeFlags(epochs="3"), ProgramFlags(), ()) == Training(arguments=("--epochs", "3"))


def test_words_after_the_dashes_are_settings_of_the_recipe_after_those_of_args() -> None:
    work = read_work(RecipeFlags(args="--momentum 0.8"), ProgramFlags(), ("--xla", "--seed", "7"))
    assert work == Training(arguments=("--momentum", "0.8", "--xla", "--seed", "7"))
    assert work.command("/r")[-5:] == ("--momentum", "0.8", "--xla", "--seed", "7")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--xlaa",), "argument = '--xlaa': unknown; did you mean --xla?"),
        (("--precision", "float8"), "--precision = 'float8': must be one of"),
        (("8",), "argument = '8': unknown"),
    ],
)
def test_words_after_the_dashes_that_are_no_settings_are_refused_before_anything_is_spent(
    words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_work(RecipeFlags(), ProgramFlags(), words)


def test_the_supervisor_is_called_without_a_shell_word_of_its_own() -> None:
    assert supervisor(STACK, "status", "--live") == [
        "/opt/deepcdk/bin/python3", "-m", "agent.supervisor.cli", "--root", "/mnt/efs/runs", "status", "--live",
    ]  # fmt: skip


@given(st.lists(TEXT, min_size=1))
def test_words_come_through_the_remote_shell_unchanged(words: list[str]) -> None:
    assert shlex.split(remote_line(words)) == words


@settings(deadline=None)
@given(TEXT)
def test_a_real_shell_hands_a_word_over_unchanged(word: str) -> None:
    line = remote_line(["printf", "%s", word], "/")
    assert subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout == word.encode()


def test_further_arguments_are_split_and_never_evaluated() -> None:
    assert split_args("--a 'b c' $(reboot)") == ("--a", "b c", "$(reboot)")
    with pytest.raises(UsageError, match="--args"):
        split_args("'open")


def test_a_commit_with_changes_is_marked(tmp_path: Path) -> None:
    assert git_commit(tmp_path) == ""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    (tmp_path / "f").write_text("1")
    for arguments in (["init", "-q"], ["add", "f"], ["commit", "-q", "-m", "One"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True, capture_output=True)
    commit = git_commit(tmp_path)
    assert len(commit) == 40
    (tmp_path / "f").write_text("2")
    assert git_commit(tmp_path) == commit + "+"


def test_what_is_looked_at_before_a_run_is_chosen_by_one_flag_at_most() -> None:
    chosen = (Preflight(), Preflight(skip_preflight=True), Preflight(full_preflight=True))
    assert [each.mode for each in chosen] == ["auto", "skip", "full"]
    with pytest.raises(UsageError, match="--skip-preflight: leaves out what --full-preflight"):
        Preflight(skip_preflight=True, full_preflight=True)


@given(data_dir=WORDS | st.just(LONG), further=st.lists(WORDS, max_size=2))
def test_what_a_recipe_is_given_reaches_the_ranks_reader_unchanged_or_is_refused(
    data_dir: str, further: list[str]
) -> None:
    try:
        flags = RecipeFlags(recipe="imagenet-fast", data_dir=data_dir, args=shlex.join(further))
        work = flags.training()
    except UsageError:
        return
    command = RunSpec.from_json(make_launch(training=work).to_json()).command
    assert command[6:] == (*(("--data-dir", data_dir) if data_dir else ()), *further)
    assert not data_dir or str(TrainConfig.from_argv(command[2:]).data_dir) == str(Path(data_dir))
