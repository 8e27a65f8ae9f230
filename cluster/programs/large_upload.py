"""Ask before the upload of a large program, or of many wheels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cluster.ssh.push import Tree
from cluster.terminal.confirmation import confirm

ASKED_BYTES: Final = 50_000_000
ASKED_FILES: Final = 10_000
"""The user must confirm an upload that exceeds either of these."""


def is_large(tree: Tree) -> bool:
    """Return whether a tree exceeds ASKED_BYTES or ASKED_FILES, so that the user must confirm the upload."""
    return tree.content_bytes > ASKED_BYTES or tree.files > ASKED_FILES


def describe_size(tree: Tree) -> str:
    """Return a sentence that the upload of a large tree is large, with its number of files, size and largest files."""
    largest = ", ".join(f"{name} {size:,}" for size, name in tree.largest)
    files = f"{tree.files:,} file{'s' * (tree.files != 1)}"
    return f"the upload is large: {files}, {tree.content_bytes:,} bytes; the largest: {largest}"


def confirm_upload(tree: Tree, tell: Callable[[str], None], *, yes: bool) -> None:
    """Ask whether to upload a large tree, after `tell` got its size. The caller checks `is_large`.

    With `yes` it does not ask. Raises DeepcdkError unless the answer is yes, or without a terminal.
    """
    tell(describe_size(tree))
    hint = "" if tree.folder == "wheels" else " To leave files out, list them in .deepcdkignore."
    confirm(f"upload it?{hint}", yes=yes)
