"""A report as a page, as Markdown and as JSON, and the files that it is written to."""

from __future__ import annotations

import copy
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import markdown as renderer  # type: ignore[import-untyped]  # TensorBoard installs it, without types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from cluster import master_answers as answers
from cluster.errors import DeepcdkError, UsageError
from cluster.report.comparison import Comparison, compare
from cluster.report.output_formats import (
    FORMAT,
    destinations,
    escaped,
    numeric_columns,
    parse_formats,
    rendered,
    templates,
    write,
)
from cluster.report.run_files import RunFiles, read_run
from cluster.report.run_report import RunReport, report_of
from cluster.terminal.tables import Table
from tests.cluster.report.page_reader import Page
from tests.cluster.report.recorded_runs import (
    DIGITS,
    MARKUP,
    RESUMED,
    another,
    changed,
    hostile_run,
    raw,
    raw_metrics,
    report,
)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return the pages of a run and of a comparison, and of both with markup in every text."""
    hostile = report_of(hostile_run())
    reports: dict[str, RunReport | Comparison] = {
        "run": report(),
        "hostile": hostile,
        "comparison": compare([another(1, accuracy=0.9), another(2, accuracy=0.96, seed=2), report(RESUMED)]),
        "hostile comparison": compare([report(), hostile]),
    }
    return {name: rendered(each, "html") for name, each in reports.items()}


@pytest.fixture(scope="module")
def page(pages: dict[str, str]) -> Page:
    return Page(pages["run"])


def test_page_has_headlines_epochs_settings_figures_and_mistakes(pages: dict[str, str], page: Page) -> None:
    record, mistakes = raw(), json.loads((DIGITS / "mistakes.json").read_text())["images"]
    shown = {each.attributes["data-key"]: each.text for each in page.elements if "data-key" in each.attributes}
    assert shown["test_accuracy"] == f"{record['result']['test_accuracy']:.2%}"
    assert shown["usd"] == f"${record['usd']:.4f}"
    (table,) = re.findall("<table><caption>By epoch</caption>.*?</table>", pages["run"], flags=re.DOTALL)
    rows = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        (f"{event['epoch']}", f"{event['train_loss']:.4g}", f"{event['test_accuracy']:.2%}")
        for event in raw_metrics(kind="epoch")
    ]
    assert " attempts" not in pages["run"] and ", 2 attempts, " in rendered(report(RESUMED), "html")
    names = set(page.texts("dt"))
    assert names >= record["result"]["settings"].keys() | record["result"]["versions"].keys()
    captions = ["Loss", "Accuracy", "Accuracy over time", "Images/s per node", "Learning rate", "Timeline"]
    assert page.texts("figcaption") == [*captions, "Confusion matrix"]
    images = [(each.attributes["src"], each.attributes["alt"]) for each in page.all("img")]
    assert images == [(f"data:image/png;base64,{m['png']}", f"An image of class {m['class']}") for m in mistakes]


def test_pages_load_nothing_and_run_nothing(pages: dict[str, str]) -> None:
    for text in pages.values():
        page = Page(text)
        tags = {each.tag for each in page.elements}
        assert not tags & {"script", "link", "iframe", "object", "a", "base"}
        for element in page.elements:
            assert not [attribute for attribute in element.attributes if attribute.startswith("on")]
            for attribute in ("src", "href", "xlink:href"):
                assert element.attributes.get(attribute, "#").startswith(("#", "data:image/png;base64,"))
        (policy,) = (each for each in page.all("meta") if "http-equiv" in each.attributes)
        assert policy.attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= namespaces
        assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
        assert len(text) < 300_000


def test_markup_in_a_record_is_text_on_a_page(pages: dict[str, str], page: Page) -> None:
    hostile = Page(pages["hostile"])
    assert {each.tag for each in hostile.elements} <= {each.tag for each in page.elements} | {"pre"}
    assert sum("<script>alert(1)</script>" in text for text in hostile.texts("dd")) > 50
    assert "{{ 7*7 }}" in hostile.all("pre")[0].text, "the last lines of a failed run's log"
    (reason,) = (each for each in hostile.all("p") if each.attributes.get("class") == "reason")
    assert "{{ 7*7 }}" in reason.text
    for name in ("hostile", "hostile comparison"):
        assert "<script" not in pages[name]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", pages[name])


def test_each_id_is_unique_and_each_reference_resolves(pages: dict[str, str]) -> None:
    for text in pages.values():
        page = Page(text)
        ids = [each.attributes["id"] for each in page.elements if "id" in each.attributes]
        assert len(ids) == len(set(ids))
        used = {
            each.attributes[k].removeprefix("#")
            for each in page.elements
            for k in ("xlink:href",)
            if k in each.attributes
        }
        named = {word for each in page.elements for word in each.attributes.get("aria-labelledby", "").split()}
        assert named and used | named | set(re.findall(r"url\(#([\w-]+)\)", text)) <= set(ids)


def test_screen_readers_find_names_of_figures_and_headers_of_tables(page: Page) -> None:
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


def test_page_has_a_dark_theme_a_light_one_on_paper_and_the_width_of_a_phone(pages: dict[str, str]) -> None:
    text = pages["run"]
    dark = text.index("@media (prefers-color-scheme: dark) { :root { --background: #11151c")
    assert dark < text.index("@media print { :root { --background: #ffffff")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text


def test_page_of_a_comparison_marks_what_differs_and_lists_the_rest(pages: dict[str, str]) -> None:
    page = Page(pages["comparison"])
    marked = [each.text for each in page.all("td") if "differs" in each.attributes.get("class", "")]
    assert "\u2260 60" in marked and all(text.startswith("\u2260 ") for text in marked)
    assert "training: momentum" in page.texts("dt")
    assert any(text.startswith("B: For earlier attempts") for text in page.texts("li"))
    assert len(page.all("svg")) == 5


def test_unknown_name_in_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        templates().from_string("{{ page.nothing }}").render(page=report())


def test_markdown_has_the_same_tables() -> None:
    text, result = rendered(report(), "md"), raw()["result"]
    assert text.startswith(f"# {raw()['run_id']}\n")
    assert f"| Test accuracy | {result['test_accuracy']:.2%} |" in text
    for event in raw_metrics(kind="epoch"):
        assert re.search(rf"^\| {event['epoch']} \| .*\| {event['test_accuracy']:.2%} \|", text, flags=re.MULTILINE)
    for name, value in result["versions"].items():
        assert f"| {escaped(name)} | {escaped(value)} |" in text
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(blocks) > 8
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_markdown_shows_expected_beside_actual_figures_if_there_was_an_estimate() -> None:
    estimate = {"seconds": {"low": 10, "value": 40, "high": 90}, "usd": None}
    estimated = changed(origin={"estimate": estimate}, state={"started": 1000.0, "updated": 1060.0})
    text = rendered(report_of(estimated), "md")
    assert "### Expected and actual" in text and "| time | 40 s (10 s to 1:30) | 1:00 | +50% |" in text
    assert "Expected and actual" not in rendered(report(), "md")


def test_markup_in_a_record_has_no_effect_in_markdown() -> None:
    hostile = report_of(hostile_run())
    html = renderer.markdown(rendered(hostile, "md"), extensions=["tables"])
    assert "<script" not in html and "<img" not in html and "<b>" not in html
    assert re.findall(r"(?<!\\)<", rendered(compare([report(), hostile]), "md")) == []
    assert re.findall(r"(?<!\\)[<>|*_`\[\]$~]", escaped(MARKUP).replace("\\\\", "")) == []


def test_json_has_unrounded_figures() -> None:
    found = json.loads(rendered(report(), "json"))
    assert (found["format"], found["report"], found["run_id"]) == (FORMAT, "run", raw()["run_id"])
    figures = {each["key"]: each["value"] for each in found["headlines"]}
    assert figures["test_accuracy"] == raw()["result"]["test_accuracy"]
    losses = [event["train_loss"] for event in raw_metrics(kind="epoch")]
    assert [epoch["train_loss"] for epoch in found["curves"]["epochs"]] == losses
    compared = json.loads(rendered(compare([another(1), another(2, seed=2), report(RESUMED)]), "json"))
    assert (compared["report"], compared["labels"]) == ("comparison", ["A1", "A2", "B"])
    assert {each["name"] for each in compared["settings"] if each["differs"]} >= {"seed", "epochs"}
    assert compared["repeats"][0]["figures"]["test_accuracy"]["count"] == 2


def test_columns_of_numbers_are_right_aligned() -> None:
    rows = (
        ("1", "98.89%", "3:05", "$0.0099", "10.0.0.5", "2026-11-23 22:28", "-", "1.5 \u00b1 0.1 (1 to 2)", "1e-07"),
        ("1,024", "-", "42 s", "unknown", "10.0.0.6", "2026-11-23 22:28", "-", "", "+50%"),
    )
    assert numeric_columns(Table(title="", columns=("",) * 9, rows=rows)) == {0, 1, 2, 3, 7, 8}


JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, True, -1, 0, 10**17, 1e300, -0.5, "", "text", "\x00", [], [[]], ["x", None], {}, {"a": {}}, [{"a": []}]]
)
FIRST: Final = report()
RUNS: Final = (read_run(DIGITS), read_run(RESUMED))


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of each value inside a JSON value."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*at, key))


def parts(files: RunFiles) -> dict[str, Any]:
    """Return copies of a run's documents by name, and the metrics by position."""
    documents = {name: getattr(files, name) for name in ("record", "confusion", "mistakes", "settings")}
    return copy.deepcopy(documents | {"metrics": dict(enumerate(files.metrics))})


PLACES: Final = [
    (run, path)
    for run, files in enumerate(RUNS)
    for path in places(parts(files))
    if len(path) > (2 if path[0] == "metrics" else 1) and path[-1] != "event"
]


@given(place=st.sampled_from(PLACES), junk=JUNK)
def test_any_invalid_value_is_left_out_or_the_record_is_rejected(place: tuple[int, Any], junk: Any) -> None:
    run, path = place
    spoilt = inner = parts(RUNS[run])
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    if answers.record(spoilt["record"]):
        return
    built = report_of(RunFiles(**{**spoilt, "metrics": tuple(spoilt["metrics"].values())}))
    json.loads(rendered(built, "json"), parse_constant=lambda text: pytest.fail(text))
    rendered(built, "md")
    rendered(compare([FIRST, built]), "md")


def test_formats_are_parsed_and_unknown_ones_are_rejected() -> None:
    assert (parse_formats("html"), parse_formats("json, html,json")) == (("html",), ("json", "html"))
    for text in ("", ",", "html,pdf", "HTML"):
        with pytest.raises(UsageError, match="must be one or several of html, md, json"):
            parse_formats(text)


def test_files_are_written_beside_the_run_unless_another_place_is_given(tmp_path: Path) -> None:
    default = tmp_path / "run" / "report"
    beside = {"html": tmp_path / "run" / "report.html", "md": tmp_path / "run" / "report.md"}
    assert destinations("", default, ("html", "md")) == beside
    assert destinations(str(tmp_path), default, ("md",)) == {"md": tmp_path / "report.md"}
    assert destinations("new/", default, ("json",)) == {"json": Path("new/report.json")}
    assert destinations("a.html", default, ("html",)) == {"html": Path("a.html")}
    with pytest.raises(UsageError, match="must be a directory"):
        destinations("a.html", default, ("html", "md"))
    write(tmp_path / "new" / "report.html", "text")
    assert (tmp_path / "new" / "report.html").read_text() == "text"
    (tmp_path / "file").touch()
    with pytest.raises(DeepcdkError, match="cannot be written") as raised:
        write(tmp_path / "file" / "report.html", "text")
    assert "file/report.html" in raised.value.where and "--into" in raised.value.remedy


def test_matplotlib_and_jinja_are_imported_only_to_draw() -> None:
    code = "import sys, cluster.report.output_formats, cluster.tasks.report\n"
    code += "print({'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
