"""TensorFlow's errors in messages: one line, without names of nodes."""

from __future__ import annotations

import pytest

from payload.tensorflow_errors import first_line

DECODE = (
    "{{function_node __wrapped__DecodePng_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
    "Unknown image file format. [Op:DecodePng] name: "
)
PIPELINE = "Input is empty.\n\t [[{{node DecodeJpeg}}]] [Op:IteratorGetNext] name: "


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (DECODE, "Unknown image file format."),
        (PIPELINE, "Input is empty."),
        ("no node", "no node"),
        ("", "RuntimeError"),
        ("{{node x}}", "RuntimeError"),
    ],
)
def test_first_line_has_no_names_of_nodes(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line
