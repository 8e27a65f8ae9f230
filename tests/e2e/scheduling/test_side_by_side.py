"""Concurrent runs on disjoint nodes of one cluster: each uses its own nodes and writes its own record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

HOLD: Final = """\
import pathlib, platform, time
print("holding", platform.node(), flush=True)
while not pathlib.Path("../go").exists():
    time.sleep(0.2)
print("let go", flush=True)
"""
"""A program whose ranks work until a file appears in the run's directory."""


HOSTILE: Final = """\
import ctypes, errno, glob, json, os, signal, socket, struct, subprocess, sys, threading, time

run, work = os.path.dirname(os.getcwd()), os.getcwd()
secret = os.environ["TOKEN"]
memory = ctypes.create_string_buffer(("in memory: " + secret).encode())
os.makedirs(f"{run}/outputs", exist_ok=True)
for path in (f"{work}/secret", f"{run}/outputs/weights", os.path.expanduser("~/secret"), "/tmp/secret",
             "/dev/shm/secret"):
    with open(path, "w") as file:
        file.write(secret)
kept = open(f"{work}/secret")
met = []

def serve(kind, address, family=socket.AF_INET):
    server = socket.socket(family, kind)
    server.bind(address)
    if kind == socket.SOCK_STREAM:
        server.listen(9)
    def answer():
        while True:
            met.append(server.accept()[1] if kind == socket.SOCK_STREAM else server.recvfrom(99)[1])
    threading.Thread(target=answer, daemon=True).start()
    return server

servers = [serve(socket.SOCK_STREAM, ("", 29511)), serve(socket.SOCK_DGRAM, ("", 29511)),
           serve(socket.SOCK_STREAM, ("", 2222)), serve(socket.SOCK_STREAM, "\\0deepcdk-test", socket.AF_UNIX)]
with open(f"{work}/here.json", "w") as file:
    json.dump({"pid": os.getpid(), "address": ctypes.addressof(memory)}, file)
while not os.path.exists(f"{work}/other.json"):
    time.sleep(0.1)
with open(f"{work}/other.json") as file:
    other = json.load(file)
libc = ctypes.CDLL(None, use_errno=True)
theirs = f"{os.path.dirname(run)}/{other['run']}"
needle = other["secret"].encode()

def outcome(action, *words):
    try:
        result = action(*words)
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    return f"done: {result!r}"[:200]

def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)

def append(path):
    with open(path, "a") as file:
        file.write("x")

def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result

def connect(kind, address, family=socket.AF_INET, mark=None):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        if mark is not None:
            client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
        client.connect(address)
        client.send(b"x")
        if kind == socket.SOCK_DGRAM:
            time.sleep(0.3)
            client.send(b"x")

def read_memory(pid):
    out = ctypes.create_string_buffer(64)
    iovec = lambda at: struct.pack("PP", at, 64)
    size = checked(libc.process_vm_readv(pid, iovec(ctypes.addressof(out)), 1, iovec(other["address"]), 1, 0))
    if needle not in out.raw:
        raise OSError(errno.ESRCH, "another process")
    return size

def trace(pid):
    status = read(f"/proc/{pid}/environ")
    if needle not in status:
        raise OSError(errno.ESRCH, "another process")
    return checked(libc.ptrace(16, pid, None, None))

def kill(pid):
    if needle not in read(f"/proc/{pid}/environ"):
        raise OSError(errno.ESRCH, "another process")
    os.kill(pid, signal.SIGUSR1)

def in_memory_file(pid):
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(other["address"])
        if needle not in file.read(64):
            raise OSError(errno.ESRCH, "another process")

found = []
for pattern in ("/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/fd/*", "/tmp/*", "/dev/shm/*",
                "/home/deepcdk-rank/files/*", "/home/deepcdk-rank/files/.cache/deepcdk/*"):
    for path in glob.glob(pattern):
        try:
            if os.path.isfile(path) and needle in read(path):
                found.append(path)
        except OSError:
            pass
stream, datagram, address = socket.SOCK_STREAM, socket.SOCK_DGRAM, other["node"]
groups = "import os; os.setgroups([%d])" % other["gid"]
unshare = ["unshare", "--user", "--map-root-user"]
def as_group(*words):
    done = subprocess.run([*words], capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise OSError(errno.EPERM, done.stderr.decode())
names = "work/secret", "outputs/weights", "spec.json", "launcher.log", "work/here.json"
files = [f"{theirs}/{name}" for name in names]
result = {
    "files": {
        **{f"read {path}": outcome(read, path) for path in files},
        **{f"append {path}": outcome(append, path) for path in (f"{theirs}/work/secret", f"{theirs}/new")},
        "list": outcome(os.listdir, theirs), "list work": outcome(os.listdir, f"{theirs}/work"),
        "open": outcome(os.chmod, theirs, 0o777), "replace": outcome(os.rename, theirs, f"{theirs}-mine"),
        "link": outcome(os.link, f"{theirs}/work/secret", f"{work}/linked"),
        "the group": outcome(os.setgid, other["gid"]), "groups": outcome(os.setgroups, [other["gid"]]),
        "the group's files": outcome(os.chown, f"{work}/secret", -1, other["gid"]),
        "as root of a namespace": outcome(as_group, *unshare, "cat", f"{theirs}/work/secret"),
        "groups in a namespace": outcome(as_group, *unshare, sys.executable, "-c", groups),
        "newgrp": outcome(as_group, "sg", "deepcdk-run", "-c", f"cat {theirs}/work/secret"),
    },
    "ports": {
        "TCP": outcome(connect, stream, (address, 29511)), "another": outcome(connect, stream, (address, 2222)),
        "UDP": outcome(connect, datagram, (address, 29511)),
        "IPv6": outcome(connect, stream, (f"::ffff:{address}", 29511), socket.AF_INET6),
        "marked": outcome(connect, stream, (address, 29511), socket.AF_INET, 0),
        "from a namespace": outcome(as_group, *unshare, "bash", "-c", f"echo x >/dev/tcp/{address}/29511"),
        "ssh": outcome(as_group, "ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=no", address, "true"),
    },
    "processes": {
        "signal": outcome(kill, other["pid"]), "ptrace": outcome(trace, other["pid"]),
        "process_vm_readv": outcome(read_memory, other["pid"]), "mem": outcome(in_memory_file, other["pid"]),
    },
    "found": found,
}
with open(f"{work}/told.json", "w") as file:
    json.dump(result, file)
while not os.path.exists(f"{work}/end"):
    time.sleep(0.1)
with open(f"{work}/met.json", "w") as file:
    json.dump([str(each) for each in met], file)
"""
"""A rank that hides secrets in every possible place and then attacks a rank of another run."""


@pytest.fixture
def four_workers(cluster: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    """Give the shared cluster four workers; afterwards restore two workers and no runs."""
    cluster.fab("scale", "4", "--yes")
    yield cluster
    for run_id, run in runs(cluster).items():
        if run["state"] in ("queued", "starting", "running"):
            cluster.fab("stop", run_id, "--force", check=False)
    cluster.fab("scale", "2", "--force", "--yes")


def runs(cloud: EmbeddedCloud) -> dict[str, dict[str, Any]]:
    """Return the state of each run by its id."""
    return {str(run["run_id"]): run for run in json.loads(cloud.fab("runs", "--json").stdout)}


def record(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Return the record of a run."""
    found: dict[str, Any] = json.loads(cloud.fab("show", run, "--json").stdout)
    return found


def start(cloud: EmbeddedCloud, nodes: int, *words: str) -> str:
    """Start a run on this number of nodes and detach; return its id."""
    flags = ("--nodes", str(nodes), "--skip-preflight", "--restarts", "0", "--yes", "--detach")
    said = cloud.fab("train", *flags, *words).stdout
    found = re.search(r"run (\S+): \d+ ranks?", said)
    assert found is not None, said
    return found[1]


def test_concurrent_runs_survive_a_stop_and_a_lost_node_while_another_waits(
    four_workers: EmbeddedCloud, tmp_path: Path
) -> None:
    cloud = four_workers
    (tmp_path / "hold.py").write_text(HOLD)
    hold = ("--payload", str(tmp_path), "--entry", "hold.py")
    pair = start(cloud, 2, *hold)
    steady = start(cloud, 1, *hold)
    unlucky = start(cloud, 1, *hold)
    three = (pair, steady, unlucky)
    eventually(lambda: {cloud.run(run).state for run in three} == {"running"}, what=lambda: runs(cloud))
    hosts = {run: tuple(runs(cloud)[run]["hosts"]) for run in three}
    assert [len(hosts[run]) for run in three] == [2, 1, 1]
    assert sorted(sum(hosts.values(), ())) == [f"deeplearning-worker{index}" for index in range(1, 5)]

    refused = cloud.fab("train", "--nodes", "2", "--yes", *hold, check=False)
    assert refused.returncode == 1
    for run in three:
        assert f"run {run} is live on {', '.join(hosts[run])}" in refused.stderr.replace("\n", " ")
    assert "wait your turn with --queue, add nodes with `fab scale 6`" in refused.stderr
    waiting = start(cloud, 2, "--queue", *hold)
    assert (cloud.run(waiting).state, runs(cloud)[waiting]["position"]) == ("queued", 1)
    unnamed = cloud.fab("stop", check=False)
    assert (unnamed.returncode, "3 runs are live; choose one with --run ID" in unnamed.stderr) == (1, True), (
        unnamed.stderr
    )
    loads = json.loads(cloud.fab("status", "--load", "--json").stdout)["load"]
    shown = {each["name"]: each["run"] for each in loads if each["run"]}
    assert shown == {name: run for run, names in hosts.items() for name in names}
    kept = cloud.fab("scale", "3", "--yes", check=False)
    assert (kept.returncode, "would take nodes from run" in kept.stderr) == (1, True), kept.stderr

    address = next(host["address"] for host in record(cloud, unlucky)["spec"]["hosts"])
    lost = next(i["InstanceId"] for i in cloud.instances("worker") if i["PrivateIpAddress"] == address)
    cloud.aws("ec2", "terminate-instances", "--instance-ids", lost)
    eventually(lambda: cloud.run(unlucky).state == "failed", what=lambda: runs(cloud)[unlucky])
    assert cloud.run(waiting).state == "queued", "one node less is no node free for it"
    cloud.fab("stop", pair)
    eventually(lambda: cloud.run(waiting).state == "running", what=lambda: runs(cloud)[waiting])
    assert cloud.run(steady).state == "running"
    held = [cloud.run(run) for run in (steady, waiting)]
    for run_files in held:
        (run_files.path / "go").touch()
    eventually(lambda: {each.state for each in held} == {"succeeded"}, what=lambda: runs(cloud))

    records = {run: record(cloud, run) for run in (*three, waiting)}
    told = {run: (found["state"]["state"], found["state"]["reason"]) for run, found in records.items()}
    assert told[pair] == ("stopped", "stopped on request")
    assert told[steady] == told[waiting] == ("succeeded", "")
    assert told[unlucky][0] == "failed" and hosts[unlucky][0] in told[unlucky][1], told[unlucky]
    assert not [name for run in (pair, steady) for name in hosts[run] if name in told[unlucky][1]]
    assert [found["attempts"] for found in records.values()] == [1, 1, 1, 1]
    assert records[waiting]["state"]["started"] >= records[pair]["course"]["times"]["ended"]
    assert not set(records[waiting]["state"]["hosts"]) & set(hosts[steady])
    for run, others in ((steady, (pair, unlucky, waiting)), (waiting, (pair, steady, unlucky))):
        log = (cloud.run(run).path / "launcher.log").read_text()
        assert log.count("let go") == len(records[run]["state"]["hosts"])
        assert not [other for other in others if other in log]


def test_ranks_of_concurrent_runs_cannot_attack_each_other(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "attack.py").write_text(HOSTILE)
    secrets = ("swordfish-of-one", "swordfish-of-two")
    attack = ("--payload", str(tmp_path), "--entry", "attack.py", "--launcher", "plain")
    for secret in secrets:
        (tmp_path.parent / secret).write_text(secret)
    names = [start(cluster, 1, *attack, "--secret", f"TOKEN=@{tmp_path.parent / secret}") for secret in secrets]
    stored = [cluster.run(name) for name in names]
    try:
        eventually(lambda: all((run.path / "work/here.json").exists() for run in stored), what=lambda: runs(cluster))
        nodes = [record(cluster, name)["spec"]["hosts"][0] for name in names]
        assert nodes[0]["name"] != nodes[1]["name"], "no node ever has two runs"
        for own, other in ((0, 1), (1, 0)):
            facts = json.loads((stored[other].path / "work/here.json").read_text())
            facts |= {"run": names[other], "secret": secrets[other], "node": nodes[other]["address"]}
            facts["gid"] = stored[other].path.stat().st_gid
            (stored[own].path / "work/other.new").write_text(json.dumps(facts))
            (stored[own].path / "work/other.new").rename(stored[own].path / "work/other.json")
        eventually(lambda: all((run.path / "work/told.json").exists() for run in stored), what=lambda: runs(cluster))
        # During the attacks the other rank is alive and its files exist.
        assert all(cluster.run(name).state == "running" for name in names)
    finally:
        for run in stored:
            (run.path / "work/end").touch()
    eventually(lambda: {cluster.run(name).state for name in names} == {"succeeded"}, what=lambda: runs(cluster))
    for run, secret in zip(stored, secrets, strict=True):
        told = json.loads((run.path / "work/told.json").read_text())
        for attacks in (told["files"], told["ports"], told["processes"]):
            assert not {attack: end for attack, end in attacks.items() if end.startswith("done")}
        assert told["found"] == []
        assert json.loads((run.path / "work/met.json").read_text()) == [], "the other rank has connected"
        assert (run.path / "work/secret").read_text() == secret
