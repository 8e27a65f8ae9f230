"""Facts about the page of one run."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from cluster.report.html import run_html, templates
from cluster.report.run_report import report_of
from tests.cluster.report.hostile import hostile_run
from tests.cluster.report.page_reader import Page
from tests.cluster.report.recorded_runs import DIGITS, RESUMED, changed, raw, raw_metrics, report


@pytest.fixture(scope="module")
def html() -> str:
    return run_html(report())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def hostile_html() -> str:
    return run_html(report_of(hostile_run()))


def test_the_figures_at_the_head_are_the_records(page: Page) -> None:
    record = raw()
    result, seconds = record["result"], record["state"]["updated"] - record["state"]["started"]
    shown = {each.attributes["data-key"]: each.text for each in page.elements if "data-key" in each.attributes}
    assert shown["test_accuracy"] == f"{result['test_accuracy']:.2%}"
    assert shown["seconds"] == f"{seconds:.0f} s"
    assert shown["usd"] == f"${record['usd']:.4f}"
    assert shown["images_per_s_per_node"] == f"{result['images_per_s'] / 2:,.0f}"
    assert shown["training_share"] == f"{result['training_seconds'] / seconds:.0%}"


def test_every_epoch_is_in_the_table_beside_the_curves(html: str) -> None:
    epochs = [event for event in raw_metrics() if event["event"] == "epoch"]
    (table,) = re.findall("<table><caption>By epoch</caption>.*?</table>", html, flags=re.DOTALL)
    rows = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        (f"{event['epoch']}", f"{event['train_loss']:.4g}", f"{event['test_accuracy']:.2%}") for event in epochs
    ]


def test_every_setting_and_version_is_on_the_page(page: Page) -> None:
    shown = set(zip(page.texts("dt"), page.texts("dd"), strict=False))
    names = set(page.texts("dt"))
    assert names >= raw()["result"]["settings"].keys() | raw()["result"]["versions"].keys()
    assert names >= raw()["origin"]["config"].keys()
    assert raw()["result"]["weights_sha256"] in page.texts("dd") and shown


def test_curves_timeline_and_confusion_matrix_are_drawn(page: Page) -> None:
    captions = page.texts("figcaption")
    assert captions == [
        "Loss",
        "Accuracy",
        "Accuracy over time",
        "Images/s per node",
        "Learning rate",
        "Timeline",
        "Confusion matrix",
    ]
    assert "In every epoch a global batch of 64 images and images of 28 pixels." in page.texts("p")


@pytest.mark.parametrize("name", ["html", "hostile_html"])
def test_the_page_loads_nothing_and_runs_nothing(name: str, request: pytest.FixtureRequest) -> None:
    text = request.getfixturevalue(name)
    page = Page(text)
    assert [each.tag for each in page.elements if each.tag in ("script", "link", "iframe", "object", "a", "base")] == []
    for element in page.elements:
        assert [attribute for attribute in element.attributes if attribute.startswith("on")] == []
        for attribute in ("src", "href", "xlink:href"):
            assert element.attributes.get(attribute, "#").startswith(("#", "data:image/png;base64,"))
    policy = next(each for each in page.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, (
        "names, which nothing is loaded from"
    )
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)


def test_markup_in_a_record_is_text_on_the_page(hostile_html: str, html: str) -> None:
    hostile = Page(hostile_html)
    assert "<script" not in hostile_html
    assert {each.tag for each in hostile.elements} <= {each.tag for each in Page(html).elements} | {"pre"}
    assert sum("<script>alert(1)</script>" in text for text in hostile.texts("dd")) > 50
    assert "{{ 7*7 }}" in hostile.all("pre")[0].text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", hostile_html)


def test_the_surest_mistakes_are_shown_with_their_images(page: Page) -> None:
    written = json.loads((DIGITS / "mistakes.json").read_text())["images"]
    images = page.all("img")
    assert [each.attributes["src"] for each in images] == [f"data:image/png;base64,{each['png']}" for each in written]
    assert [each.attributes["alt"] for each in images] == [f"An image of class {each['class']}" for each in written]
    first = f"{written[0]['class']} taken for {written[0]['recognised_as']}{100 * written[0]['confidence']:.1f}% sure"
    assert first in page.texts("span")


def test_each_id_is_there_once_and_each_reference_leads_somewhere(page: Page) -> None:
    ids = [each.attributes["id"] for each in page.elements if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    referred = {
        each.attributes["xlink:href"].removeprefix("#") for each in page.elements if "xlink:href" in each.attributes
    }
    named = {word for each in page.elements for word in each.attributes.get("aria-labelledby", "").split()}
    assert referred | named <= set(ids)


def test_a_screen_reader_finds_a_name_for_each_figure_and_heads_for_each_table(page: Page) -> None:
    for svg in page.all("svg"):
        assert svg.attributes["role"] == "img"
        assert len(svg.attributes["aria-labelledby"].split()) == 2
    assert all(page.texts("title")) and all(page.texts("desc"))
    assert len(page.all("caption")) == len(page.all("table")) > 4
    assert {each.attributes.get("scope") for each in page.all("th")} == {"row", "col"}
    assert page.all("html")[0].attributes["lang"] == "en"
    levels = [int(each.tag[1]) for each in page.elements if re.fullmatch("h[1-6]", each.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(other - one <= 1 for one, other in itertools.pairwise(levels))


def test_it_is_made_for_the_dark_for_paper_and_for_a_phone(html: str) -> None:
    assert "@media (prefers-color-scheme: dark) { :root { --background: #11151c" in html
    assert html.index("@media (prefers-color-scheme: dark)") < html.index(
        "@media print { :root { --background: #ffffff"
    )
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html


def test_a_failed_run_shows_its_reason_and_the_end_of_its_log() -> None:
    page = Page(run_html(report_of(changed(state={"state": "failed", "reason": "lost", "last_lines": ["one", "two"]}))))
    assert "lost" in page.texts("p")
    assert page.texts("pre") == ["one two"]


def test_what_the_record_lacks_is_said() -> None:
    assert any("Of earlier attempts" in text for text in Page(run_html(report(RESUMED))).texts("li"))


def test_a_page_is_small_enough_to_send(html: str) -> None:
    assert len(html) < 300_000


def test_a_template_that_misspells_a_value_is_an_error() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        templates().from_string("{{ report.nothing }}").render(report=report())
