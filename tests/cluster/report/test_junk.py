"""Facts about records in which one value is of another kind: each has a report, or is refused as no record."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from cluster import answers
from cluster.report.comparison import compare
from cluster.report.formats import run_document
from cluster.report.markdown import comparison_markdown, run_markdown
from cluster.report.run_files import RunFiles, read_run
from cluster.report.run_report import report_of
from tests.cluster.report.recorded_runs import DIGITS, RESUMED, report

JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, True, -1, 0, 10**17, 1e300, -0.5, "", "text", "\x00", [], [[]], ["x", None], {}, {"a": {}}, [{"a": []}]]
)
RUNS: Final = (read_run(DIGITS), read_run(RESUMED))
FIRST: Final = report()

Path = tuple[str | int, ...]


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the way to each value within a JSON value, of lists the first two."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from paths(each, (*at, key))


def replaced(value: Any, path: Path, junk: Any) -> Any:
    """Return a copy of a JSON value with another value at a place."""
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    return changed


def reported(files: RunFiles) -> None:
    """Report a run in every way that draws nothing, where its record is one."""
    if answers.record(files.record):
        return
    built = report_of(files)
    json.dumps(run_document(built), allow_nan=False)
    run_markdown(built)
    comparison_markdown(compare([FIRST, built]))


@given(files=st.sampled_from(RUNS), data=st.data(), junk=JUNK)
def test_of_any_record_with_one_spoilt_value(files: RunFiles, data: st.DataObject, junk: Any) -> None:
    path = data.draw(st.sampled_from(list(paths(dict(files.record)))))
    reported(dataclasses.replace(files, record=replaced(dict(files.record), path, junk)))


@given(files=st.sampled_from(RUNS), data=st.data(), junk=JUNK)
def test_of_any_metrics_with_one_spoilt_value(files: RunFiles, data: st.DataObject, junk: Any) -> None:
    place = data.draw(st.integers(0, len(files.metrics) - 1))
    key = data.draw(st.sampled_from(sorted(files.metrics[place].keys() - {"event"})))
    events = replaced([dict(event) for event in files.metrics], (place, key), junk)
    reported(dataclasses.replace(files, metrics=tuple(events)))


@given(
    files=st.sampled_from(RUNS), name=st.sampled_from(["confusion", "mistakes", "settings"]), data=st.data(), junk=JUNK
)
def test_of_any_other_file_with_one_spoilt_value(files: RunFiles, name: str, data: st.DataObject, junk: Any) -> None:
    document = dict(getattr(files, name) or {"images": [{}]})
    path = data.draw(st.sampled_from(list(paths(document))))
    reported(dataclasses.replace(files, **{name: replaced(document, path, junk)}))
