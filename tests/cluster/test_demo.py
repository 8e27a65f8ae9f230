"""How the demo starts its cloud, and its output."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from agent.environment.virtual_environment import DEFAULT_ROOT
from cluster import demo
from localcloud.api.permissions import evaluator

MOUNT = ["--mount", "/made:/opt/made"]
HERE = sys.version_info[:2]


@pytest.fixture(autouse=True)
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "runtime_mount", lambda: MOUNT)
    monkeypatch.setattr(demo, "PYTHONS", {"debian-12": HERE, "debian-13": (HERE[0], HERE[1] + 2)})


def test_nodes_with_the_same_python_get_this_machines_environment() -> None:
    assert demo.start_options("", packages=False) == MOUNT
    assert demo.start_options("debian-12", packages=False) == ["--image", "debian-12", *MOUNT]
    assert demo.start_options("debian-12", packages=True) == ["--image", "debian-12", "--packages", *MOUNT]


def test_nodes_with_another_python_create_environment_from_local_index() -> None:
    for packages in (False, True):
        assert demo.start_options("debian-13", packages=packages) == ["--image", "debian-13", "--packages"]


def step(code: str, result: str = "") -> demo.Step:
    words = ["fab", "up", "--yes", "--set", "a=b"]
    return demo.Step(title="Deploy", shown=words, command=[sys.executable, "-c", code], result=result)


def test_each_command_is_one_line_with_its_result(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('zones: a'); print('stack x: deployed in 3 s', file=sys.stderr); print('more')"
    step(code, r"^stack .*").run()
    step(code, "not there").run()
    step("pass").run()
    lines = capfd.readouterr().out.splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        "fab up ...: stack x: deployed in 3 s", "fab up ...: zones: a", "fab up ...: done",
    ]  # fmt: skip


def test_failed_command_is_shown_in_full_with_its_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(demo.StepFailedError, match="fab up --yes --set a=b failed with exit status 3"):
        step("print('zones: a'); print('why'); raise SystemExit(3)").run()
    assert capfd.readouterr().out == "$ fab up --yes --set a=b\nzones: a\nwhy\n"


@pytest.mark.parametrize(
    ("shown", "brief"),
    [
        ("fab status", "fab status"),
        ("fab train --nodes 2 --recipe digits --yes", "fab train --nodes 2 --recipe digits ..."),
        ("python -m localcloud start --name demo", "python -m localcloud start ..."),
    ],
)
def test_command_is_shortened(shown: str, brief: str) -> None:
    assert demo.brief_command(shown.split()) == brief


@pytest.mark.parametrize(
    ("system", "has_localcloud", "says"),
    [
        ("Darwin", True, "this is macOS"),
        ("Darwin", True, "do: run it in a Linux virtual machine, WSL2 or a privileged container"),
        ("Linux", False, '"deepcdk[localcloud]"`, or in a checkout `make setup`'),
    ],
)
def test_machine_unfit_for_embedded_cloud_is_rejected_with_requirements(
    system: str, has_localcloud: bool, says: str
) -> None:
    with pytest.raises(demo.NoCloudError) as found:
        demo.check_machine(system, has_localcloud=has_localcloud)
    assert says in str(found.value)


def test_linux_with_the_embedded_cloud_is_accepted() -> None:
    demo.check_machine("Linux", has_localcloud=True)


def agent_of(directory: Path, code: str) -> None:
    """Write modules like those in agent.environment that create the nodes' environments."""
    modules = directory / "agent" / "environment"
    modules.mkdir(parents=True)
    for package in (modules, modules.parent):
        (package / "__init__.py").touch()
    for name in ("virtual_environment", "master_environment", "runtime"):
        (modules / f"{name}.py").write_text(f"import sys\nname = {name!r}\n{code}\n")


def test_environments_of_nodes_are_created_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent_of(
        tmp_path, "print('creating', name)\nprint(f'{sys.argv[sys.argv.index(\"--root\") + 1]}/{name}/bin/python')"
    )
    monkeypatch.setattr(demo, "FOR_NODES", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    root = Path("/cache/deepcdk/runtime")
    assert demo.create_environments() == [
        root / "virtual_environment", root / "master_environment", root / "runtime",
    ]  # fmt: skip


def test_reason_why_an_environment_cannot_be_created_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    agent_of(tmp_path, "sys.exit('no C++ compiler found')")
    monkeypatch.setattr(demo, "FOR_NODES", tmp_path)
    with pytest.raises(demo.StepFailedError, match=r"agent\.environment\.virtual_environment .* exit status 1"):
        demo.create_environments()
    assert "no C++ compiler found" in capfd.readouterr().out


def test_nodes_find_environments_at_their_paths() -> None:
    assert demo.NODE_ENVIRONMENTS == DEFAULT_ROOT


def test_extra_installs_this_repositorys_embedded_cloud() -> None:
    own, localcloud = (
        tomllib.loads((demo.ROOT / path).read_text())["project"]
        for path in ("pyproject.toml", "localcloud/pyproject.toml")
    )
    assert (
        f"{localcloud['name']}=={localcloud['version']}; sys_platform == 'linux'"
        in (own["optional-dependencies"]["localcloud"])
    )
    locked = json.loads((demo.ROOT / "package.json").read_text())["devDependencies"]
    assert {f"@cloud-copilot/{name}": version for name, version in evaluator.VERSIONS.items()}.items() <= locked.items()
