"""The registry while root on one node writes arbitrary text: the other nodes continue unharmed."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.spec.nodes import RULES
from stacks.user_data import SCRIPTS
from tests.stacks.boot.nodelab import Lab, Node, booted, key_of
from tests.waiting import eventually
from tests.words import WORDS

SCRIPT = (SCRIPTS / "node_registry.sh").read_text(encoding="utf-8")
FIELDS = {"name": "name", "ip": "address", "zone": "zone", "slots": "slots", "interface": "interface",
          "instance-id": "instance_id", "kind": "kind"}  # fmt: skip
"""Names in the script of the rules that the laptop also applies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Booted:
    """A lab with a master and two workers, and a copy of all its files."""

    lab: Lab
    nodes: tuple[Node, Node, Node]
    copy: Path

    def restore(self) -> None:
        """Restore all files and set heartbeats to now: a heartbeat that is a minute old means a lost node."""
        shutil.rmtree(self.lab.folder)
        shutil.copytree(self.copy, self.lab.folder, symlinks=True)
        for entry in self.lab.shared.glob(".cluster/nodes/*"):
            entry.touch()


@pytest.fixture(scope="module")
def just_booted(tmp_path_factory: pytest.TempPathFactory) -> Booted:
    """Boot a master and two workers once for all tests: three boots take longer than most tests."""
    root = tmp_path_factory.mktemp("booted")
    (root / "lab").mkdir()
    lab = Lab(root / "lab")
    nodes = (booted(lab.node("master", 100)), booted(lab.node("worker", 1)), booted(lab.node("worker", 2)))
    refreshed(*nodes)
    shutil.copytree(lab.folder, root / "copy", symlinks=True)
    return Booted(lab=lab, nodes=nodes, copy=root / "copy")


@pytest.fixture
def three(just_booted: Booted) -> tuple[Node, Node, Node]:
    """Return a master and two workers in the state after their boot."""
    just_booted.restore()
    return just_booted.nodes


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    """Return the lab of the nodes in `three` if the test uses that fixture, otherwise a new lab."""
    if "three" not in request.fixturenames:
        return Lab(tmp_path)
    found: Booted = request.getfixturevalue("just_booted")
    return found.lab


def entry(lab: Lab, name: str) -> Path:
    return lab.shared / ".cluster/nodes" / name


def refreshed(*nodes: Node) -> str:
    """Run one pass on each node; return the output."""
    said = ""
    for node in nodes:
        status, words = node.refresh()
        assert status == 0, words
        said += words
    return said


def changes(node: Node) -> dict[str, str]:
    """Return a node's files that mention nodes."""
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


def test_entries_with_other_names_are_skipped(
    lab: Lab, three: tuple[Node, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)  # `touch INJECTED` would create its file here
    refreshed(*three)
    before = [changes(node) for node in three]
    for name in HOSTILE_NAMES:
        entry(lab, name).parent.mkdir(parents=True, exist_ok=True)  # for a name with a slash
        shutil.copy(entry(lab, "deeplearning-worker1"), entry(lab, name))
    said = refreshed(*three)
    assert said.count("invalid node name in the registry: ") == len(set(entry(lab, "").iterdir())) - len(three)
    assert [changes(node) for node in three] == before
    assert lab.owners()["deeplearning-worker1"] == three[1].instance_id
    newcomer = booted(lab.node("worker", 3))
    refreshed(*three)
    assert all(f"{newcomer.ip} deeplearning-worker3\n" in node.text("etc/hosts") for node in three)
    assert not list(lab.folder.rglob("INJECTED"))


FACTS = (
    ("ip", "10.0.64.5\\'$(touch INJECTED)\\'"),
    ("zone", "us-east-1a;touch INJECTED"),
    ("slots", "a[$(touch INJECTED)]"),
    ("gpus", "$(touch INJECTED)"),
    ("kind", "x86_64; touch INJECTED"),
    ("interface", "-i"),
    ("host_key", f"@cert-authority * {key_of('EVIL')}"),
    ("host_key", "ssh-ed25519 AAAA"),
    ("host_key", f"{key_of('EVIL')},{key_of('MORE')}"),
    ("instance_id", "i-0123\x1b[2J"),
)


@pytest.mark.parametrize(("fact", "text"), FACTS)
def test_only_node_with_invalid_value_is_omitted_from_all_files(
    lab: Lab, three: tuple[Node, Node, Node], fact: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)
    master, worker, _ = three
    lab.state("deeplearning-worker2", **{fact: text})
    told = f"deeplearning-worker2 is left out: its {fact.replace('_id', '-id')} in the registry is invalid"
    said = refreshed(master)
    assert said.count(told) == 1
    assert "\x1b" not in said
    assert refreshed(worker) == ""
    for node in (master, worker):
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


@pytest.mark.parametrize("text", ["", "\n", "i-00000000000000002,10.0.1"])
def test_node_with_incomplete_entry_is_omitted_silently(lab: Lab, three: tuple[Node, Node, Node], text: str) -> None:
    master, _, _ = three
    entry(lab, "deeplearning-worker2").write_text(text)
    assert "left out" not in refreshed(master)
    assert "worker2" not in master.text("opt/deeplearning/nodes")


@pytest.mark.parametrize("place", [".cluster", ".cluster/nodes", ".cluster/nodes/deeplearning-worker2"])
def test_symlink_in_place_of_directory_is_not_followed(lab: Lab, three: tuple[Node, Node, Node], place: str) -> None:
    master, _, victim = three
    # Another directory of the node that looks like its registry entry and contains files that must not be lost.
    local = lab.folder / "local"
    for folder in (local, local / "nodes"):
        folder.mkdir()
        (folder / "kept").touch()
        shutil.copy(entry(lab, "deeplearning-worker2"), folder)
    before = sorted(str(path) for path in local.rglob("*"))
    planted = lab.shared / place
    planted.rename(lab.folder / "moved")
    planted.symlink_to(local)
    for node in (victim, master, victim):
        refreshed(node)
    assert sorted(str(path) for path in local.rglob("*")) == before
    assert not planted.is_symlink()
    assert victim.instance_id in victim.text("opt/deeplearning/nodes")


def test_watcher_logs_omitted_nodes_once_and_still_sees_changes(lab: Lab, three: tuple[Node, Node, Node]) -> None:
    master, _, _ = three
    entry(lab, "deeplearning-worker1.bak").mkdir()
    lab.state("deeplearning-worker2", gpus="$(id)")
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


def test_node_keeps_its_name_if_its_entry_was_copied(lab: Lab, three: tuple[Node, Node, Node]) -> None:
    shutil.copy(entry(lab, "deeplearning-worker1"), entry(lab, "deeplearning-worker9.bak"))
    booted(three[1])
    assert lab.owners()["deeplearning-worker1"] == three[1].instance_id
    assert "deeplearning-worker9.bak" not in three[1].text("opt/deeplearning/workers")


def plant(kind: str, place: Path, secret: Path) -> None:
    """Replace a file of the registry, if it exists, by a pipe, a directory, or a link to a file."""
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(secret)
    else:
        (place / "deeper").mkdir(parents=True)


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_pipe_or_symlink_is_skipped_and_not_followed(lab: Lab, three: tuple[Node, Node, Node], kind: str) -> None:
    master, _, victim = three
    secret = lab.folder / "secret"
    text = entry(lab, "deeplearning-worker2").read_text()
    secret.write_text(text)
    plant(kind, entry(lab, "deeplearning-worker2"), secret)
    refreshed(master)
    assert master.text("opt/deeplearning/workers") == "deeplearning-worker1\n"
    booted(victim)
    assert secret.read_text() == text
    refreshed(master)
    assert master.text("opt/deeplearning/workers") == "deeplearning-worker1\ndeeplearning-worker2\n"


LARGE = ("nodes/deeplearning-worker2", "nodes/deeplearning-worker9", "list", "master.pub")


@pytest.mark.parametrize("place", LARGE)
def test_file_of_a_terabyte_does_not_block_the_registry(lab: Lab, three: tuple[Node, Node, Node], place: str) -> None:
    master, worker, _ = three
    registry = lab.shared / ".cluster"
    (registry / place).write_bytes(b"")
    os.truncate(registry / place, 1 << 40)  # only a hole; bash skips 80 MB of it per second
    began = time.monotonic()
    refreshed(worker, master, worker)
    assert time.monotonic() - began < 30
    there = [] if place == "nodes/deeplearning-worker2" else ["deeplearning-worker2"]
    assert worker.text("opt/deeplearning/workers").split() == ["deeplearning-worker1", *there]


def test_too_long_entry_is_omitted_with_message(lab: Lab, three: tuple[Node, Node, Node]) -> None:
    entry(lab, "deeplearning-worker2").write_text("i-" + "0" * 1_000_000)
    assert "deeplearning-worker2 is left out: its instance-id in the registry is invalid" in refreshed(three[0])


def test_entry_cannot_forge_the_next_entry(lab: Lab, three: tuple[Node, Node, Node]) -> None:
    master = three[0]
    refreshed(master)
    mark = master.text("opt/deepcdk/mark").strip()
    assert len(mark) == 36
    assert (master.root / "opt/deepcdk/mark").stat().st_mode & 0o777 == 0o600
    for text in ("mark", mark[:-1], mark.upper()[::-1], "==> /mnt/efs/.cluster/nodes/deeplearning-worker1 <=="):
        entry(lab, "deeplearning-worker1").write_text(f"{text}\n" * 3)
        refreshed(master)
        assert f"{three[2].ip} deeplearning-worker2\n" in master.text("etc/hosts")
        assert "deeplearning-worker1\n" not in master.text("etc/hosts")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_pipe_or_symlink_in_place_of_lock_is_replaced_and_not_followed(lab: Lab, kind: str) -> None:
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


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_list_of_master_and_new_entries_replace_existing_files(
    lab: Lab, three: tuple[Node, Node, Node], kind: str
) -> None:
    master, _, victim = three
    secret = lab.folder / "secret"
    secret.write_text("kept\n")
    registry = lab.shared / ".cluster"
    shared = (registry / "list").read_text()
    for place in ("list", f"list.{master.instance_id}", f"new-worker/{victim.instance_id}"):
        plant(kind, registry / place, secret)
    assert refreshed(victim) == ""
    assert victim.text("opt/deeplearning/workers") == "deeplearning-worker2\n"
    refreshed(master, victim)
    assert (secret.read_text(), (registry / "list").read_text()) == ("kept\n", shared)
    assert victim.text("opt/deeplearning/nodes") == master.text("opt/deeplearning/nodes")


def wait_for_a_pass(own: Path) -> None:
    """Wait until a watcher has touched its entry twice: it does so at the beginning of each pass."""
    for _ in range(2):
        touched_ns = own.stat().st_mtime_ns
        eventually(lambda touched_ns=touched_ns: own.stat().st_mtime_ns > touched_ns)  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "empty file"])
def test_watching_worker_keeps_last_readable_list(lab: Lab, three: tuple[Node, Node, Node], kind: str) -> None:
    worker = three[1]
    secret = lab.folder / "secret"
    secret.write_text("")
    listed = worker.text("opt/deeplearning/nodes")
    own = entry(lab, "deeplearning-worker1")
    watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")

    try:
        wait_for_a_pass(own)
        shared = lab.shared / ".cluster/list"
        if kind == "empty file":
            shared.write_text("")
        else:
            plant(kind, shared, secret)
        wait_for_a_pass(own)
        assert worker.text("opt/deeplearning/nodes") == listed
    finally:
        watcher.terminate()
        watcher.communicate(timeout=60)


def hostile_lines() -> tuple[str, ...]:
    """Return lines that no master writes to the list of nodes."""
    facts = f"i-00000000000000009,10.0.64.9,1,ens5,us-east-1a,0,x86_64,{key_of('EVIL')}"
    return (
        *(f"{name},{facts}" for name in HOSTILE_NAMES if "\udcff" not in name),
        f"deeplearning-worker3,{facts.replace('10.0.64.9', '$(touch INJECTED)')}",
        f"deeplearning-worker3,{facts}, more",
        f"deeplearning-worker3,{facts.replace(',ens5', '')}",
        "deeplearning-worker3",
        "# deeplearning-worker3 is left out: $(touch INJECTED)",
        "",
        "# deepcdk: end",
    )


def test_invalid_lines_of_list_are_omitted_from_files_of_worker(
    lab: Lab, three: tuple[Node, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)
    worker = three[1]
    before = changes(worker)
    with (lab.shared / ".cluster/list").open("a") as file:
        file.writelines(f"{line}\n" for line in hostile_lines())
    refreshed(worker)
    listed = worker.text("opt/deeplearning/nodes")
    told = "".join(f"{part}\n" for part in listed.splitlines() if part.startswith("#"))
    assert listed == before.pop("opt/deeplearning/nodes") + told
    assert {path: text for path, text in changes(worker).items() if path in before} == before
    assert re.fullmatch(r"(# [a-z0-9 :_-]+\n)*", told)
    refreshed(three[0], worker)
    assert worker.text("opt/deeplearning/nodes") == listed.removesuffix(told)
    assert not list(lab.folder.rglob("INJECTED"))


def test_master_key_written_by_a_node_is_not_authorized(lab: Lab, three: tuple[Node, Node, Node]) -> None:
    _, worker, _ = three
    keys = "home/ec2-user/.ssh/authorized_keys"
    before = worker.text(keys)
    assert before.count("ssh-ed25519") == 1
    for text in (f'command="id" {key_of("EVIL")}\n', f"ssh-rsa AAAA\n{key_of('EVIL')}\n", "# deepcdk: end\n"):
        (lab.shared / ".cluster/master.pub").write_text(text)
        assert "ignoring the registry's master.pub: it is not the master's key in AWS: " in refreshed(worker)
        assert worker.text(keys) == before


def test_boot_settings_of_node_are_not_executed(lab: Lab) -> None:
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


def test_script_and_laptop_have_same_patterns() -> None:
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


# A worker in separate namespaces. After each removal of a path, when the scripts expect nothing there, root on another
# node creates a link to $VICTIM in its place.
NODE = """
set -e
for path in /opt /mnt /etc /var/log /home; do mount -t tmpfs -o mode=755 none "$path"; done
mkdir -p /opt/deepcdk/bin /opt/deeplearning /mnt/efs/.cluster/new-worker /etc/profile.d /etc/ssh /home/bin /home/victim
mount -t tmpfs none /mnt/efs
mkdir -p /mnt/efs/.cluster/new-worker /mnt/efs/.cluster/nodes /mnt/efs/.cluster/leaving
ln -s {python} /opt/deepcdk/bin/python3
cp {scripts}/node_registry.sh /opt/deepcdk/bin/registry
cp {scripts}/node_registry_worker.sh /opt/deepcdk/bin/worker
cp {scripts}/termination_notice.sh /opt/deepcdk/bin/notice
chmod 755 /opt/deepcdk/bin/*
cat >/opt/deepcdk/node.conf <<CONF
role=worker instance_id=i-00000000000000002 ip=10.0.64.2 zone=us-east-1a slots=1 gpus=0 kind=x86_64 interface=eth0
login_uid=1000 login_gid=1000 login_home=/home/user rank_home=/home/rank efs_mount=/mnt/efs region=us-east-1
CONF
echo '{key} root@here' >/etc/ssh/ssh_host_ed25519_key.pub
echo kept >/home/victim/file
cd /mnt/efs/.cluster
for name in rm mkdir; do
  printf '#!/bin/bash\\n/bin/%s "$@"\\ncd /mnt/efs/.cluster\\n%s >/dev/null 2>&1\\n' $name '{attack}' >/home/bin/$name
done
printf '#!/bin/sh\\nexit 1\\n' >/home/bin/aws
printf '#!/bin/sh\\ncase $* in *lifecycle*) echo Terminated ;; esac\\n' >/home/bin/curl
chmod 755 /home/bin/*
export PATH=/home/bin:$PATH
{attack}
for command in refresh watch; do # which asks whether the instance ends
  timeout 6 /opt/deepcdk/bin/registry $command || true
  ls -A /home/victim; cat /home/victim/file
done
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("new-worker", "/home/victim"),
        ("new-worker/i-00000000000000002", "/home/victim/file"),
        ("lock", "/home/victim/new"),
        ("leaving", "/home/victim"),
        ("leaving/i-00000000000000002", "/home/victim/file"),
    ],
)
def test_symlink_created_between_two_commands_of_root_is_not_followed(path: str, target: str) -> None:
    attack = f"/bin/rm -rf {path}; ln -sfn {target} {path}; touch -hd @0 {path}"
    script = NODE.format(python=sys.executable, scripts=SCRIPTS, key=key_of("HOST2"), attack=attack)
    alone = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words = ["unshare", *alone, "bash", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "file\nkept\n" * 2), done.stderr
