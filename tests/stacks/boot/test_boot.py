"""The boot script, run for real under its own root directory."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.stacks.boot.nodelab import Lab, booted
from tests.waiting import eventually


def test_worker_signals_success_after_it_is_in_every_file(lab: Lab) -> None:
    worker = booted(lab.node("worker", 7))
    assert worker.text("signals") == (
        "--success true --reason ready --stack deepcdk --resource WorkerGroup --region us-east-1\n"
    )
    line = f"deeplearning-worker1 {worker.ip} {worker.instance_id} 1 ens5 us-east-1a {os.uname().machine}-py3.12\n"
    assert worker.text("opt/deeplearning/nodes") == line
    assert worker.text("opt/deeplearning/workers") == "deeplearning-worker1\n"
    assert f"{worker.ip} deeplearning-worker1\n" in worker.text("etc/hosts")
    assert "127.0.0.1 localhost\n" in worker.text("etc/hosts")


def test_environment_file_has_exports_of_deepcfn(lab: Lab) -> None:
    booted(lab.node("worker", 1))
    booted(lab.node("master", 100))
    second = booted(lab.node("worker", 2))
    exports = [line for line in second.text("etc/profile.d/deeplearning.sh").splitlines() if line.startswith("export")]
    assert sorted(exports) == [
        "export DEEPLEARNING_NODES_PATH=/opt/deeplearning/nodes",
        "export DEEPLEARNING_WORKERS_COUNT=2",
        "export DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers",
        "export DEEPLEARNING_WORKER_GPU_COUNT=0",
        "export EFS_MOUNT=/mnt/efs",
    ]


def test_file_system_is_mounted_as_in_deepcfn(lab: Lab) -> None:
    node = booted(lab.node("worker", 1))
    options = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,nosuid,nodev"
    host = node.settings.file_system
    assert node.text("mounts") == f"-t nfs4 -o {options} {host}:/ {node.root}/mnt/efs\n"
    assert node.text("etc/fstab") == f"{host}:/ /mnt/efs nfs4 {options},_netdev 0 0\n"


def test_user_of_ranks_has_no_service_manager_and_no_timed_jobs(lab: Lab) -> None:
    node = lab.node("worker", 1)
    (node.root / "etc/at.deny").write_text("bin\n")
    booted(node)
    assert (node.root / "etc/systemd/system/user@60900.service").readlink() == Path("/dev/null")
    assert (node.text("etc/cron.deny"), node.text("etc/at.deny")) == ("deepcdk-rank\n", "bin\ndeepcdk-rank\n")
    other = booted(lab.node("worker", 2))
    assert not (other.root / "etc/at.deny").exists(), "without it root alone may use at"


@pytest.mark.parametrize("role", ["master", "worker"])
def test_second_run_adds_no_duplicates(lab: Lab, role: str) -> None:
    node = booted(lab.node(role, 1))
    before = node.files()
    booted(node)
    assert node.files() == before
    assert node.text("mounts").count("\n") == 1
    assert node.text("etc/fstab").count("\n") == 1


def test_failed_mount_signals_failure_and_location(lab: Lab) -> None:
    node = lab.node("worker", 1, mounts=False)
    status, said = node.boot()
    assert status != 0
    assert "failed: mounting the shared file system fs-0123456789abcdef0" in said
    assert node.text("signals").startswith("--success false --reason mounting the shared file system fs-")
    assert lab.owners() == {}


def test_missing_login_user_signals_failure(lab: Lab) -> None:
    node = lab.node("worker", 1, login_user="ubuntu")
    status, said = node.boot()
    assert status != 0
    assert "this image has no user ubuntu (login_user in cdk.json)" in said
    assert "--success false" in node.text("signals")


def test_node_joining_a_complete_stack_is_ready_without_signal(lab: Lab) -> None:
    node = lab.node("worker", 1)
    status, said = node.boot(LAB_DEAF="ValidationError: stack is in CREATE_COMPLETE state and can not be signaled")
    assert status == 0, said
    assert "the stack deepcdk expects no signal" in said
    assert node.text("signals").count("\n") == 1


@pytest.mark.parametrize("broken", [False, True])
def test_node_without_cfn_signal_signals_with_instance_identity(lab: Lab, broken: bool) -> None:
    node = lab.node("worker", 1)
    program = node.root / "opt/aws/bin/cfn-signal"
    program.unlink()
    if broken:
        program.write_text("#!/bin/sh\necho 'ModuleNotFoundError: cfnbootstrap' >&2\nexit 1\n")
        program.chmod(0o755)
    booted(node)
    document = base64.b64encode(f'{{"instanceId": "{node.instance_id}"}}'.encode()).decode()
    (signalled,) = node.text("signals").splitlines()
    assert f"Authorization: CFN_V1 {document}:firstsecond " in signalled
    assert f"LogicalResourceId=WorkerGroup&UniqueId={node.instance_id}&Status=SUCCESS " in signalled
    assert "StackName=deepcdk " in signalled and signalled.endswith(" https://cloudformation.us-east-1.amazonaws.com/")


def test_other_validation_error_of_signal_falls_back_to_instance_identity(lab: Lab) -> None:
    node = lab.node("worker", 1)
    status, said = node.boot(LAB_DEAF="ValidationError: Value at 'uniqueId' failed to satisfy constraint")
    assert status == 0, said
    assert "expects no signal" not in said
    by_program, by_identity = node.text("signals").splitlines()
    assert by_program.startswith("--success true") and "Authorization: CFN_V1 " in by_identity


@pytest.mark.parametrize("path", ["meta-data/instance-id", "identity/document", "identity/signature", "domain"])
def test_signal_retries_the_metadata_service(lab: Lab, path: str) -> None:
    stand_in(lab, "sleep", "exit 0")
    node = lab.node("worker", 1, login_user="ubuntu")
    (node.root / "opt/aws/bin/cfn-signal").unlink()
    (lab.commands / "curl").rename(lab.commands / "curl.answering")
    once = f'[ -e "$DEEPCDK_ROOT/asked" ] || case $* in *{path}*) touch "$DEEPCDK_ROOT/asked"; exit 22 ;; esac'
    stand_in(lab, "curl", f'{once}\nexec {lab.commands}/curl.answering "$@"')
    assert node.boot()[0] != 0
    assert (node.root / "asked").exists()
    (signalled,) = node.text("signals").splitlines()
    assert ":firstsecond " in signalled and "CFN_V1 :" not in signalled
    assert f"UniqueId={node.instance_id}&Status=FAILURE " in signalled
    assert signalled.endswith(" https://cloudformation.us-east-1.amazonaws.com/")


def stand_in(lab: Lab, command: str, body: str) -> None:
    (lab.commands / command).write_text(f"#!/bin/sh\n{body}\n")
    (lab.commands / command).chmod(0o755)


@pytest.mark.parametrize("login_user", ["ubuntu", "ec2-user"])
def test_boot_failure_before_instance_id_is_known_is_signalled(lab: Lab, login_user: str) -> None:
    node = lab.node("worker", 1, login_user=login_user)
    (node.root / "opt/aws/bin/cfn-signal").unlink()
    status, said = node.boot(LAB_NO_RULES="1")
    assert status != 0
    assert "deepcdk: failed: " in said
    (signalled,) = node.text("signals").splitlines()
    assert f"UniqueId={node.instance_id}&Status=FAILURE " in signalled


def test_gpus_become_slots_on_gpu_instances_only(lab: Lab) -> None:
    with_gpus, without = lab.node("worker", 1, instance_type="p4d.24xlarge"), lab.node("worker", 2)
    for node in (with_gpus, without):
        for device in ("nvidia0", "nvidia1", "nvidiactl"):
            (node.root / "dev" / device).touch()
        booted(node)
    master = booted(lab.node("master", 100))
    slots = [line.split()[3] for line in master.text("opt/deeplearning/nodes").splitlines()]
    assert slots == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("answer", "told", "kind"),
    [
        ("9.0\\n9.0\\n", "", "x86_64-sm90-py3.12"),
        ("12.0\\n", "90", "x86_64-sm120-py3.12"),
        ("Field compute_cap is not a valid field to query.\\n", "90", "x86_64-sm90-py3.12"),
        ("9.0\\n8.0\\n", "", "x86_64-gpu-py3.12"),
        ("", "", "x86_64-gpu-py3.12"),
    ],
)
def test_node_registers_its_runtime_kind(lab: Lab, answer: str, told: str, kind: str) -> None:
    node = lab.node("worker", 1, instance_type="p4d.24xlarge", compute_capability=told)
    (node.root / "dev" / "nvidia0").touch()
    smi = node.commands / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncase \"$*\" in *compute_cap*) printf '{answer}' ;; esac\n")
    smi.chmod(0o755)
    uname = node.commands / "uname"
    uname.write_text("#!/bin/sh\necho x86_64\n")
    uname.chmod(0o755)
    booted(node)
    kinds = [line.split()[6] for line in booted(lab.node("master", 100)).text("opt/deeplearning/nodes").splitlines()]
    assert kinds == ["x86_64-py3.12", kind]
    assert f"\nkind={kind}\n" in node.text("opt/deepcdk/node.conf")


def test_python_without_version_is_omitted_from_runtime_kind(lab: Lab) -> None:
    node = lab.node("worker", 1)
    (node.commands / "python3.12").write_text("#!/bin/sh\necho 'Python 3.12'\n")
    booted(node)
    assert re.search(r"^kind=(x86_64|aarch64)$", node.text("opt/deepcdk/node.conf"), re.MULTILINE)


def test_runtime_of_an_image_uses_its_own_python(lab: Lab) -> None:
    node = lab.node("worker", 1)
    made_by = lab.folder / "python3.11"
    made_by.write_text("#!/bin/sh\n")
    made_by.chmod(0o755)
    link = node.root / "opt/deepcdk/runtime/0123456789abcdef/bin/python"
    link.parent.mkdir(parents=True)
    link.symlink_to(made_by)
    assert node.boot()[0] == 0
    assert (node.root / "opt/deepcdk/bin/python3").resolve() == made_by.resolve()


@pytest.mark.parametrize(
    ("hostname", "line"),
    [
        ("ip-10-0-64-2", "10.0.64.2 ip-10-0-64-2"),
        ("ip-10-0-64-2.ec2.internal", "10.0.64.2 ip-10-0-64-2.ec2.internal ip-10-0-64-2"),
        ("$(id)", ""),
    ],
)
def test_own_hostname_resolves_to_reachable_address(lab: Lab, hostname: str, line: str) -> None:
    node = lab.node("worker", 2)
    (node.root / "proc/sys/kernel").mkdir(parents=True)
    (node.root / "proc/sys/kernel/hostname").write_text(f"{hostname}\n")
    booted(node)
    lines = node.text("etc/hosts").splitlines()
    assert lines[0] == "127.0.0.1 localhost"
    assert [each for each in lines if hostname in each] == ([line] if line else [])


@pytest.mark.parametrize(("role", "found"), [("worker", "5\n"), ("master", "15\n")])
def test_tcp_retry_limit_of_worker_and_master(lab: Lab, role: str, found: str) -> None:
    node = booted(lab.node(role, 2))
    limit = node.root / "proc/sys/net/ipv4/tcp_retries2"
    limit.write_text("15\n")
    watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        entry = next((lab.shared / ".cluster/nodes").iterdir())
        before = entry.stat().st_mtime_ns
        eventually(lambda: entry.stat().st_mtime_ns > before)
        eventually(lambda: limit.read_text() == found)
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)
    assert limit.read_text() == found


def test_booting_master_runs_only_code_from_its_own_disk(
    lab: Lab,
) -> None:
    master, worker = booted(lab.node("master", 1)), booted(lab.node("worker", 2))
    own = master.root / "home/ec2-user/.deepcdk/at-boot"
    for hook in (lab.shared / "runs" / ".at-boot", own):
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
    for node in (master, worker):
        node.forget_watcher()
        watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05")
        try:
            eventually(lambda node=node: (node.root / "watchers").exists() or node is worker)  # type: ignore[misc]
        finally:
            watcher.send_signal(signal.SIGTERM)
            watcher.wait(timeout=60)
    uid, gid = os.getuid(), os.getgid()
    started = f"setpriv --reuid {uid} --regid {gid} --init-groups {own}"
    assert (master.text("watchers").strip(), worker.text("watchers")) == (started, "")


@pytest.mark.parametrize("role", ["master", "worker"])
def test_every_node_creates_user_of_ranks_with_same_id_and_no_password(lab: Lab, role: str) -> None:
    node = booted(lab.node(role, 1))
    options = "--no-create-home --home-dir /home/deepcdk-rank --shell /bin/bash --password *"
    assert node.text("accounts").splitlines() == [
        "groupadd --system --gid 60900 deepcdk-rank",
        f"useradd --system --uid 60900 --gid 60900 {options} deepcdk-rank",
    ]
    assert node.text("etc/security/limits.d/deepcdk.conf") == "deepcdk-rank - memlock unlimited\n"
    home = node.root / "home/deepcdk-rank"
    assert [each.stat().st_mode & 0o7777 for each in (home, home / ".ssh", home / "files")] == [0o755] * 3
    assert node.text("owners") == f"60900:60900 {home}/files\n", (
        "the rest is root's: who is admitted, what a shell reads"
    )


def test_existing_user_with_name_of_ranks_user_fails_boot(lab: Lab) -> None:
    node = lab.node("worker", 1)
    with (node.root / "etc/passwd").open("a") as passwd:
        passwd.write("deepcdk-rank:x:1001:1001::/home/deepcdk-rank:/bin/sh\n")
    status, said = node.boot()
    assert status != 0
    assert "this image has a user deepcdk-rank with the ID 1001, but ranks need 60900" in said
    assert "--success false" in node.text("signals")


RANKS = """\
  chain ranks {
    meta l4proto { 6, 17, 33, 132, 136 } th dport { 988, 2049 } reject
    ip daddr { 169.254.169.123, 169.254.169.253 } accept
    ip6 daddr { fd00:ec2::123, fd00:ec2::253 } accept
    ip daddr 169.254.0.0/16 reject
    ip6 daddr fd00:ec2::/32 reject
    ip dscp set 43
    ip6 dscp set 43
  }
"""


def unindented(text: str) -> str:
    return "".join(f"{line.lstrip()}\n" for line in text.splitlines())


@pytest.mark.parametrize("role", ["master", "worker"])
def test_node_loads_firewall_of_ranks_at_every_boot(lab: Lab, role: str) -> None:
    node = booted(lab.node(role, 1))
    assert unindented(RANKS) in node.text("rules")
    assert node.text("run/deepcdk-firewall") == Path("/proc/sys/kernel/random/boot_id").read_text()
    (node.root / "rules").unlink()
    per_boot = node.root / "var/lib/cloud/scripts/per-boot/deepcdk-firewall"
    subprocess.run([str(per_boot)], env=node.environment(), check=True)
    assert unindented(RANKS) in node.text("rules")


def test_systemd_loads_firewall_before_network_is_up(lab: Lab) -> None:
    node = lab.node("worker", 1)
    for folder in ("run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    booted(node)
    unit = node.text("etc/systemd/system/deepcdk-firewall.service")
    assert f"\nExecStart={node.root}/opt/deepcdk/bin/firewall \n" in unit
    assert "\nBefore=network-pre.target\n" in unit
    assert "enable deepcdk-firewall.service\n" in node.text("systemctl")


def test_systemd_limits_memory_and_processes_of_ranks(lab: Lab) -> None:
    """Only the text is compared, because no systemd runs here."""
    node = booted(lab.node("worker", 1))
    memory = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0])
    limits = f"[Slice]\nMemoryMax={memory * 63 // 64 - 65536}K\nTasksMax=33%\n"
    assert node.text("etc/systemd/system/user-60900.slice.d/deepcdk.conf") == limits


def test_ranks_of_cluster_with_buckets_may_use_role_of_their_node(lab: Lab) -> None:
    rules = booted(lab.node("worker", 1, ranks_have_role=True)).text("rules")
    assert "th dport { 988, 2049 } reject\nip dscp set 43\n" in rules
    assert "169.254" not in rules


def test_node_without_firewall_of_ranks_fails_and_takes_no_name(lab: Lab) -> None:
    node = lab.node("worker", 1)
    status, said = node.boot(LAB_NO_RULES="1")
    assert status != 0
    assert "failed: loading the firewall of the ranks" in said
    assert node.text("signals").startswith("--success false --reason loading the firewall of the ranks failed")
    assert not (node.root / "run/deepcdk-firewall").exists()
    assert lab.owners() == {}


def test_user_of_ranks_has_no_subordinate_ids(lab: Lab) -> None:
    node = lab.node("worker", 1)
    for name in ("subuid", "subgid"):
        (node.root / "etc" / name).write_text("ec2-user:100000:65536\ndeepcdk-rank:165536:65536\n60900:231072:65536\n")
    booted(node)
    assert [node.text(f"etc/{name}") for name in ("subuid", "subgid")] == ["ec2-user:100000:65536\n"] * 2
