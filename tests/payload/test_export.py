from __future__ import annotations

from pathlib import Path

import pytest

from payload import export


def test_invalid_arguments_exit_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        export.main(["--rundir", "x"])
    assert ended.value.code == 2
    assert "the following arguments are required: --run-dir" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "no such file; pass the directory of a run"), ("{", "these are not the settings of a run: Expecting")],
)
def test_directory_without_a_run_is_rejected_before_tensorflow_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "settings.json").write_text(text)
    assert export.main(["--run-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert (said.count("\n"), says in said) == (1, True)
