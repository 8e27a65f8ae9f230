"""Write the contents of the wheel. All packages are below `deepcdk`, so that they do not collide with the user's.

deepcdk/agent, cluster, payload, stacks   imported on the laptop; imports of each other begin with `deepcdk.`
deepcdk/for_nodes/agent, payload          uploaded to nodes, where they are top-level packages as in a checkout
deepcdk/node_modules/aws-cdk              the CDK CLI
deepcdk/cdk.json                          only the CDK's feature flags from this checkout's cdk.json
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Final

from stacks.config import feature_flags

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("agent", "cluster", "payload", "stacks")
FOR_NODES: Final = ("agent", "payload")
CDK_CLI: Final = Path("node_modules") / "aws-cdk"
_LOADERS: Final = {"PackageLoader", "__import__", "files", "find_spec", "import_module", "resolve_name", "run_module"}
_OUR_NAME: Final = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.|$)")
_IGNORED: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def renamed(source: str, name: str) -> str:
    """Return the source of a Python file, changed so that imports of our packages begin with `deepcdk.`.

    Line numbers stay the same. `name`, the file's name, is for messages. Raises ValueError for an import statement that
    cannot be changed, and for a call that loads one of our packages by a name in a string.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.Import) and {alias.name.partition(".")[0] for alias in node.names} & {*PACKAGES}:
            raise ValueError(
                f"{name}, line {node.lineno}: `import PACKAGE` cannot be changed for the wheel; write `from PACKAGE "
                "import NAME`"
            )
        if isinstance(node, ast.Call) and _loads_ours(node):
            raise ValueError(
                f"{name}, line {node.lineno}: a package name in a string cannot be changed for the wheel; make the "
                "name relative to `__package__`"
            )
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in PACKAGES:
            number = node.lineno - 1
            start, rest = lines[number][: node.col_offset], lines[number][node.col_offset :]
            lines[number] = start + re.sub(r"^from\s+", "from deepcdk.", rest)
    return "".join(lines)


def _loads_ours(call: ast.Call) -> bool:
    """Return whether a call imports one of our packages or reads its files, by a name in a string."""
    if ast.unparse(call.func).rpartition(".")[2] not in _LOADERS:
        return False
    first = [*call.args, *(keyword.value for keyword in call.keywords)][:1]
    texts = [node.value for each in first for node in ast.walk(each) if isinstance(node, ast.Constant)]
    return bool(texts) and isinstance(texts[0], str) and _OUR_NAME.match(texts[0]) is not None


def write_package(root: Path, into: Path) -> None:
    """Write the package `deepcdk` to the empty directory `into`, from the checkout `root`.

    Raises FileNotFoundError without the CDK CLI, and ValueError as `renamed` does.
    """
    if not (root / CDK_CLI / "bin" / "cdk").is_file():
        raise FileNotFoundError(f"no CDK CLI in {root / CDK_CLI}: run `make setup` or `npm ci` first")
    shutil.copytree(root / "deepcdk", into, ignore=_IGNORED, dirs_exist_ok=True)
    for package in PACKAGES:
        shutil.copytree(root / package, into / package, ignore=_IGNORED)
    for path in into.rglob("*.py"):
        path.write_text(renamed(path.read_text(encoding="utf-8"), str(path.relative_to(into))), encoding="utf-8")
    for package in FOR_NODES:
        shutil.copytree(root / package, into / "for_nodes" / package, ignore=_IGNORED)
    unused = shutil.ignore_patterns("docs", ".*", "README.md")  # only at the top, not in templates of `cdk init`
    shutil.copytree(
        root / CDK_CLI, into / CDK_CLI, ignore=lambda at, names: unused(at, names) if Path(at) == root / CDK_CLI else []
    )
    flags = feature_flags((root / "cdk.json").read_text(encoding="utf-8"))
    (into / "cdk.json").write_text(json.dumps({"context": flags}, indent=2) + "\n", encoding="utf-8")
    (into / "py.typed").touch()
