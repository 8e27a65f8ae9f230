"""The public API, the Node.js that it selects, and the example in docs/own-stacks.md."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from jsii.errors import JSIIError

import deepcdk
from cluster.cli import packaged_node
from cluster.tasks import init
from deepcdk.__main__ import keep_bytecode

ROOT = Path(__file__).resolve().parents[1]


def run(code: str, **variables: str) -> str:
    environ = {key: value for key, value in os.environ.items() if key != "JSII_NODE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_cdk_uses_installed_node_instead_of_path(tmp_path: Path) -> None:
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    code = "import deepcdk; from aws_cdk import Aws; print(Aws.REGION)"
    assert run(code, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}").startswith("${Token[AWS.Region")


def test_user_can_select_another_node() -> None:
    code = "import os, deepcdk; print(os.environ['JSII_NODE'])"
    assert run(code) == f"{packaged_node()}\n"
    assert run(code, JSII_NODE="/opt/node") == "/opt/node\n"


def test_unusable_cache_of_cdk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jsii unpacks the CDK to a cache below HOME when `stacks.cluster` is imported."""

    class Unusable(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise JSIIError("Cannot use the jsii package cache in /nonexistent/.cache")

    monkeypatch.setitem(sys.modules, "stacks.cluster", Unusable("stacks.cluster"))
    cause = "Cannot use the jsii package cache in /nonexistent/.cache"
    with pytest.raises(
        SystemExit, match=f"deepcdk: the CDK cannot be loaded: {cause}\n  do: make the cache .* writable"
    ):
        deepcdk.app()


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the guide's test module, in a new project with the guide's app.py."""
    (tmp_path / "cdk.json").write_text(init.cdk_json("mine"))
    guide = (ROOT / "docs" / "own-stacks.md").read_text(encoding="utf-8")
    modules = re.findall(r"^```python\n(# (\w+)\.py.*?)^```", guide, flags=re.DOTALL | re.MULTILINE)
    assert [name for _, name in modules] == ["app", "test_app"]
    for text, name in modules:
        file = tmp_path / f"{name}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


def test_example_of_a_snapshot_test_detects_a_change(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        example.test_templates_are_as_reviewed()
    monkeypatch.setenv("UPDATE_SNAPSHOTS", "1")
    example.test_templates_are_as_reviewed()
    assert sorted(file.name for file in (tmp_path / "snapshots").iterdir()) == ["datasets.json", "mine.json"]
    assert "AWS::S3::Bucket" in (tmp_path / "snapshots" / "datasets.json").read_text()
    monkeypatch.delenv("UPDATE_SNAPSHOTS")
    example.test_templates_are_as_reviewed()
    file = tmp_path / "cdk.json"
    file.write_text(file.read_text().replace('"workers": 2', '"workers": 3'))
    with pytest.raises(AssertionError):
        example.test_templates_are_as_reviewed()


@pytest.fixture
def python_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return site-packages with the CDK, which this user may not write. Python's settings are restored afterwards."""
    (tmp_path / "aws_cdk").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "aws_cdk")  # root may write everywhere
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    return tmp_path


def test_bytecode_is_in_the_cache_if_site_packages_is_read_only(python_settings: Path) -> None:
    keep_bytecode(python_settings)
    assert sys.pycache_prefix == os.environ["PYTHONPYCACHEPREFIX"] == "/cache/deepcdk/bytecode"


@pytest.mark.parametrize("case", ["writable", "compiled", "not installed", "switched off", "own prefix", "no home"])
def test_bytecode_location_of_python_is_kept(python_settings: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    if case == "writable":
        monkeypatch.setattr(os, "access", lambda path, mode: True)
    elif case == "compiled":
        (python_settings / "aws_cdk" / "__pycache__").mkdir()
    elif case == "not installed":
        (python_settings / "aws_cdk").rmdir()
    elif case == "switched off":
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
    elif case == "own prefix":
        monkeypatch.setattr(sys, "pycache_prefix", "/mine")
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    before = sys.pycache_prefix
    keep_bytecode(python_settings)
    assert (sys.pycache_prefix, os.environ["PYTHONPYCACHEPREFIX"]) == (before, "")
