from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tools import architecture
from tools.architecture import PAGE, PICTURE, WAY, crossings, draw_arrows, fold, page, picture, read_graph, summary

REMEDY = "run `make architecture`, and look at the picture"


def test_the_committed_picture_is_that_of_the_code() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), REMEDY


def test_the_committed_page_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), REMEDY


def test_every_station_of_a_run_is_a_module() -> None:
    assert {module for module, _ in WAY} <= read_graph().modules


def test_every_text_of_the_picture_lies_within_it() -> None:
    drawn = ET.fromstring(picture())
    width, height = int(drawn.attrib["width"]), int(drawn.attrib["height"])
    places = [
        (float(each.attrib["x"]), float(each.attrib["y"])) for each in drawn.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert len(places) > 100
    assert all(0 < x < width and 0 < y < height for x, y in places)


def test_an_import_between_rooms_that_has_no_arrow_is_an_error() -> None:
    counts = crossings(read_graph())
    places = dict.fromkeys(("cluster", "agent", "payload"), (0, 10))
    assert list(draw_arrows(counts, places))
    with pytest.raises(ValueError, match=r"\('agent', 'payload'\)"):
        list(draw_arrows(counts | {("agent", "payload"): 1}, places))


def test_a_page_without_a_place_for_a_list_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for way"):
        page("# Architecture\n")
    assert page("<!-- way -->\nold\n<!-- end -->\n<!-- contracts -->\n<!-- end -->\n").count("<!-- end -->") == 2


def test_a_package_is_named_by_the_first_words_of_its_docstring() -> None:
    assert summary(architecture.ROOT / "agent" / "__init__.py").startswith("What runs any program on the nodes")
    assert fold("one two three", 60, 10) == ["one two", "three"]
