"""Templates as text that people can compare.

`python -m tests.stacks.clusters.snapshots` writes the templates in `SHOWN`. Logical ids lose the CDK's hash, packed
scripts are masked, and user data is shown as text. Everything else is as in a deployment.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

SHOWN: Final = ("default CPU", "p5 with EFA", "existing VPC", "everything")
"""The clusters with committed templates; the invariants hold for all clusters."""
FOLDER: Final = Path(__file__).parent / "snapshots"
_ID: Final = re.compile(r"^([A-Z]\w*?)[0-9A-F]{8}$")
_WITHIN: Final = re.compile(r"[0-9A-F]{8}")
_LONG: Final = re.compile(r"[0-9A-F]{32}(?=Parameter$)")
_PACKED: Final = re.compile(r"""(?<="\$bin" )'[^']*'""")


def path(name: str) -> Path:
    """Return the path of a cluster's snapshot."""
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.yaml"


def text(document: dict[str, Any]) -> str:
    """Return a template as YAML without hashes."""
    return yaml.dump(_plain(document, _names(document)), Dumper=_Dumper, width=120, sort_keys=True, allow_unicode=True)


def _names(document: dict[str, Any]) -> dict[str, str]:
    """Map each logical id that ends in a hash to a name without it; duplicates are numbered in order."""
    found: dict[str, str] = {}
    for id in document["Resources"]:
        matched = _ID.match(id)
        if matched:
            base = _WITHIN.sub("~", matched[1])
            name, number = f"{base}~", 2
            while name in found.values():
                name, number = f"{base}~{number}", number + 1
            found[id] = name
    return found


def _plain(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"Fn::Join"} and value["Fn::Join"][0] == "":
            parts = [_plain(part, names) for part in value["Fn::Join"][1]]
            return "".join(part if isinstance(part, str) else _reference(part) for part in parts)
        return {_masked(key, names): _plain(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, names) for each in value]
    return _masked(value, names) if isinstance(value, str) else value


def _reference(value: Any) -> str:
    """Return a reference in the notation of Fn::Sub."""
    if isinstance(value, dict) and set(value) == {"Ref"}:
        return f"${{{value['Ref']}}}"
    if isinstance(value, dict) and set(value) == {"Fn::GetAtt"}:
        return f"${{{'.'.join(value['Fn::GetAtt'])}}}"
    return f"${json.dumps(value, sort_keys=True)}"


def _masked(value: str, names: dict[str, str]) -> str:
    if value in names:
        return names[value]
    value = _LONG.sub("~", _PACKED.sub("(packed scripts)", value))
    return re.sub(r"\b[A-Z]\w*[0-9A-F]{8}\b", lambda found: names.get(found[0], found[0]), value)


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, and indent every list below its key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists too."""
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal parts twice."""
        del data
        return True


def _represent(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent)


def main() -> int:
    """Write the snapshots, remove stale ones, and print the changes."""
    from tests.stacks.clusters.eight import CLUSTERS
    from tests.stacks.clusters.synthesis import synthesise

    FOLDER.mkdir(exist_ok=True)
    wanted = {path(name): text(synthesise(CLUSTERS[name].config()).document) for name in SHOWN}
    for stale in set(FOLDER.iterdir()) - wanted.keys():
        stale.unlink()
        print(f"removed {stale.name}")
    for place, content in wanted.items():
        if not place.exists() or place.read_text(encoding="utf-8") != content:
            place.write_text(content, encoding="utf-8")
            print(f"wrote {place.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
