"""The registry on a shared file system in which one node's root writes what it likes: the others go on, unharmed."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.spec.nodes import RULES
from stacks.user_data import SCRIPTS
from tests.stacks.boot.nodelab import Lab, Node, booted, key_of
from tests.waiting import eventually
from tests.words import WORDS

SCRIPT = (SCRIPTS / "registry.sh").read_text(encoding="utf-8")
FIELDS = {"name": "name", "ip": "address", "zone": "zone", "slots": "slots", "interface": "interface",
          "instance-id": "instance_id"}  # fmt: skip
"""The script's names of the rules that the laptop has too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Booted:
    """A lab with a master and two workers, and a copy of all its files."""

    lab: Lab
    nodes: tuple[Node, Node, Node]
    copy: Path

    def restore(self) -> None:
        """Give every file its first contents, and heartbeats the time of now: one of a minute ago is a node gone."""
        shutil.rmtree(self.lab.folder)
        shutil.copytree(self.copy, self.lab.folder, symlinks=True)
        for heartbeat in self.lab.shared.glob(".cluster/nodes/*/heartbeat"):
            heartbeat.touch()


@pytest.fixture(scope="module")
def just_booted(tmp_path_factory: pytest.TempPathFactory) -> Booted:
    """Boot a master and two workers once: three boots take longer than what a test does with them."""
    root = tmp_path_factory.mktemp("booted")
    (root / "lab").mkdir()
    lab = Lab(root / "lab")
    nodes = (booted(lab.node("master", 100)), booted(lab.node("worker", 1)), booted(lab.node("worker", 2)))
    shutil.copytree(lab.folder, root / "copy", symlinks=True)
    return Booted(lab=lab, nodes=nodes, copy=root / "copy")


@pytest.fixture
def three(just_booted: Booted) -> tuple[Node, Node, Node]:
    """Return a master and two workers just after their boot."""
    just_booted.restore()
    return just_booted.nodes


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    """Return the lab of the nodes of `three` where a test asks for them, and a new one otherwise."""
    if "three" not in request.fixturenames:
        return Lab(tmp_path)
    found: Booted = request.getfixturevalue("just_booted")
    return found.lab


def entry(lab: Lab, name: str) -> Path:
    return lab.shared / ".cluster/nodes" / name


def refreshed(*nodes: Node) -> str:
    """Run one pass on each node; return what they said."""
    said = ""
    for node in nodes:
        status, words = node.refresh()
        assert status == 0, words
        said += words
    return said


def changes(node: Node) -> dict[str, str]:
    """Return the files of a node that name nodes."""
    wanted = ("opt/deeplearning/", "etc/hosts", "etc/profile.d/", "etc/ssh/ssh_known_hosts", "home/")
    return {path: text for path, text in node.files().items() if path.startswith(wanted)}


HOSTILE_NAMES = (
    "deeplearning-workera[$(touch INJECTED)]",
    "deeplearning-workerstale_s[$(touch INJECTED)]",
    "deeplearning-worker$(touch INJECTED)",
    "deeplearning-worker1.bak",
    "deeplearning-worker08",
    "deeplearning-worker0",
    "deeplearning-worker99999999999999999999",
    "deeplearning-worker",
    "deeplearning-worker-1",
    "deeplearning-worker3 and more",
    "deeplearning-worker4\n1 /x/a[$(touch INJECTED)]",
    "deeplearning-worker4\nstale_s[$(touch INJECTED)] x",
    "a[$(touch INJECTED)]",
    "]",
    "*",
    "@",
    "\udcff",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_directory_of_any_other_name_is_passed_over_and_the_registry_lives_on(
    lab: Lab, three: tuple[Node, Node, Node], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)  # where `touch INJECTED` would leave its mark
    refreshed(*three)
    before = [changes(node) for node in three]
    shutil.copytree(entry(lab, "deeplearning-worker1"), entry(lab, name))
    said = refreshed(*three)
    assert said.count("no node's name in the registry: ") == 3
    assert [changes(node) for node in three] == before
    assert lab.owners()["deeplearning-worker1"] == three[1].instance_id
    newcomer = booted(lab.node("worker", 3))
    refreshed(*three)
    assert all(f"{newcomer.ip} deeplearning-worker3\n" in node.text("etc/hosts") for node in three)
    assert not list(lab.folder.rglob("INJECTED"))


FACTS = (
    ("ip", "10.0.64.5\\'$(touch INJECTED)\\'"),
    ("ip", "10.0.64.1 evil.example"),
    ("zone", "us-east-1a;touch INJECTED"),
    ("slots", "0"),
    ("slots", "a[$(touch INJECTED)]"),
    ("gpus", "0; touch INJECTED"),
    ("gpus", "$(touch INJECTED)"),
    ("gpus", "-1"),
    ("interface", "-i"),
    ("host_key", f"@cert-authority * {key_of('EVIL')}"),
    ("host_key", "ssh-rsa AAAA"),
    ("host_key", "ssh-ed25519 AAAA"),
    ("instance-id", "../../x"),
    ("instance-id", "i-0123\x1b[2J"),
)


@pytest.mark.parametrize(("fact", "text"), FACTS)
def test_a_node_with_a_fact_against_its_rule_is_left_out_of_every_file_and_the_others_stay(
    lab: Lab, three: tuple[Node, Node, Node], fact: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)
    master, worker, _ = three
    (entry(lab, "deeplearning-worker2") / fact).write_text(f"{text}\n")
    told = f"deeplearning-worker2 is left out: its {fact} in the registry breaks the rule"
    for node in (master, worker):
        said = refreshed(node)
        assert said.count(told) == 1
        assert "\x1b" not in said
        assert node.text("opt/deeplearning/workers") == "deeplearning-worker1\n"
        assert node.text("opt/deeplearning/nodes").splitlines()[2:] == [f"# {told}"]
        assert f"\n{worker.ip} deeplearning-worker1\n" in node.text("etc/hosts")
        shell = (
            'for file; do . "$file"; done; echo $DEEPLEARNING_WORKERS_COUNT $DEEPLEARNING_WORKER_GPU_COUNT $EFS_MOUNT'
        )
        profile = str(node.root / "etc/profile.d/deeplearning.sh")
        sourced = subprocess.run(["sh", "-c", shell, "sh", profile], capture_output=True, text=True, check=True)
        assert sourced.stdout == "1 0 /mnt/efs\n"
        outside = {path: content for path, content in changes(node).items() if "nodes" not in path}
        assert not any(word in content for content in outside.values() for word in ("touch", "evil", "EVIL", "worker2"))
    assert not list(lab.folder.rglob("INJECTED"))


@pytest.mark.parametrize("text", ["", "\n", "10.0.1"])
def test_a_fact_that_is_not_written_to_its_end_leaves_its_node_out_without_a_word(
    lab: Lab, three: tuple[Node, Node, Node], text: str
) -> None:
    master, _, _ = three
    (entry(lab, "deeplearning-worker2") / "ip").write_text(text)
    assert "left out" not in refreshed(master)
    assert "worker2" not in master.text("opt/deeplearning/nodes")


@pytest.mark.parametrize("place", [".cluster", ".cluster/nodes", ".cluster/nodes/deeplearning-worker2"])
def test_a_link_in_place_of_a_directory_is_neither_read_nor_written_through(
    lab: Lab, three: tuple[Node, Node, Node], place: str
) -> None:
    master, _, victim = three
    # Another directory of the node's that looks like an entry of its own, with something to lose.
    local = lab.folder / "local"
    for folder in (local, local / "deeplearning-worker2", local / "nodes/deeplearning-worker2"):
        (folder / "heartbeat").mkdir(parents=True)
        (folder / "heartbeat/kept").touch()
        (folder / "instance-id").write_text(f"{victim.instance_id}\n")
    before = sorted(str(path) for path in local.rglob("*"))
    planted = lab.shared / place
    planted.rename(lab.folder / "moved")
    planted.symlink_to(local)
    for node in (victim, master, victim):
        refreshed(node)
    assert sorted(str(path) for path in local.rglob("*")) == before
    assert not planted.is_symlink()
    assert victim.instance_id in victim.text("opt/deeplearning/nodes")


def test_a_watcher_logs_what_it_leaves_out_once_and_goes_on_seeing_changes(
    lab: Lab, three: tuple[Node, Node, Node]
) -> None:
    master, _, _ = three
    entry(lab, "deeplearning-worker1.bak").mkdir()
    (entry(lab, "deeplearning-worker2") / "gpus").write_text("$(id)\n")
    watcher = master.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        for number in (3, 4, 5):
            newcomer = booted(lab.node("worker", number))
            eventually(lambda ip=newcomer.ip: f"{ip} " in master.text("etc/hosts"))  # type: ignore[misc]
    finally:
        watcher.terminate()
        said, _ = watcher.communicate(timeout=60)
    assert said.count("worker1.bak") == 1
    assert said.count("deeplearning-worker2 is left out") == 1


def test_a_node_keeps_its_name_where_its_entry_was_copied_under_another(
    lab: Lab, three: tuple[Node, Node, Node]
) -> None:
    shutil.copytree(entry(lab, "deeplearning-worker1"), entry(lab, "deeplearning-worker9.bak"))
    booted(three[1])
    assert (entry(lab, "deeplearning-worker1") / "heartbeat").exists()
    assert "deeplearning-worker9.bak" not in three[1].text("opt/deeplearning/workers")


@pytest.mark.parametrize("file", ["heartbeat", "ip", "instance-id"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_a_link_neither_stops_a_pass_nor_is_read_or_written_through(
    lab: Lab, three: tuple[Node, Node, Node], file: str, kind: str
) -> None:
    master, _, victim = three
    secret = lab.folder / "secret"
    secret.write_text("i-00000000000000002\n")
    planted = entry(lab, "deeplearning-worker2") / file
    planted.unlink()
    if kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.symlink_to(secret)
    refreshed(master)
    assert master.text("opt/deeplearning/workers") == "deeplearning-worker1\n"
    booted(victim)
    assert secret.read_text() == "i-00000000000000002\n"
    refreshed(master)
    assert master.text("opt/deeplearning/workers") == "deeplearning-worker1\ndeeplearning-worker2\n"


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_lock_that_is_no_file_is_replaced_and_not_written_through(lab: Lab, kind: str) -> None:
    secret = lab.folder / "secret"
    secret.write_text("kept\n")
    lock = lab.shared / ".cluster/lock"
    lock.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(secret)
    booted(lab.node("master", 100))
    assert (secret.read_text(), lock.is_file(), lock.is_symlink()) == ("kept\n", True, False)


@pytest.mark.parametrize(
    "text",
    [
        f'command="id" {key_of("EVIL")}\n',
        f"ssh-rsa AAAA\n{key_of('EVIL')}\n",
        "# deepcdk: end\n",
        "ssh-ed25519 AAAA\n",
    ],
)
def test_a_master_key_that_is_not_one_plain_key_changes_no_authorized_keys(
    lab: Lab, three: tuple[Node, Node, Node], text: str
) -> None:
    _, worker, _ = three
    keys = "home/ec2-user/.ssh/authorized_keys"
    before = worker.text(keys)
    assert before.count("ssh-ed25519") == 1
    (lab.shared / ".cluster/master.pub").write_text(text)
    assert "no key in the registry's master.pub" in refreshed(worker)
    assert worker.text(keys) == before


def test_of_a_masters_key_neither_a_comment_nor_a_second_line_is_taken(
    lab: Lab, three: tuple[Node, Node, Node]
) -> None:
    _, worker, _ = three
    (lab.shared / ".cluster/master.pub").write_text(f"{key_of('NEW')} a comment\n{key_of('EVIL')}\n")
    refreshed(worker)
    assert worker.text("home/ec2-user/.ssh/authorized_keys").splitlines()[1:-1] == [f"{key_of('NEW')} deepcdk-master"]


def test_what_a_node_is_told_at_boot_reaches_its_settings_as_data(lab: Lab) -> None:
    node = lab.node("worker", 1)
    (node.root / "home/$(touch INJECTED)").mkdir()
    passwd = node.root / "etc/passwd"
    passwd.write_text(passwd.read_text().replace("/home/ec2-user", "/home/$(touch INJECTED)"))
    status, said = node.boot()
    assert status == 0, said
    assert r"login_home=/home/\$\(touch\ INJECTED\)" in node.text("opt/deepcdk/node.conf")
    assert not (Path.cwd() / "INJECTED").exists()


def rules_in_bash() -> str:
    """Return the part of the script that defines the rules."""
    lines = [line for line in SCRIPT.splitlines() if line.startswith(("LC_ALL=", "fits()"))]
    return "\n".join([*lines, SCRIPT[SCRIPT.index("octet=") : SCRIPT.index("log() {")]])


def test_the_script_and_the_laptop_have_the_same_patterns() -> None:
    program = rules_in_bash() + "\nfor each in " + " ".join(FIELDS) + '; do echo "${rule[$each]}"; done'
    told = subprocess.run(["bash", "-euc", program], capture_output=True, text=True, check=True).stdout
    assert dict(zip(FIELDS.values(), told.splitlines(), strict=True)) == {
        field: rule.pattern for field, rule in RULES.items()
    }


MATCHING = st.one_of(*(st.from_regex(re.compile(rule.pattern, re.ASCII), fullmatch=True) for rule in RULES.values()))
NEAR = st.tuples(MATCHING, st.sampled_from(["\n", " ", "]", "$", "a", "0", "\u0660", "\u00e4", "-", "."])).map("".join)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(WORDS | MATCHING | NEAR | NEAR.map(lambda text: text[::-1]), min_size=1, max_size=40))
def test_bash_and_python_agree_on_any_text(texts: list[str]) -> None:
    program = (
        rules_in_bash()
        + "\nwhile IFS= read -r -d '' text; do\n  for each in "
        + " ".join(FIELDS)
        + '; do if fits "$each" "$text"; then printf 1; else printf 0; fi; done\n  echo\ndone'
    )
    given = b"".join(os.fsencode(text) + b"\0" for text in texts)
    told = subprocess.run(["bash", "-euc", program], input=given, capture_output=True, check=True).stdout.decode()
    wanted = ["".join(str(int(RULES[field].fits(text))) for field in FIELDS.values()) for text in texts]
    assert told.splitlines() == wanted
