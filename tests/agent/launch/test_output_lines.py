"""Lines of ranks are the same however their output is split, and a pipe gets each one whole."""

from __future__ import annotations

import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from agent.launch.output_lines import PIECE, Lines, pieces, write
from agent.spec.long_lines import MAX_LINE


@given(st.lists(st.binary(max_size=20)))
def test_lines_do_not_depend_on_chunks(blocks: list[bytes]) -> None:
    lines, whole = Lines(b"[0]:"), Lines(b"[0]:")
    in_parts = [line for block in blocks for line in lines.feed(block)] + lines.end()
    assert in_parts == whole.feed(b"".join(blocks)) + whole.end()
    assert all(line.startswith(b"[0]:") and line.endswith(b"\n") and line.count(b"\n") == 1 for line in in_parts)


@given(st.lists(st.sampled_from([b"a", b"bcd", b"\r", b"\n", b"\r\n"])))
def test_splits_of_long_lines_do_not_depend_on_chunks(blocks: list[bytes]) -> None:
    lines, whole = Lines(b"[0]:", 3), Lines(b"[0]:", 3)
    in_parts = [line for block in blocks for line in lines.feed(block)] + lines.end()
    assert in_parts == whole.feed(b"".join(blocks)) + whole.end()
    assert all(line.startswith(b"[0]:") and len(line) <= len(b"[0]:abc\n") for line in in_parts)


def test_line_without_an_end_is_forwarded_in_parts() -> None:
    """A line kept until its end would fill the memory, and would be copied with each block."""
    lines, forwarded, held = Lines(b"[0]:"), 0, 0
    for _ in range(500):
        forwarded += sum(len(line) - len(b"[0]:\n") for line in lines.feed(b"x" * (1 << 16)))
        held = max(held, len(lines._rest))
    assert held <= MAX_LINE
    assert forwarded >= 499 << 16


@given(st.lists(st.integers(1, 2 * PIECE).map(lambda size: b"x" * (size - 1) + b"\n"), max_size=20))
def test_piece_has_whole_lines_and_at_most_one_read(lines: list[bytes]) -> None:
    found = pieces(lines)
    assert b"".join(found) == b"".join(lines)
    assert all(len(piece) <= PIECE or piece.count(b"\n") == 1 for piece in found)


def test_reading_a_piece_at_once_gives_whole_lines() -> None:
    lines = [b"%d:" % number + b"x" * (number * 37 % 900) + b"\n" for number in range(400)]
    ours, theirs = os.pipe()

    def tell() -> None:
        write(theirs, lines)
        os.close(theirs)

    thread = threading.Thread(target=tell)
    thread.start()
    read = list(iter(lambda: os.read(ours, PIECE), b""))
    thread.join()
    os.close(ours)
    assert b"".join(read) == b"".join(lines)
    assert all(block.endswith(b"\n") for block in read)
