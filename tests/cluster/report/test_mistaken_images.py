"""Facts about the images that a run was surest about and wrong."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from cluster.report.mistaken_images import mistakes_of
from tests.cluster.report.recorded_runs import DIGITS, report

WRITTEN: list[dict[str, Any]] = json.loads((DIGITS / "mistakes.json").read_text())["images"]


def test_they_are_those_that_the_run_wrote() -> None:
    found = [(each.truth, each.recognised, each.confidence, each.png_base64) for each in report().mistakes]
    assert found == [(each["class"], each["recognised_as"], each["confidence"], each["png"]) for each in WRITTEN]
    assert len(found) > 0


def sized(width: int, height: int) -> str:
    """Return the first image with another size in its head."""
    png = base64.b64decode(WRITTEN[0]["png"])
    return base64.b64encode(png[:16] + struct.pack(">II", width, height) + png[24:]).decode()


@pytest.mark.parametrize(
    "spoilt",
    [
        {"png": None},
        {"png": "x"},
        {"png": 'AAAA"><script>'},
        {"png": base64.b64encode(b"<svg onload=alert(1)>").decode()},
        {"png": base64.b64encode(base64.b64decode(WRITTEN[0]["png"])[:20]).decode()},
        {"png": sized(30_000, 30_000)},
        {"png": sized(0, 28)},
        {"png": "A" * 1_000_000},
        {"confidence": "0.5"},
        {"confidence": 1.5},
    ],
)
def test_what_is_no_small_image_with_a_probability_is_left_out(spoilt: dict[str, Any]) -> None:
    assert mistakes_of({"images": [WRITTEN[0] | spoilt, WRITTEN[0]]}) == mistakes_of({"images": WRITTEN[:1]}) != ()


@pytest.mark.parametrize("document", [None, {}, {"images": "many"}, {"images": [3, None]}])
def test_a_document_without_images_has_none(document: dict[str, Any] | None) -> None:
    assert mistakes_of(document) == ()


def test_no_more_than_a_page_can_show_are_taken() -> None:
    assert len(mistakes_of({"images": WRITTEN[:1] * 500})) == 24
