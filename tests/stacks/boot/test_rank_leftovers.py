"""Ranks try to outlive their run: the clean-up script removes everything of theirs from the worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stacks.user_data import SCRIPTS, compact

pytestmark = pytest.mark.root
RANK = "setpriv --reuid 60900 --regid 60900 --clear-groups"
# Use separate namespaces: the machine's processes and files are neither seen nor touched.
NODE = f"""
set -e
for path in /tmp /var/tmp /home /opt /run /var/spool /dev/shm /var/lib; do
  mount -t tmpfs -o mode=1777 none "$path"
done
mkdir -p /opt/deepcdk/bin /home/deepcdk-rank/files /run/lock /var/lib/systemd/linger /var/spool/cron /home/other
touch /home/other/kept /var/lib/systemd/linger/deepcdk-rank
chmod 755 /home /home/other /home/deepcdk-rank /var/lib/systemd /var/lib/systemd/linger
chmod 1777 /run/lock /var/spool/cron
chown 60900:60900 /home/deepcdk-rank/files
ln -s {sys.executable} /opt/deepcdk/bin/python3
export HOME=/home/deepcdk-rank/files
rank() {{ (cd "$HOME" && setsid {RANK} "$@" </dev/null >/dev/null 2>&1 &) }}
# One look can miss a process that forks and exits all the time.
ready() {{
  for try in {{1..100}}; do if pgrep -u 60900 >/dev/null; then sleep 0.5; return; fi; sleep 0.05; done
  echo 'no attack'
}}
left() {{ pgrep -u 60900 -l || echo none; }}
"""
PYTHON = "/opt/deepcdk/bin/python3 -c"
PROCESSES = {
    "called_systemd": "cp /bin/sleep /tmp/systemd; chmod 755 /tmp/systemd; rank /tmp/systemd 600",
    "called_sshd": "cp /bin/sleep /tmp/sshd; rank bash -c 'exec -a \"sshd: deepcdk-rank [priv]\" /tmp/sshd 600'",
    "without_environment": "rank env -i sleep 600",
    "stopped": "rank bash -c 'kill -STOP $$'",
    "under_a_process_of_root": f"bash -c 'cd / && {RANK} sleep 600; true' &",
    "forking_faster_than_a_scan": f"rank {PYTHON} 'import os\nwhile True:\n    if os.fork(): os._exit(0)'",
    "many_of_them": f"""rank {PYTHON} 'import os\nfor _ in range(6): os.fork()
while True:
    if os.fork(): os._exit(0)'""",
    "killing_its_user": f"""rank {PYTHON} 'import os\nwhile True:
    try: os.kill(-1, 9)
    except OSError: pass'""",
    "whose_first_thread_has_exited": f"""rank {PYTHON} '
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)'""",
    "in_a_pid_namespace": "rank unshare --user --pid --fork sleep 600",
}


def on_node(tmp_path: Path, attack: str, then: str) -> str:
    """Carry out an attack on a worker, run the script, and return the output of the commands after it."""
    script = tmp_path / "leftovers"
    script.write_text(compact((SCRIPTS / "rank_leftovers.sh").read_text()))
    body = "\n".join([NODE, attack, "ready", f"bash <(base64 -d <<<{_text(script)})", then])
    words = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "bash", "-c", body]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _text(path: Path) -> str:
    return subprocess.check_output(["base64", "-w0", str(path)], text=True)


@pytest.mark.parametrize("attack", PROCESSES.values(), ids=PROCESSES)
def test_all_processes_of_rank_are_killed(tmp_path: Path, attack: str) -> None:
    assert on_node(tmp_path, attack, "left") == "none\n"


def test_process_of_another_user_is_kept(tmp_path: Path) -> None:
    other = "setsid setpriv --reuid 60902 --clear-groups sleep 600 & rank sleep 600"
    assert on_node(tmp_path, other, "left; pgrep -u 60902 -c") == "none\n1\n"


def test_no_shared_memory_queue_or_file_of_a_rank_reaches_the_next_run(tmp_path: Path) -> None:
    attack = """
rank sleep 600
as_rank() { (cd "$HOME" && setpriv --reuid 60900 --regid 60900 --clear-groups bash -c "$1"); }
as_rank 'ipcmk -M 4096 -S 1 -Q >/dev/null; ipcmk -p 0 -M 4096 -S 1 -Q >/dev/null'
as_rank "/opt/deepcdk/bin/python3 -c 'import ctypes; ctypes.CDLL(\\"librt.so.1\\").mq_open(b\\"/x\\", 66, 384, None)'"
as_rank 'for at in /tmp /var/tmp /dev/shm /run/lock; do mkdir -p $at/a/b; echo x >$at/a/b/c; chmod 0 $at/a/b; done'
as_rank 'echo x >/var/spool/cron/deepcdk-rank; mkdir -p .config/systemd/user .aws data .cache/deepcdk/records'
as_rank 'touch .bashrc .profile .config/systemd/user/x.service .aws/config data/kept .cache/deepcdk/records/kept'
as_rank 'mkdir -p .cache/deepcdk/taken .cache/torch; touch .cache/deepcdk/taken/run .cache/torch/x'
as_rank 'chmod 0 .cache/torch .'
"""
    then = """
tail -qn +2 /proc/sysvipc/*
find /tmp /var/tmp /dev/shm /dev/mqueue /run/lock /var/spool /var/lib/systemd -uid 60900 -o -name deepcdk-rank
find "$HOME" -type f -printf '%P\\n' | sort; stat -c %a "$HOME"
"""
    kept = [".cache/deepcdk/records/kept", "data/kept", "755"]
    assert on_node(tmp_path, attack, then).splitlines() == kept


@pytest.mark.parametrize("link", [".cache", ".cache/deepcdk", ".cache/deepcdk/records", "data", "."])
def test_script_does_not_follow_symlinks(tmp_path: Path, link: str) -> None:
    attack = f"""
rank sleep 600
(cd "$HOME" && setpriv --reuid 60900 --clear-groups bash -c 'mkdir -p .cache/deepcdk
  rm -rf {link}; ln -sn /home/other {link}
  ln -s /home/other /tmp/other; ln -s /home/other more')
"""
    assert on_node(tmp_path, attack.replace("rm -rf .;", ""), "ls /home/other; ls /tmp") == "kept\n"
