"""How the demo starts its cloud, and its output."""

from __future__ import annotations

import sys

import pytest

from tools import demo

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


def test_nodes_with_another_python_make_their_own_from_this_machines_index() -> None:
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
