"""Write docs/settings.md, with every setting of a training run, from the declarations of the settings.

python -m tools.settings_page
"""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any, Final

from payload.settings import GROUPS, flag_of

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD: Final = """# Settings of a training run

Every setting of `payload.train`, with its default. A [recipe](training.md) sets some of them; a flag changes any:

    fab train --nodes 4 --recipe imagenet-fast --data-dir /mnt/efs/data/imagenet -- --no-xla --precision bfloat16

`python -m tools.settings_page` writes this page from the declarations in `payload/settings`.
"""


def page() -> str:
    """Return the text of docs/settings.md: a table of the settings for each group."""
    return HEAD + "".join(_section(group) for group in GROUPS)


def _section(group: Any) -> str:
    title = group.__doc__.strip().removesuffix(".")
    types = typing.get_type_hints(group)
    rows = [
        f"| `{flag_of(field.name)}` | {_shown(field.default, types[field.name])} | {_text(field)} |"
        for field in dataclasses.fields(group)
    ]
    return f"\n## {title}\n\n| flag | default | what it is |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _shown(default: Any, kind: Any) -> str:
    if kind is bool:
        return "on" if default else "off"
    if default in ("", ()):
        return "none"
    return f"{default:g}" if kind is float else f"{default:,}".replace(",", " ") if kind is int else str(default)


def _text(field: Any) -> str:
    choices = field.metadata["choices"]
    text: str = field.metadata["help"]
    return f"{text}; one of {', '.join(choices)}" if choices else text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
