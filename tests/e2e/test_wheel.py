"""The wheel on a deployed cluster: a user without root, with no compiler in PATH, checks a program before training."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import EmbeddedCloud
from tests.tools.test_wheel import needs_cdk, shared, uv, wheel  # noqa: F401  # fixtures

USER = "60999"
UNSET = ("CDK_HOME", "JSII_RUNTIME_PACKAGE_CACHE_ROOT", "XDG_CACHE_HOME")
"""Variables that name directories of the laptop's user."""
PROGRAM = """
import horovod.tensorflow as hvd

hvd.init()
print(hvd.rank())
"""


@needs_cdk
def test_wheel_checks_a_program_on_a_deployed_cluster(
    cluster: EmbeddedCloud,
    wheel: Path,  # noqa: F811  # the fixture above
    shared: Path,  # noqa: F811
) -> None:
    venv, home, project = shared / "venv", shared / "home", shared / "home" / "deepcdk"
    uv("venv", "--python", sys.executable, venv)
    uv("pip", "install", "--only-binary", ":all:", "--python", venv / "bin" / "python", wheel)
    assert not any(shutil.which(name, path=str(venv / "bin")) for name in ("c++", "g++", "gcc", "cc"))
    keys = Path(cluster.laptop("sh", "-c", "echo ~").stdout.strip()) / ".ssh"
    shutil.copytree(keys, home / ".ssh")
    subprocess.run(["chown", "-R", f"{USER}:{USER}", home], check=True)

    def run(directory: Path, *words: str) -> str:
        user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        unset = (word for name in UNSET for word in ("--unset", name))
        variables = (f"HOME={home}", f"PATH={venv / 'bin'}", f"VIRTUAL_ENV={venv}")
        command = (*user, "env", f"--chdir={directory}", *unset, *variables, *words)
        done = cluster.laptop(*command, timeout_s=600)  # the first synth unpacks and compiles aws-cdk-lib
        return done.stdout + done.stderr

    run(home, "deepcdk", "init", project.name)
    (project / "train.py").write_text(PROGRAM)
    run(project, "cdk", "synth", "-q", "-c", "ssh_cidr=198.18.0.7/32")
    assert (project / "cdk.out" / "deepcdk.template.json").stat().st_uid == int(USER)
    assert "stage-data" in run(project, "fab", "--list")
    text = run(project, "deepcdk", "train", "--dry-run", "--nodes", "2", "--entry", "train.py")
    assert "launcher: horovod, because train.py:2 uses horovod.tensorflow" in text
    assert "-np 2 -H deeplearning-worker1:1,deeplearning-worker2:1" in text
