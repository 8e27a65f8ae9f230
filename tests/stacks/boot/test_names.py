"""Names of nodes in the registry: which node gets which name, keeps it, and when a name is free again."""

from __future__ import annotations

import fcntl
import signal

from tests.stacks.boot.nodelab import Lab, booted
from tests.waiting import eventually


def test_nodes_booting_together_take_distinct_lowest_names(lab: Lab) -> None:
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


def test_node_with_removed_entry_takes_lowest_name(lab: Lab) -> None:
    """On a slow file system, a node that has waited for a minute removes the entries of nodes before it."""
    removed_once = '[ -e "$LAB_CLOUD/removed" ] || { touch "$LAB_CLOUD/removed"; rm "$2"; }'
    ln = lab.commands / "ln"
    ln.write_text(f'#!/bin/sh\n[ "$1" != -T ] || {removed_once}\nexec /bin/ln "$@"\n')
    ln.chmod(0o755)
    node = booted(lab.node("worker", 1))
    assert (lab.folder / "removed").exists()
    assert lab.owners() == {"deeplearning-worker1": node.instance_id}


def test_rebooted_instance_keeps_its_name(lab: Lab) -> None:
    booted(lab.node("worker", 1))
    second = booted(lab.node("worker", 2))
    lab.silence("deeplearning-worker1")
    lab.silence("deeplearning-worker2")
    booted(second)
    assert lab.owners()["deeplearning-worker2"] == second.instance_id


def test_name_of_removed_node_is_reused(lab: Lab) -> None:
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


def test_node_takes_another_name_if_its_own_was_reused(lab: Lab) -> None:
    late = booted(lab.node("worker", 1))
    lab.silence("deeplearning-worker1")
    newcomer = booted(lab.node("worker", 2))
    assert late.refresh()[0] == 0
    assert lab.owners() == {"deeplearning-worker1": newcomer.instance_id, "deeplearning-worker2": late.instance_id}


def test_second_master_waits_for_first_to_terminate_and_reports_it(lab: Lab) -> None:
    booted(lab.node("master", 1))
    second = lab.node("master", 2)
    status, said = second.boot()
    assert status != 0
    assert "belongs to another live node" in said
    assert "--success false --reason taking a name" in second.text("signals")
    lab.silence("deeplearning-master")
    booted(second)
    assert lab.owners() == {"deeplearning-master": second.instance_id}


def test_systemd_keeps_watcher_running(lab: Lab) -> None:
    node = lab.node("worker", 1)
    for folder in ("run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    booted(node)
    assert "ExecStart=/opt/deepcdk/bin/registry watch" in node.text("etc/systemd/system/deepcdk-registry.service")
    assert "enable --now deepcdk-registry.service" in node.text("systemctl")
    assert node.text("watchers") == ""


def test_watcher_adds_new_nodes_and_removes_its_entry_when_stopped(lab: Lab) -> None:
    master = booted(lab.node("master", 1))
    watcher = master.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        worker = booted(lab.node("worker", 2))
        eventually(lambda: worker.ip in master.text("opt/deeplearning/nodes"))
        second = master.registry("watch")
        assert second.wait(timeout=60) == 0
        assert watcher.poll() is None
        (worker.root / "opt/deeplearning/nodes").unlink()
        its_own = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")
        eventually(lambda: worker.ip in worker.text("opt/deeplearning/nodes"))
        its_own.send_signal(signal.SIGTERM)
        its_own.wait(timeout=60)
        eventually(lambda: worker.ip not in master.text("opt/deeplearning/nodes"))
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)
    assert lab.owners() == {}


def test_partially_written_entry_is_omitted(lab: Lab) -> None:
    master = booted(lab.node("master", 100))
    booted(lab.node("worker", 1))
    booted(lab.node("worker", 2))
    (lab.shared / ".cluster/nodes/deeplearning-worker2").write_text("i-0000000000000")
    assert master.refresh()[0] == 0
    assert master.text("opt/deeplearning/workers") == "deeplearning-worker1\n"


def test_worker_copies_list_of_master_and_lists_itself_before(lab: Lab) -> None:
    first, second = booted(lab.node("worker", 1)), booted(lab.node("worker", 2))
    assert [node.text("opt/deeplearning/workers") for node in (first, second)] == [
        "deeplearning-worker1\n",
        "deeplearning-worker2\n",
    ]
    master = booted(lab.node("master", 100))
    for node in (first, second):
        assert node.refresh()[0] == 0
        for path in (
            "opt/deeplearning/nodes",
            "opt/deeplearning/workers",
            "etc/hosts",
            "etc/profile.d/deeplearning.sh",
        ):
            assert node.text(path) == master.text(path)


def test_names_of_lost_workers_are_freed_without_a_master(lab: Lab) -> None:
    gone = [booted(lab.node("worker", number)) for number in (1, 2, 3)]
    for index, _ in enumerate(gone, start=1):
        lab.silence(f"deeplearning-worker{index}")
    newcomers = [lab.node("worker", number) for number in (4, 5, 6)]
    for process in [node.start() for node in newcomers]:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    assert sorted(lab.owners()) == [f"deeplearning-worker{index}" for index in (1, 2, 3)]
    assert sorted(lab.owners().values()) == [node.instance_id for node in newcomers]


def test_lock_of_dead_node_is_released(lab: Lab) -> None:
    master = booted(lab.node("master", 100))
    booted(lab.node("worker", 1))
    with (lab.shared / ".cluster/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        worker = booted(lab.node("worker", 2))
        assert master.refresh()[0] == 0
        assert f"{worker.ip} deeplearning-worker2\n" in master.text("etc/hosts")


def test_instance_cloned_from_a_node_takes_its_own_name(lab: Lab) -> None:
    booted(lab.node("worker", 1))
    copied = lab.node("worker", 7)
    (copied.root / "opt/deepcdk").mkdir(parents=True)
    (copied.root / "opt/deepcdk/name").write_text("i-00000000000000009 deeplearning-worker9\n")
    booted(copied)
    assert lab.owners()["deeplearning-worker2"] == copied.instance_id
