"""The master and the workers identify each other through AWS. Nothing that root on another node can write counts."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ssh.host_keys import BEGIN, END, parse_console
from stacks.user_data import SCRIPTS
from tests.stacks.boot.nodelab import Lab, Node, booted, key_of
from tests.waiting import eventually

KEYS = "home/ec2-user/.ssh/authorized_keys"
KNOWN = "etc/ssh/ssh_known_hosts"
NODES = "opt/deeplearning/nodes"


@pytest.fixture
def master(lab: Lab) -> Node:
    return booted(lab.node("master", 1))


@pytest.fixture
def worker(lab: Lab, master: Node) -> Node:
    """Boot a worker after the master, which has not looked since then."""
    del master
    return booted(lab.node("worker", 2))


def refreshed(node: Node, **changes: str) -> str:
    status, said = node.refresh(**changes)
    assert status == 0, said
    return said


def plant(lab: Lab, text: str) -> None:
    """Replace the master's key in the registry, as root on any node can."""
    shared = lab.shared / ".cluster/master.pub"
    shared.unlink(missing_ok=True)
    shared.write_text(text)


def asked(lab: Lab, what: str = "consoles") -> list[str]:
    """Return the instances with a console that was read, or the instances that read the key, in order."""
    file = lab.folder / what
    return file.read_text().split() if file.exists() else []


def test_worker_rejects_and_logs_forged_master_key(lab: Lab, worker: Node) -> None:
    before = worker.text(KEYS)
    assert before.count("ssh-ed25519") == 1
    plant(lab, f"{key_of('EVIL')} 10.0.64.3\n")
    said = refreshed(worker)
    assert "ignoring the registry's master.pub: it is not the master's key in AWS: " in said
    assert "EVIL" in said
    assert worker.text(KEYS) == before


def test_worker_booting_after_forgery_accepts_only_the_master(lab: Lab, master: Node) -> None:
    plant(lab, f"{key_of('EVIL')}\n")
    newcomer = booted(lab.node("worker", 3))
    keys = newcomer.text(KEYS)
    assert master.environment()["LAB_KEY"] in keys
    assert "EVIL" not in keys


def test_worker_calls_aws_rarely_despite_forged_keys(lab: Lab, worker: Node) -> None:
    (lab.folder / "asked").unlink()
    plant(lab, f"{key_of('EVIL')}\n")
    beats = lab.shared / ".cluster/nodes/deeplearning-worker1"
    watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        for _ in range(20):
            seen = beats.stat().st_mtime_ns
            eventually(lambda seen=seen: beats.stat().st_mtime_ns > seen)  # type: ignore[misc]
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)
    assert 1 <= len(asked(lab, "asked")) <= 10


def test_unchanged_key_is_not_requested_again(lab: Lab, worker: Node) -> None:
    (lab.folder / "asked").unlink()
    beats = lab.shared / ".cluster/nodes/deeplearning-worker1"
    watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        for _ in range(10):
            seen = beats.stat().st_mtime_ns
            eventually(lambda seen=seen: beats.stat().st_mtime_ns > seen)  # type: ignore[misc]
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)
    assert asked(lab, "asked") == []


def test_new_process_requests_key_not_yet_authorized(lab: Lab, worker: Node) -> None:
    (lab.folder / "asked").unlink()
    keys = worker.root / "root/.ssh/authorized_keys"
    keys.write_text(keys.read_text().replace('from="10.0.64.1"', 'from="10.0.64.9"'))
    refreshed(worker)
    assert asked(lab, "asked") == [worker.instance_id]
    assert 'from="10.0.64.1"' in keys.read_text()


def test_worker_accepts_master_within_an_hour_after_deleted_hint(lab: Lab) -> None:
    worker = booted(lab.node("worker", 2))
    master = booted(lab.node("master", 1))
    (lab.shared / ".cluster/master.pub").unlink()
    watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05", DEEPCDK_KEYS_S="1")
    try:
        eventually(lambda: master.environment()["LAB_KEY"] in worker.text(KEYS))
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)


def test_worker_keeps_and_logs_authorized_keys_without_aws(lab: Lab, worker: Node) -> None:
    before = worker.text(KEYS)
    plant(lab, f"{key_of('EVIL')}\n")
    assert r"cannot read the master's key: AccessDeniedException" in refreshed(worker, LAB_DENIED="1")
    assert worker.text(KEYS) == before


def test_parameter_without_key_authorizes_no_key(lab: Lab, worker: Node) -> None:
    before = worker.text(KEYS)
    plant(lab, f"{key_of('EVIL')}\n")
    for text in (
        "none",
        f"{key_of('EVIL')}",
        f'command="id" {key_of("EVIL")} 10.0.64.1',
        f"{key_of('A')} 10.0.64.1\nx",
    ):
        (lab.folder / "parameter").write_text(text)
        assert "no key of a master is in CFN-RolesAdmittedKey" in refreshed(worker)
        assert worker.text(KEYS) == before


def test_master_that_cannot_publish_its_key_fails_boot_with_aws_error(lab: Lab) -> None:
    status, said = lab.node("master", 1).boot(LAB_DENIED="1")
    assert status != 0
    assert "cannot store the cluster's key: AccessDeniedException" in said
    assert "failed: taking a name among the nodes" in said


def test_running_master_continues_if_aws_rejects_its_key(lab: Lab, master: Node) -> None:
    watcher = master.registry("watch", DEEPCDK_PAUSE_S="0.05", LAB_DENIED="1")
    try:
        newcomer = booted(lab.node("worker", 3))
        eventually(lambda: f"{newcomer.ip} " in master.text("etc/hosts"))
    finally:
        watcher.send_signal(signal.SIGTERM)
        said, _ = watcher.communicate(timeout=60)
    assert said.count("cannot store the cluster's key") == 1


def test_master_reads_host_key_of_worker_from_console_only(lab: Lab, master: Node, worker: Node) -> None:
    refreshed(master)
    before = master.text(KNOWN)
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in before
    lab.state("deeplearning-worker1", host_key=key_of("EVIL"), ip="10.0.64.9")
    told = "deeplearning-worker1 is left out: its host key in the registry differs from its console"
    said = refreshed(master)
    assert f"{told}: " in said
    assert "EVIL" in said
    assert "EVIL" not in master.text(KNOWN)
    assert master.text(NODES).splitlines()[1:] == [f"# {told}"]


def test_wrong_address_is_listed_with_key_of_worker(lab: Lab, master: Node, worker: Node) -> None:
    """SSH then rejects the host at that address."""
    lab.state("deeplearning-worker1", ip="10.0.64.9")
    refreshed(master)
    assert f"deeplearning-worker1,10.0.64.9 {key_of('HOST2')}\n" in master.text(KNOWN)
    assert worker.text("dev/console").count("HOST2") == 1


def test_master_ignores_its_forged_registry_entry(lab: Lab, master: Node) -> None:
    before = master.text(KNOWN), master.text("etc/hosts"), master.text(NODES)
    lab.state("deeplearning-master", ip="10.0.64.9", host_key=key_of("EVIL"))
    refreshed(master)
    assert (master.text(KNOWN), master.text("etc/hosts"), master.text(NODES)) == before


def test_instance_outside_cluster_is_never_identified(lab: Lab, master: Node, worker: Node) -> None:
    del worker
    lab.state("deeplearning-worker1", instance_id="i-0000000000000beef", host_key=key_of("EVIL"))
    said = refreshed(master)
    assert r"cannot read the console of i-0000000000000beef: UnauthorizedOperation" in said
    assert "worker1" not in master.text(NODES)
    assert "EVIL" not in master.text(KNOWN)


def test_worker_cannot_impersonate_master_by_instance_id(lab: Lab, master: Node, worker: Node) -> None:
    del worker
    lab.state("deeplearning-worker1", instance_id=master.instance_id, host_key=key_of("EVIL"))
    shutil.move(master.root / "dev/console", lab.folder / "console")  # a worker's role may not read the master's
    refreshed(master)
    assert "EVIL" not in master.text(KNOWN)


def test_unreadable_consoles_are_logged_and_read_later(lab: Lab, master: Node, worker: Node) -> None:
    python = lab.commands / "python3.12"
    python.rename(lab.commands / "python3.quick")
    python.write_text("#!/bin/sh\necho Traceback >&2\necho no metadata >&2\nexit 3\n")
    python.chmod(0o755)
    assert "cannot read the consoles: status\\ 3:\\ no\\ metadata" in refreshed(master)
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    assert "cannot read the consoles: status\\ 124" in refreshed(master, DEEPCDK_ASK_S="1")
    (lab.commands / "python3.quick").rename(python)
    assert refreshed(master) == ""
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in master.text(KNOWN)


def test_late_console_is_awaited_and_reported_after_a_minute(lab: Lab, master: Node, worker: Node) -> None:
    console = worker.text("dev/console")
    (worker.root / "dev/console").unlink()
    assert refreshed(master) == ""
    assert "worker1" not in master.text(NODES)
    refreshed(master, DEEPCDK_CONSOLE_S="0")
    assert "# deeplearning-worker1 is left out: its console shows no host key\n" in master.text(NODES)
    (worker.root / "dev/console").write_text(console)
    assert refreshed(master) == ""
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in master.text(KNOWN)


def test_console_is_requested_once_and_used_only_for_its_instance(lab: Lab, master: Node, worker: Node) -> None:
    for _ in range(3):
        refreshed(master)
    assert asked(lab) == [worker.instance_id]
    kept = master.root / "opt/deepcdk/host-keys"
    assert {path.name: path.read_text() for path in kept.iterdir()} == {worker.instance_id: f"{key_of('HOST2')}\n"}
    other = booted(lab.node("worker", 3))
    refreshed(master)
    assert asked(lab) == [worker.instance_id, other.instance_id]


def test_later_key_on_console_is_ignored(lab: Lab, master: Node, worker: Node) -> None:
    refreshed(master)
    worker.print_keys(key_of("EVIL"))
    lab.state("deeplearning-worker1", host_key=key_of("EVIL"))
    assert "its host key in the registry differs from its console" in refreshed(master)
    assert "EVIL" not in master.text(KNOWN)


def test_replacement_master_reads_all_keys_again(lab: Lab, master: Node, worker: Node) -> None:
    refreshed(master)
    lab.state("deeplearning-worker1", host_key=key_of("EVIL"))
    lab.silence("deeplearning-master")
    second = booted(lab.node("master", 9))
    assert "EVIL" not in second.text(KNOWN)
    lab.state("deeplearning-worker1", host_key=key_of("HOST2"))
    refreshed(second)
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in second.text(KNOWN)


def test_truncated_cached_key_is_read_from_console_again(lab: Lab, master: Node, worker: Node) -> None:
    refreshed(master)
    (master.root / "opt/deepcdk/host-keys" / worker.instance_id).write_text("ssh-ed25519 AAAA\n")
    refreshed(master)
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in master.text(KNOWN)


def test_xen_console_without_latest_output_is_read(lab: Lab, master: Node, worker: Node) -> None:
    (worker.root / "xen").touch()
    refreshed(master)
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in master.text(KNOWN)


def test_xen_console_is_awaited_ten_times_as_long(lab: Lab, master: Node, worker: Node) -> None:
    console = worker.root / "dev/console"
    shown = console.read_bytes()
    console.write_bytes(b"")
    (worker.root / "xen").touch()
    watcher = master.registry("watch", DEEPCDK_PAUSE_S="0.1", DEEPCDK_CONSOLE_S="6")
    try:
        eventually(lambda: asked(lab).count(worker.instance_id) >= 4)
        assert "left out" not in master.text(NODES)
        console.write_bytes(shown)
        eventually(lambda: key_of("HOST2") in master.text(KNOWN))
    finally:
        watcher.terminate()
        watcher.wait(timeout=60)


def test_keys_are_found_after_64_kb_of_other_output(lab: Lab, master: Node, worker: Node) -> None:
    console = worker.root / "dev/console"
    junk = f"{BEGIN}" * 1500 + "\0\x1b[2J\xff" + "x" * 40000
    console.write_bytes(junk.encode("latin-1") + b"\n" + console.read_bytes())
    refreshed(master)
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in master.text(KNOWN)


KEY_LINES = st.sampled_from(
    [key_of("A"), key_of("B"), f"[   1.2] cloud-init[9]: {key_of('C')} root@x\r", "ssh-rsa AAAA"]
)
LINES = st.lists(
    st.one_of(KEY_LINES, st.sampled_from([BEGIN, END, f"[  3.1] {BEGIN}", ""]), st.text("ab \t")), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(consoles=st.lists(LINES, min_size=1, max_size=20))
def test_master_and_laptop_read_same_key_from_any_console(
    consoles: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("consoles")
    script = (SCRIPTS / "node_registry.sh").read_text(encoding="utf-8")
    part = (SCRIPTS / "node_registry_master.sh").read_text(encoding="utf-8")
    rules = "LC_ALL=C\n" + script[script.index("octet=") : script.index("log() {")]
    reader = part[part.index("shown_key() {") : part.index("# Read the host keys of new nodes")]
    for number, lines in enumerate(consoles):
        (folder / f"{number:02}").write_text("\n".join(lines))
    loop = 'for each in "$1"/*; do shown_key <"$each"; echo; done'
    done = subprocess.run(
        ["bash", "-euc", rules + reader + loop, "bash", str(folder)], capture_output=True, text=True, check=True
    )
    wanted = []
    for lines in consoles:
        ours = [key for key in parse_console("\n".join(lines)) if key.algorithm == "ssh-ed25519"]
        wanted.append(str(ours[-1]) if ours else "")
    assert done.stdout.splitlines() == wanted
