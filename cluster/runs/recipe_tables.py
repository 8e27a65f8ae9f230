"""Recipes as tables and as JSON values, for `fab recipes`. All functions are pure."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from cluster.errors import UsageError
from cluster.terminal.tables import Table
from payload.recipes import RECIPES, Recipe, Variant
from payload.settings import GROUPS, Settings, flag_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One setting of a recipe: a row of its table."""

    name: str
    group: str
    """The settings group in the command line's help."""
    value: Any
    default: Any
    help: str

    @property
    def flag(self) -> str:
        """Return the flag that overrides this setting."""
        return flag_of(self.name)

    @property
    def differs(self) -> bool:
        """Return whether the value differs from the default."""
        return bool(self.value != self.default)


def recipe_named(name: str) -> Recipe:
    """Return the recipe with this name. For an unknown name, raises UsageError with the closest name and all known
    names.
    """
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    raise _unknown("--recipe", name, [recipe.name for recipe in RECIPES])


def variant_named(recipe: Recipe, name: str) -> Variant | None:
    """Return a recipe's variant, or None for "". For an unknown name, raises UsageError with the closest and all known
    names.
    """
    if not name:
        return None
    for variant in recipe.variants:
        if variant.name == name:
            return variant
    if not recipe.variants:
        raise UsageError("--variant", name, f"recipe {recipe.name} has no variants; leave out --variant")
    raise _unknown("--variant", name, [variant.name for variant in recipe.variants])


def _unknown(flag: str, name: str, known: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1)
    question = f"unknown; did you mean {near[0]}?" if near else "unknown."
    return UsageError(flag, name, f"{question} Known: {', '.join(known)}")


def settings_of(recipe: Recipe, variant: Variant | None = None) -> list[SettingRow]:
    """Return all settings of a recipe: first those that the recipe or the variant changes, then the others.

    Both parts are in command-line order.
    """
    chosen = dataclasses.replace(recipe.settings, **(variant.overrides if variant else {}))
    usual = Settings()
    shown = [
        SettingRow(
            name=field.name,
            group=(group.__doc__ or "").strip().rstrip("."),
            value=getattr(chosen, field.name),
            default=getattr(usual, field.name),
            help=field.metadata["help"],
        )
        for group in GROUPS
        for field in dataclasses.fields(group)
    ]
    return sorted(shown, key=lambda each: not each.differs)


def document(recipe: Recipe, variant: Variant | None = None) -> dict[str, Any]:
    """Return as JSON values the fields of a recipe, its variants, the name of `variant` (or None), and all settings.

    The settings are those of `variant` if it is given; each has its default value and its flag.
    """
    plain = {
        field.name: getattr(recipe, field.name)
        for field in dataclasses.fields(Recipe)
        if field.name not in ("settings", "variants", "current_types")
    }
    current_types = [dataclasses.asdict(each) for each in recipe.current_types]
    variants = [{**dataclasses.asdict(each), "overrides": dict(each.overrides)} for each in recipe.variants]
    settings = [
        {"name": s.name, "flag": s.flag, "value": s.value, "default": s.default, "differs": s.differs, "help": s.help}
        for s in settings_of(recipe, variant)
    ]
    lists = {"current_types": current_types, "variants": variants}
    return {**plain, **lists, "variant": variant.name if variant else None, "settings": settings}


def summary_table(recipe: Recipe) -> Table:
    """Build the table of a recipe's facts: command, hardware, time, accuracy, source, and times on current types."""
    rows = [
        ("run", recipe.command),
        ("trains", f"{recipe.settings.network} on {recipe.settings.dataset}"),
        ("hardware", recipe.hardware),
        ("time", recipe.expected_time),
        ("accuracy", recipe.expected_accuracy),
        ("figures", recipe.evidence + (f": {recipe.source}" if recipe.source else " here")),
        *(("today", f"{t.instance_type}: {t.expected_time} ({t.evidence})") for t in recipe.current_types),
    ]
    return Table(title=f"{recipe.name}: {recipe.summary}", columns=("", ""), rows=tuple(rows))


def tables(recipe: Recipe, variant: Variant | None, *, everything: bool) -> Iterator[Table]:
    """Yield the tables of a recipe: its facts, its settings, and the overrides of each of its variants.

    With a `variant`, its settings are shown, and the tables of variants are left out. Settings with default values are
    listed only if `everything` is set.
    """
    yield summary_table(recipe)
    yield _settings_table(recipe, variant, everything=everything)
    for other in recipe.variants if variant is None else ():
        facts = (
            ("from", f"{other.ranks} ranks on"),
            ("time", other.expected_time),
            ("accuracy", other.expected_accuracy),
        )
        sets = tuple((flag_of(name), text(value)) for name, value in other.overrides.items())
        yield Table(title=f"--variant {other.name}", columns=("", ""), rows=(*facts, *sets))


def _settings_table(recipe: Recipe, variant: Variant | None, *, everything: bool) -> Table:
    """Build the table of a recipe's settings. Defaults are left out unless `everything` is set."""
    found = settings_of(recipe, variant)
    shown = [each for each in found if everything or each.differs]
    name = f"{recipe.name}, variant {variant.name}" if variant else recipe.name
    rest = len(found) - len(shown)
    footer = (f"{rest} more settings have default values; --all shows them",) if rest else ()
    return Table(
        title=f"settings of {name}; to change one: `fab train --recipe {recipe.name} -- --FLAG VALUE`",
        columns=("flag", "value", "default", "what"),
        rows=tuple((each.flag, text(each.value), text(each.default), each.help) for each in shown),
        footer=footer,
        expendable=("what", "default"),
    )


def text(value: object) -> str:
    """Format a value the way its flag takes it, or as - if it is empty. Switches become yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "-"
    return (f"{value:g}" if isinstance(value, float) else str(value)) or "-"
