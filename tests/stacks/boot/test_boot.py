"""The boot and registry scripts, run for real under root directories of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.user_data import SCRIPTS, USER_DATA_LIMIT, compact, may_have_gpus, user_data
from tests.stacks.boot.nodelab import Lab, Node, booted, key_of
from tests.waiting import eventually


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_user_data_stays_well_under_the_limit(lab: Lab) -> None:
    assert len(user_data(lab.node("master", 1).settings).encode()) < USER_DATA_LIMIT // 2


def test_user_data_is_the_same_each_time_and_shows_its_settings(lab: Lab) -> None:
    settings = lab.node("master", 1).settings
    assert user_data(settings) == user_data(settings)
    assert "\nexport DEEPCDK_LOGIN_USER=ec2-user\n" in user_data(settings)


@pytest.mark.parametrize("settings", [{}, {"lustre": "x", "scratch": "/s", "agent": "/a", "heeds_notices": True}])
def test_packed_scripts_come_out_as_they_went_in(lab: Lab, settings: dict[str, str | bool]) -> None:
    node = lab.node("worker", 1, mounts=False, **settings)
    assert node.boot()[0] != 0
    unpacked = {path.name: path for path in (node.root / "opt/deepcdk/bin").iterdir()}
    assert set(unpacked) == {"registry", "node", *({"lustre", "scratch", "agent", "notice"} if settings else ())}
    for name, path in unpacked.items():
        assert path.read_text() == compact((SCRIPTS / f"{name}.sh").read_text())
        assert path.stat().st_mode & 0o777 == 0o755


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_no_line_of_a_compact_script_looks_like_the_name_before_one(script: str) -> None:
    assert not any(line.startswith("#: ") for line in compact(script).split("\n"))


def test_user_data_quotes_what_a_shell_would_read(lab: Lab) -> None:
    settings = lab.node("worker", 1, stack="a b; $(touch /tmp/x)").settings
    assert "export DEEPCDK_STACK='a b; $(touch /tmp/x)'\n" in user_data(settings)


def test_compact_keeps_the_interpreter_and_drops_comments() -> None:
    assert compact("#!/bin/bash\n# why\n\n  # why\necho '# kept' # kept\n") == "#!/bin/bash\necho '# kept' # kept\n"


@pytest.mark.parametrize(
    ("instance_type", "gpus"),
    [
        ("p5.48xlarge", True),
        ("g6e.xlarge", True),
        ("gr6.4xlarge", True),
        ("c5.2xlarge", False),
        ("p99.large", True),
        ("c99.large", False),
    ],
)
def test_only_gpu_families_are_searched_for_gpus(instance_type: str, gpus: bool) -> None:
    assert may_have_gpus(instance_type) is gpus


def test_a_worker_signals_success_once_it_is_in_every_file(lab: Lab) -> None:
    worker = booted(lab.node("worker", 7))
    assert worker.text("signals") == (
        "--success true --reason ready --stack deepcdk --resource WorkerGroup --region us-east-1\n"
    )
    line = f"deeplearning-worker1 {worker.ip} {worker.instance_id} 1 ens5 us-east-1a\n"
    assert worker.text("opt/deeplearning/nodes") == line
    assert worker.text("opt/deeplearning/workers") == "deeplearning-worker1\n"
    assert f"{worker.ip} deeplearning-worker1\n" in worker.text("etc/hosts")
    assert "127.0.0.1 localhost\n" in worker.text("etc/hosts")


def test_the_environment_file_exports_what_deepcfn_exported(lab: Lab) -> None:
    booted(lab.node("worker", 1))
    second = booted(lab.node("worker", 2))
    exports = [line for line in second.text("etc/profile.d/deeplearning.sh").splitlines() if line.startswith("export")]
    assert sorted(exports) == [
        "export DEEPLEARNING_NODES_PATH=/opt/deeplearning/nodes",
        "export DEEPLEARNING_WORKERS_COUNT=2",
        "export DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers",
        "export DEEPLEARNING_WORKER_GPU_COUNT=0",
        "export EFS_MOUNT=/mnt/efs",
    ]


def test_the_file_system_is_mounted_as_deepcfn_mounted_it(lab: Lab) -> None:
    node = booted(lab.node("worker", 1))
    options = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
    host = node.settings.file_system
    assert node.text("mounts") == f"-t nfs4 -o {options} {host}:/ {node.root}/mnt/efs\n"
    assert node.text("etc/fstab") == f"{host}:/ /mnt/efs nfs4 {options},_netdev 0 0\n"


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_second_run_doubles_nothing(lab: Lab, role: str) -> None:
    node = booted(lab.node(role, 1))
    before = node.files()
    booted(node)
    assert node.files() == before
    assert node.text("mounts").count("\n") == 1
    assert node.text("etc/fstab").count("\n") == 1


def test_a_failing_mount_signals_failure_and_says_where(lab: Lab) -> None:
    node = lab.node("worker", 1, mounts=False)
    status, said = node.boot()
    assert status != 0
    assert "failed: mounting the shared file system fs-0123456789abcdef0" in said
    assert node.text("signals").startswith("--success false --reason mounting the shared file system fs-")
    assert lab.owners() == {}


def test_a_missing_login_user_signals_failure(lab: Lab) -> None:
    node = lab.node("worker", 1, login_user="ubuntu")
    status, said = node.boot()
    assert status != 0
    assert "this image has no user ubuntu (login_user in cdk.json)" in said
    assert "--success false" in node.text("signals")


def test_a_node_that_joins_a_complete_stack_is_ready_although_nobody_listens(lab: Lab) -> None:
    node = lab.node("worker", 1)
    status, said = node.boot(LAB_DEAF="ValidationError: stack is in CREATE_COMPLETE state and can not be signaled")
    assert status == 0, said
    assert "the stack deepcdk waits for no signal" in said
    assert node.text("signals").count("\n") == 1


def test_an_image_without_cfn_signal_signals_through_the_aws_cli(lab: Lab) -> None:
    node = lab.node("worker", 1)
    (node.root / "opt/aws/bin/cfn-signal").unlink()
    booted(node)
    assert node.text("signals") == (
        "cloudformation signal-resource --stack-name deepcdk --logical-resource-id WorkerGroup "
        f"--unique-id {node.instance_id} --status SUCCESS --region us-east-1\n"
    )


def test_nodes_that_boot_at_once_get_the_lowest_names_one_each(lab: Lab) -> None:
    nodes = [lab.node("master", 100), *(lab.node("worker", number) for number in range(1, 9))]
    for process in [node.start() for node in nodes]:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    assert set(lab.owners()) == {"deeplearning-master", *(f"deeplearning-worker{index}" for index in range(1, 9))}
    assert sorted(lab.owners().values()) == sorted(node.instance_id for node in nodes)

    assert nodes[0].refresh()[0] == 0
    listed = [line.split() for line in nodes[0].text("opt/deeplearning/nodes").splitlines()]
    assert [fields[0] for fields in listed] == sorted(lab.owners(), key=lambda name: (len(name), name))
    assert {fields[0]: fields[2] for fields in listed} == lab.owners()


def test_a_rebooted_instance_keeps_its_name(lab: Lab) -> None:
    booted(lab.node("worker", 1))
    second = booted(lab.node("worker", 2))
    lab.silence("deeplearning-worker1")
    lab.silence("deeplearning-worker2")
    booted(second)
    assert lab.owners()["deeplearning-worker2"] == second.instance_id


def test_a_gone_node_leaves_the_files_and_its_name_goes_to_the_next(lab: Lab) -> None:
    master = booted(lab.node("master", 100))
    gone = booted(lab.node("worker", 1))
    booted(lab.node("worker", 2))
    lab.silence("deeplearning-worker1")
    assert master.refresh()[0] == 0
    assert master.text("opt/deeplearning/workers") == "deeplearning-worker2\n"
    assert f"{gone.ip} " not in master.text("etc/hosts")
    assert f",{gone.ip} " not in master.text("etc/ssh/ssh_known_hosts")

    newcomer = booted(lab.node("worker", 3))
    assert lab.owners()["deeplearning-worker1"] == newcomer.instance_id
    assert master.refresh()[0] == 0
    assert f"deeplearning-worker1 {newcomer.ip} " in master.text("opt/deeplearning/nodes")


def test_a_node_whose_name_was_taken_while_it_was_away_takes_another(lab: Lab) -> None:
    late = booted(lab.node("worker", 1))
    lab.silence("deeplearning-worker1")
    newcomer = booted(lab.node("worker", 2))
    assert late.refresh()[0] == 0
    assert lab.owners() == {"deeplearning-worker1": newcomer.instance_id, "deeplearning-worker2": late.instance_id}


def test_a_second_master_waits_for_the_first_to_go_and_says_so(lab: Lab) -> None:
    booted(lab.node("master", 1))
    second = lab.node("master", 2)
    status, said = second.boot()
    assert status != 0
    assert "belongs to another live node" in said
    assert "--success false --reason taking a name" in second.text("signals")
    lab.silence("deeplearning-master")
    booted(second)
    assert lab.owners() == {"deeplearning-master": second.instance_id}


def test_the_clusters_private_key_is_on_the_master_alone(lab: Lab) -> None:
    master, worker = booted(lab.node("master", 1)), booted(lab.node("worker", 2))
    private = "home/ec2-user/.ssh/id_ed25519"
    assert (master.root / private).stat().st_mode & 0o777 == 0o600
    assert not (worker.root / private).exists()
    shared = [path.read_text() for path in lab.shared.rglob("*") if path.is_file()]
    assert not any(master.text(private) in text for text in shared)


def test_workers_admit_the_current_masters_key_only(lab: Lab) -> None:
    worker = lab.node("worker", 2)
    (worker.root / "home/ec2-user/.ssh").mkdir()
    keys = worker.root / "home/ec2-user/.ssh/authorized_keys"
    keys.write_text("ssh-ed25519 USER me@laptop\n")
    first = booted(lab.node("master", 1))
    booted(worker)
    assert f"{first.environment()['LAB_KEY']} deepcdk-master\n" in keys.read_text()
    assert keys.stat().st_mode & 0o777 == 0o600

    lab.silence("deeplearning-master")
    second = booted(lab.node("master", 3))
    assert worker.refresh()[0] == 0
    assert second.environment()["LAB_KEY"] in keys.read_text()
    assert first.environment()["LAB_KEY"] not in keys.read_text()
    assert "ssh-ed25519 USER me@laptop\n" in keys.read_text()


def test_the_master_knows_every_nodes_host_key_by_name_and_address(lab: Lab) -> None:
    worker = booted(lab.node("worker", 2))
    master = booted(lab.node("master", 1))
    known = master.text("etc/ssh/ssh_known_hosts")
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in known
    assert f"deeplearning-master,{master.ip} {key_of('HOST1')}\n" in known


def test_host_keys_are_printed_to_the_console_between_cloud_inits_marks(lab: Lab) -> None:
    node = lab.node("worker", 5)
    (node.root / "dev/console").write_text("booting\n")
    booted(node)
    assert node.text("dev/console") == (
        "booting\n"
        "-----BEGIN SSH HOST KEY KEYS-----\n"
        f"{key_of('HOST5')} root@{node.instance_id}\n"
        "-----END SSH HOST KEY KEYS-----\n"
    )


def test_gpus_become_slots_on_gpu_instances_only(lab: Lab) -> None:
    with_gpus, without = lab.node("worker", 1, instance_type="p4d.24xlarge"), lab.node("worker", 2)
    for node in (with_gpus, without):
        for device in ("nvidia0", "nvidia1", "nvidiactl"):
            (node.root / "dev" / device).touch()
        booted(node)
    slots = [line.split()[3] for line in without.text("opt/deeplearning/nodes").splitlines()]
    assert slots == ["2", "1"]


def test_an_image_that_brings_a_runtime_is_run_by_the_python_that_made_it(lab: Lab) -> None:
    node = lab.node("worker", 1)
    made_by = lab.folder / "python3.11"
    made_by.write_text("#!/bin/sh\n")
    made_by.chmod(0o755)
    link = node.root / "opt/deepcdk/runtime/0123456789abcdef/bin/python"
    link.parent.mkdir(parents=True)
    link.symlink_to(made_by)
    assert node.boot()[0] == 0
    assert (node.root / "opt/deepcdk/bin/python3").resolve() == made_by.resolve()


def test_where_systemd_runs_it_keeps_the_watcher_running(lab: Lab) -> None:
    node = lab.node("worker", 1)
    for folder in ("run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    booted(node)
    assert "ExecStart=/opt/deepcdk/bin/registry watch" in node.text("etc/systemd/system/deepcdk-registry.service")
    assert "enable --now deepcdk-registry.service" in node.text("systemctl")
    assert node.text("watchers") == ""


def test_a_booting_master_runs_what_the_runs_left_for_it_as_the_login_user(lab: Lab) -> None:
    master, worker = booted(lab.node("master", 1)), booted(lab.node("worker", 2))
    hook = lab.shared / "runs" / ".at-boot"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    for node in (master, worker):
        (node.root / "watchers").unlink()
        watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05")
        try:
            eventually(lambda node=node: (node.root / "watchers").exists() or node is worker)  # type: ignore[misc]
        finally:
            watcher.send_signal(signal.SIGTERM)
            watcher.wait(timeout=60)
    uid, gid = os.getuid(), os.getgid()
    started = f"setpriv --reuid {uid} --regid {gid} --init-groups {master.root}/mnt/efs/runs/.at-boot"
    assert (master.text("watchers").strip(), worker.text("watchers")) == (started, "")


def test_host_keys_are_printed_anew_at_each_boot_for_a_reboot_may_empty_the_console(lab: Lab) -> None:
    node = lab.node("worker", 5)
    (node.root / "dev/console").touch()
    booted(node)
    (node.root / "dev/console").write_text("")
    watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        eventually(lambda: key_of("HOST5") in node.text("dev/console"))
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)


def test_a_watcher_follows_newcomers_and_leaves_when_stopped(lab: Lab) -> None:
    master = booted(lab.node("master", 1))
    watcher = master.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        worker = booted(lab.node("worker", 2))
        eventually(lambda: worker.ip in master.text("opt/deeplearning/nodes"))
        second = master.registry("watch")
        assert second.wait(timeout=60) == 0
        assert watcher.poll() is None
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)
    assert not (lab.shared / ".cluster/nodes/deeplearning-master/heartbeat").exists()
    assert worker.refresh()[0] == 0
    assert master.ip not in worker.text("opt/deeplearning/nodes")


def test_a_half_written_entry_is_left_out(lab: Lab) -> None:
    node = booted(lab.node("worker", 1))
    booted(lab.node("worker", 2))
    (lab.shared / ".cluster/nodes/deeplearning-worker2/ip").write_text("")
    assert node.refresh()[0] == 0
    assert node.text("opt/deeplearning/workers") == "deeplearning-worker1\n"


LUSTRE = "fs-01234567.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh"


def with_lustre(lab: Lab, role: str) -> Node:
    return lab.node(role, 1, lustre=LUSTRE, lustre_mount="/mnt/fsx")


def test_the_lustre_file_system_is_mounted_beside_the_shared_one(lab: Lab) -> None:
    node = booted(with_lustre(lab, "worker"))
    mounts = node.text("mounts").splitlines()
    assert mounts[1:] == [f"-t lustre -o relatime,flock {LUSTRE} {node.root}/mnt/fsx"]
    assert f"{LUSTRE} /mnt/fsx lustre relatime,flock,_netdev 0 0\n" in node.text("etc/fstab")
    assert node.text("etc/profile.d/deeplearning-fsx.sh") == "export FSX_MOUNT=/mnt/fsx\n"
    assert "--success true" in node.text("signals")


def test_a_second_run_mounts_lustre_once(lab: Lab) -> None:
    node = booted(with_lustre(lab, "master"))
    before = node.files()
    booted(node)
    assert node.files() == before
    assert node.text("mounts").count("lustre") == 1


def test_a_lustre_file_system_that_does_not_answer_fails_the_boot_by_name(lab: Lab) -> None:
    node = with_lustre(lab, "worker")
    (node.commands / "mount").write_text('#!/bin/sh\n[ "$2" != lustre ] && rmdir "$6" && ln -s "$LAB_EFS" "$6"\n')
    status, said = node.boot()
    assert status != 0
    assert f"failed: mounting the Lustre file system {LUSTRE}" in said
    assert node.text("signals").startswith("--success false --reason mounting the Lustre file system")


def test_without_lustre_nothing_of_it_is_in_user_data(lab: Lab) -> None:
    text = user_data(lab.node("worker", 2).settings)
    assert "LUSTRE" not in text
    assert "for name in registry node; do" in text
    assert "for name in registry lustre node; do" in user_data(with_lustre(lab, "master").settings)


def scratched(lab: Lab, disks: str) -> Node:
    node = lab.node("worker", 1, scratch="/mnt/scratch")
    status, said = node.boot(LAB_DISKS=disks)
    assert status == 0, said
    return node


STORE = "/dev/nvme{}n1 Amazon EC2 NVMe Instance Storage\n"
EBS = "/dev/nvme0n1 Amazon Elastic Block Store\n"


def test_the_disks_of_the_instance_store_become_one(lab: Lab) -> None:
    node = scratched(lab, EBS + STORE.format(1) + STORE.format(2))
    assert node.text("disks").splitlines() == [
        "mdadm --create /dev/md/scratch --run --force --level=0 --raid-devices=2 /dev/nvme1n1 /dev/nvme2n1",
        "mkfs.xfs -q -f /dev/md/scratch",
    ]
    assert f"-o noatime /dev/md/scratch {node.root}/mnt/scratch" in node.text("mounts")
    assert "UUID=0123-4567 /mnt/scratch xfs noatime,nofail 0 0\n" in node.text("etc/fstab")


def test_a_single_disk_needs_no_stripes(lab: Lab) -> None:
    node = scratched(lab, EBS + STORE.format(1))
    assert node.text("disks").splitlines() == ["mkfs.xfs -q -f /dev/nvme1n1"]


def test_without_disks_scratch_is_a_directory_and_the_boot_says_so(lab: Lab) -> None:
    node = lab.node("worker", 1, scratch="/mnt/scratch")
    status, said = node.boot(LAB_DISKS=EBS)
    assert status == 0
    assert "no instance store: /mnt/scratch lies on the root volume" in said
    assert (node.root / "mnt/scratch").is_dir()
    assert node.text("disks") == ""
    assert "scratch" not in node.text("etc/fstab")


def test_the_disks_that_a_deep_learning_image_has_striped_are_taken_as_they_are(lab: Lab) -> None:
    node = lab.node("worker", 1, scratch="/mnt/scratch")
    (node.root / "opt/dlami").mkdir(parents=True)
    (node.root / "opt/dlami/nvme").symlink_to(node.root / "var")  # the lab's way to be a mount point
    status, said = node.boot(LAB_DISKS=STORE.format(1) + STORE.format(2))
    assert status == 0, said
    assert node.text("disks") == ""
    assert f"--bind {node.root}/opt/dlami/nvme {node.root}/mnt/scratch" in node.text("mounts")
    assert "/opt/dlami/nvme /mnt/scratch none bind,nofail 0 0\n" in node.text("etc/fstab")


def rank(node: Node, pid: int, parent: int, environment: str) -> None:
    folder = node.root / "proc" / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(environment.encode())
    (folder / "status").write_text(f"Name:\tpython\nPPid:\t{parent}\n")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("spot", '{"action": "terminate", "time": "2026-01-02T03:04:05Z"}', "EC2 takes this spot instance back"),
        ("target", "Terminated", "its group ends this instance"),
    ],
)
def test_a_notice_asks_each_rank_once_to_stop_and_is_told_to_the_cluster(
    lab: Lab, file: str, text: str, reason: str
) -> None:
    worker = booted(lab.node("worker", 1, heeds_notices=True))
    assert worker.notice() == (1, "")
    told, secret = lab.shared / ".cluster/leaving" / worker.instance_id, lab.folder / "secret"
    told.parent.mkdir()
    told.symlink_to(secret)  # as the root of another node can
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        rank(worker, 1, 0, "PATH=/bin\0")
        rank(worker, sleeper.pid, 1, "PATH=/bin\0HOROVOD_RANK=0\0")
        rank(worker, 99999998, sleeper.pid, "HOROVOD_RANK=0\0")  # its child: the rank passes the signal on
        (worker.root / file).write_text(text)
        status, said = worker.notice()
        assert status == 1, "a rank is still here"
        assert reason in said
        assert f"asking rank process {sleeper.pid} to stop" in said
        assert "99999998" not in said
        assert sleeper.wait(60) == -signal.SIGTERM
        assert worker.notice() == (1, ""), "it is asked once only"
    finally:
        sleeper.kill()
        sleeper.wait()
    for pid in (sleeper.pid, 99999998):
        shutil.rmtree(worker.root / "proc" / str(pid))
    assert worker.notice() == (0, "")
    assert reason in told.read_text()
    assert not secret.exists(), "it is written beside the link, not through it"


def test_a_node_that_ends_soon_leaves_the_registry_once_it_is_idle(lab: Lab) -> None:
    worker = booted(lab.node("worker", 1, heeds_notices=True))
    heartbeat = lab.shared / ".cluster/nodes/deeplearning-worker1/heartbeat"
    assert heartbeat.exists()
    (worker.root / "target").write_text("Terminated")
    watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        eventually(lambda: not heartbeat.exists())
    finally:
        watcher.terminate()
        watcher.wait(60)
