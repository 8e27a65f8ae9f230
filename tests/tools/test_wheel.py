"""The wheel: it works next to user packages with the same names, and nodes get the same files as from a checkout."""

from __future__ import annotations

import ast
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from packaging.requirements import Requirement

from cluster.ssh.push import package_tree
from deepcdk import __version__
from tests.conftest import REQUIRE_ALL
from tests.stacks.clusters import snapshots
from tools.wheel import CDK_CLI, FOR_NODES, PACKAGES, ROOT, renamed, write_package

MAX_BYTES = 640_000_000
"""Limit on the size of an environment with the wheel (docs/laptop.md)."""
needs_cdk = pytest.mark.skipif(not (ROOT / "node_modules" / "aws-cdk").is_dir(), reason="needs `make setup`")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory like site-packages with the contents of the wheel."""
    directory = tmp_path_factory.mktemp("site-packages")
    write_package(ROOT, directory / "deepcdk")
    return directory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with packages that have the same names as ours and cannot be imported."""
    directory = tmp_path / "a project"
    for name in PACKAGES:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text("raise RuntimeError('this is the package of the user')\n")
    (directory / "cdk.json").write_text('{"context": {"cluster": {"name": "mine", "worker": 3}}}')
    return directory


def python(packages: Path, directory: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a project with the installed package, as the command `deepcdk` or the CDK CLI does.

    The checkout is not imported, although the interpreter's own site-packages may name it.
    """
    checkout = f"import sys; sys.path[:] = [path for path in sys.path if path != {str(ROOT)!r}]"
    paths = os.pathsep.join([str(directory), str(packages)])
    return subprocess.run(
        [sys.executable, "-P", "-c", f"{checkout}\n{code}", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": paths, "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_versions_are_equal() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_only_imports_of_our_packages_are_renamed() -> None:
    before = (
        "from agent.spec import run\nfrom agents import x\nfrom . import cluster\n"
        "TEXT = '''\nfrom agent.spec import run\n'''\n"
        "def late():\n    from payload.train import (\n        main,\n    )\n"
    )
    after = before.replace("from agent.spec", "from deepcdk.agent.spec", 1).replace(
        "payload.train", "deepcdk.payload.train"
    )
    assert renamed(before, "a.py") == after


@pytest.mark.parametrize("line", ["import cluster", "import json, agent.spec as spec"])
def test_imports_that_cannot_be_renamed_are_rejected(line: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py, line 1"):
        renamed(f"{line}\n", "a.py")


@pytest.mark.parametrize(
    "call",
    [
        "PackageLoader('cluster.report')",
        "importlib.import_module(f'cluster.tasks.{name}')",
        "import_module(name='stacks')",
        "resources.files('agent')",
        "runpy.run_module('payload.train')",
    ],
)
def test_calls_loading_our_packages_by_name_are_rejected(call: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py, line 2"):
        renamed(f"\n{call}\n", "a.py")


def test_calls_loading_other_packages_are_kept() -> None:
    text = "find_spec('clusters')\nimport_module(f'..tasks.{name}', __package__)\nrun(['-m', 'agent.remote.ssh'])\n"
    assert renamed(text, "a.py") == text


def test_wheel_without_cdk_cli_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make setup"):
        write_package(tmp_path, tmp_path / "deepcdk")


@needs_cdk
@pytest.mark.parametrize("name", FOR_NODES)
def test_nodes_get_identical_files_from_wheel_and_checkout(packages: Path, name: str) -> None:
    assert package_tree(packages / "deepcdk" / "for_nodes" / name) == package_tree(ROOT / name)


@needs_cdk
def test_wheel_has_only_feature_flags_of_cdk_json(packages: Path) -> None:
    document = json.loads((packages / "deepcdk" / "cdk.json").read_text())
    assert document.keys() == {"context"}
    assert {key.partition("/")[0] for key in document["context"]} == {"@aws-cdk", "@aws-cdk-containers"}


@needs_cdk
def test_wheel_has_the_templates_of_cdk_init(packages: Path) -> None:
    def names(root: Path) -> set[Path]:
        top = root / CDK_CLI
        return {path.relative_to(top) for path in top.glob("lib/**/*")}

    assert names(packages / "deepcdk") == names(ROOT)


@needs_cdk
def test_report_has_its_templates(packages: Path, project: Path) -> None:
    module = "from deepcdk.cluster.report import output_formats"
    code = f"{module}; print(output_formats.templates().get_template('page.html.j2').filename)"
    done = python(packages, project, code)
    assert (done.returncode, done.stdout.startswith(str(packages))) == (0, True), done.stderr


def test_imported_distributions_are_declared() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = itertools.chain(*package["optional-dependencies"].values())
    declared = {Requirement(text).name for text in [*package["dependencies"], *extras]}
    trees = [
        ast.parse(path.read_text()) for name in ("cluster", "deepcdk", "stacks") for path in (ROOT / name).rglob("*.py")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    known = importlib.metadata.packages_distributions()
    outside = {name.partition(".")[0] for name in imported} - {*sys.stdlib_module_names, *PACKAGES, "deepcdk"}
    unnamed = {name for name in outside if not {each.lower() for each in known.get(name, [])} & declared}
    typing_only = {name for name in unnamed if name.startswith("types_boto3")}
    # boto3, paramiko, fabric and aws-cdk-lib use the other packages in their own APIs.
    assert unnamed - typing_only == {"botocore", "s3transfer", "cryptography", "invoke", "jsii"}


IMPORT_ALL = """
import importlib, pkgutil, sys
import deepcdk.cluster, deepcdk.stacks
for package in (deepcdk.cluster, deepcdk.stacks):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name != "deepcdk.cluster.ssh.transfer_on_master":
            importlib.import_module(found.name)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"agent", "cluster", "payload", "stacks"}))
"""


@needs_cdk
@pytest.mark.full
def test_no_laptop_module_imports_packages_of_the_user(packages: Path, project: Path) -> None:
    done = python(packages, project, IMPORT_ALL)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


RUN = "import sys; sys.argv[0] = 'deepcdk'; from deepcdk.__main__ import main; main()"


@needs_cdk
def test_tasks_run_in_any_directory_of_the_project(packages: Path, project: Path) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert f"deepcdk {__version__}\n" in python(packages, below, RUN, "--version").stdout
    listed = python(packages, below, RUN, "--list")
    assert (listed.returncode, "stage-data" in listed.stdout) == (0, True), listed.stderr
    shown = python(packages, below, RUN, "recipes", "digits", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["name"]) == (0, "digits"), shown.stderr
    wrong = python(packages, below, RUN, "status")
    assert (wrong.returncode, "cluster.worker = 3: unknown key" in wrong.stderr) == (1, True), wrong.stderr


@needs_cdk
def test_missing_cdk_json_is_reported_outside_of_a_project(packages: Path, tmp_path: Path) -> None:
    done = python(packages, tmp_path, RUN, "status")
    assert (done.returncode, f"{tmp_path}/cdk.json" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


@needs_cdk
def test_cdk_json_of_another_app_is_not_a_project(packages: Path, project: Path) -> None:
    below = project / "website"
    below.mkdir()
    (below / "cdk.json").write_text('{"app": "node website.js"}')
    assert "cluster.worker = 3" in python(packages, below, RUN, "status").stderr


@pytest.fixture
def shared() -> Iterator[Path]:
    """Make a directory that other users can enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="deepcdk-wheel-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def uv(*words: str | Path) -> None:
    """Run uv from its cache alone if possible. Otherwise print the reason before using the package index."""
    command = [str(ROOT / ".venv" / "bin" / "uv"), *map(str, words)]
    offline = subprocess.run([*command, "--offline"], capture_output=True, text=True, check=False)
    if offline.returncode != 0:
        print(f"uv {words[0]} failed offline:\n{offline.stderr}")
        subprocess.run(command, check=True)


def test_reason_of_an_offline_failure_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        uv("no-such-command")
    assert "unrecognized subcommand 'no-such-command'" in capsys.readouterr().out


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """Build the wheel once, where other users can read it."""
    with tempfile.TemporaryDirectory(prefix="deepcdk-wheel-") as directory:
        Path(directory).chmod(0o755)
        uv("build", "--wheel", "--out-dir", directory, ROOT)
        (built,) = Path(directory).glob("*.whl")
        yield built


@needs_cdk
@pytest.mark.full
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheel_works_with_each_supported_python(wheel: Path, tmp_path: Path, version: str) -> None:
    """Pythons come from PATH, from uv and from pyenv. None is downloaded."""
    find = [str(ROOT / ".venv" / "bin" / "uv"), "python", "find", "--no-python-downloads", "--no-project", version]
    found = subprocess.run(
        find, cwd=tmp_path, env={**os.environ, "PYENV_VERSION": version}, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        why = f"needs Python {version}: {found.stderr.strip()}"
        pytest.fail(why) if os.environ.get(REQUIRE_ALL) == "1" else pytest.skip(why)
    venv, project = tmp_path / "venv", tmp_path / "deepcdk !"
    uv("venv", "--python", found.stdout.strip(), venv)
    uv("pip", "install", "--only-binary", ":all:", "--python", venv / "bin" / "python", wheel)
    size = sum(path.lstat().st_size for path in venv.rglob("*"))
    assert size < MAX_BYTES, f"{size / 1e6:.0f} MB"
    environ = {
        "HOME": str(tmp_path),
        "PATH": str(venv / "bin"),
        "VIRTUAL_ENV": str(venv),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(wheel.parent / "jsii"),  # one unpacked CDK for all versions
    }

    def run(directory: Path, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [venv / "bin" / words[0], *words[1:]],
            cwd=directory,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, f"{words}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    assert run(tmp_path, "python", "--version").startswith(f"Python {version}.")
    assert f"deepcdk {__version__}\n" in run(tmp_path, "deepcdk", "--version")
    run(tmp_path, "deepcdk", "init", project.name)
    run(project, "cdk", "synth", "-q", "--no-path-metadata", "--no-asset-metadata", "-c", "ssh_cidr=198.18.0.7/32")
    template = json.loads((project / "cdk.out" / "deepcdk.template.json").read_text())
    assert snapshots.text(template) == snapshots.path("default CPU").read_text(encoding="utf-8")
    assert "stage-data" in run(project, "fab", "--list")
    assert '"name": "digits"' in run(project, "deepcdk", "recipes", "digits", "--json")
    assert "deepcdk[plots]" in run(project, "deepcdk", "report", status=1)


@needs_cdk
@pytest.mark.full
def test_user_without_root_and_compiler_installs_the_wheel_and_uses_a_new_project(shared: Path, wheel: Path) -> None:
    """Without the packages in uv's cache, this needs the package index."""
    venv, home, project = shared / "venv", shared / "home", shared / "home" / "deepcdk !"
    uv("venv", "--python", sys.executable, venv)
    uv("pip", "install", "--only-binary", ":all:", "--python", venv / "bin" / "python", wheel)
    uv("pip", "uninstall", "--python", venv / "bin" / "python", "deepcdk")
    home.mkdir()
    is_root = os.getuid() == 0
    user = 60999 if is_root else None
    if is_root:
        # Files are links to uv's cache, so they remain root's.
        subprocess.run(["find", venv, home, "-type", "d", "-exec", "chown", f"{user}:{user}", "{}", "+"], check=True)
    variables = {
        "HOME": str(home),
        "PATH": str(venv / "bin"),
        "VIRTUAL_ENV": str(venv),
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }

    def run(directory: Path, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [str(venv / "bin" / words[0]), *words[1:]],
            cwd=directory,
            env=variables,
            user=user,
            group=user,
            extra_groups=[] if is_root else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stdout) == (status, False), done.stdout
        return done.stdout

    run(home, "uv", "pip", "install", "--no-index", "--no-deps", str(wheel))
    assert f"deepcdk {__version__}\n" in run(home, "deepcdk", "--version")
    run(home, "deepcdk", "init", project.name)
    for name in PACKAGES:
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise RuntimeError('this is the package of the user')\n")
    run(project, "cdk", "synth", "-q", "--no-path-metadata", "--no-asset-metadata", "-c", "ssh_cidr=198.18.0.7/32")
    template = json.loads((project / "cdk.out" / "deepcdk.template.json").read_text())
    assert snapshots.text(template) == snapshots.path("default CPU").read_text(encoding="utf-8")
    assert "stage-data" in run(project, "fab", "--list")
    assert "stage-data" in run(project, "deepcdk", "--list")
    if is_root:
        assert "do: give a directory" in run(home, "deepcdk", "init", "/deepcdk", status=1)
    (project / "train.py").write_text("import horovod.tensorflow as hvd\nhvd.init()\n")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        variables["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
        text = run(project, "deepcdk", "train", "--dry-run", "--entry", "train.py", status=1)
        assert (
            f"--payload is not given, so the program is in the project {project}" in text,
            "stack deepcdk is not deployed" in text,
        ) == (
            True,
            True,
        )
        assert "stack deepcdk is not deployed" in run(project, "fab", "run", "--", "true", status=1), (
            "fabric.yaml gives it the words"
        )
    finally:
        server.stop()


@needs_cdk
@pytest.mark.full
def test_pip_21_installs_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """This pip is older than those that Python 3.11 to 3.13 include. uv installs the dependencies from its cache."""
    venv = tmp_path / "venv"
    pip = [str(venv / "bin" / "python"), "-m", "pip"]
    uv("venv", "--python", sys.executable, venv)
    try:
        uv("pip", "install", "--python", venv / "bin" / "python", "pip==21.0")
    except subprocess.CalledProcessError:
        pytest.skip("the package index does not have pip 21.0")
    uv("pip", "install", "--only-binary", ":all:", "--python", venv / "bin" / "python", f"{wheel}[plots]")
    uv("pip", "uninstall", "--python", venv / "bin" / "python", "deepcdk")
    install = [*pip, "install", "--no-index", "--no-compile", f"{wheel}[plots]"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert (done.returncode, "Successfully installed deepcdk-" in done.stdout) == (0, True), done.stderr
    shown = subprocess.run([venv / "bin" / "deepcdk", "--version"], capture_output=True, text=True, check=False)
    assert f"deepcdk {__version__}\n" in shown.stdout, shown.stderr
    listed = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=True).stdout
    assert listed.startswith("pip 21.0 ")
