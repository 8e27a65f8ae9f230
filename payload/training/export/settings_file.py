"""Write and read settings.json of a run's directory: the specification for rebuilding its network."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

from agent.errors import ReportedError, malformed
from agent.files.atomic_write import replace_file
from payload.settings import SETTINGS_FILE, Settings


class ModelSpecError(ReportedError, ValueError):
    """A file with a run's settings is missing or damaged, or needs another version. The message names the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The specification of a run's network and its input. It contains everything except the weights."""

    recipe: str
    variant: str | None
    data_dir: str | None
    """Location of the training data on the ranks' hosts."""
    labels: tuple[str, ...]
    """Names of the classes."""
    input_shape: tuple[int | None, int | None, int]
    """Height, width and channels of the network's input; None: any size."""
    test_size: tuple[int, int]
    """Height and width of test images at the end of the run."""
    rectangular: bool
    """Whether test images at the end of the run roughly keep their aspect ratio."""
    margin: float
    """Fraction of a test image's shorter side to use."""
    settings: Settings


def write_model_spec(run_dir: Path, model_spec: ModelSpec) -> None:
    """Write settings.json to a run's directory. Raises StorageError."""
    replace_file(run_dir / SETTINGS_FILE, json.dumps(dataclasses.asdict(model_spec), indent=1).encode() + b"\n")


def read_model_spec(run_dir: Path) -> ModelSpec:
    """Read settings.json from a run's directory.

    Raises ModelSpecError if the file is missing or malformed, or has unknown settings or invalid values.
    """
    path = run_dir / SETTINGS_FILE
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lists = ("labels", "input_shape", "test_size")
        own: dict[str, Any] = {name: tuple(value) if name in lists else value for name, value in document.items()}
        return ModelSpec(**{**own, "settings": settings_from(document["settings"], path)})
    except FileNotFoundError:
        raise ModelSpecError(f"{path}: no such file; pass the directory of a run of payload.train") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ReportedError):
            raise
        raise ModelSpecError(
            f"{path}: these are not the settings of a run: {malformed(error)}; fetch the run again: `fab fetch`"
        ) from error


def settings_from(values: dict[str, Any], path: Path) -> Settings:
    """Convert JSON values, with lists in place of tuples, to settings. Missing settings get their defaults.

    `path`: file of the values, for messages. Raises ModelSpecError for unknown settings and for values that are invalid
    or have the wrong type.
    """
    types = typing.get_type_hints(Settings)
    remedy = "use the version of deepcdk that trained the run"
    try:
        unknown = sorted(values.keys() - types.keys())
        given: dict[str, Any] = {
            name: tuple(value) if typing.get_origin(types[name]) is tuple else value
            for name, value in values.items()
            if name in types
        }
        settings = Settings(**given)
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelSpecError(f"{path}: {malformed(error)}; {remedy}") from error
    if unknown:
        raise ModelSpecError(
            f"{path}: this version of deepcdk does not have the settings {', '.join(unknown)}; {remedy}"
        )
    return settings
