"""Write the reference of the recipes: what `fab recipes` and `fab recipes NAME` show of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster.runs.recipe_tables import settings_of, summary_table, text
from payload.recipes import RECIPES, Recipe, Variant
from payload.settings import flag_of
from tools.site.tables import code, rows

PAGE: Final = "docs/reference/recipes.md"
TITLE: Final = "Recipes and their settings"
HEAD: Final = f"""# {TITLE}

Every recipe, as `fab recipes NAME` shows it: facts, the settings that it changes, and its variants, of which the one
for the number of ranks is taken. All other settings have [their defaults](../settings.md). [Training](../training.md)
tells how they are used. This page is written from `payload/recipes/`.
"""


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(part for recipe in RECIPES for part in _parts(recipe))


def _parts(recipe: Recipe) -> Iterator[str]:
    facts = summary_table(recipe).rows
    yield f"\n## {recipe.name}\n\n{recipe.summary[0].upper()}{recipe.summary[1:]}.\n\n"
    yield rows(("fact", ""), [(name, code(value) if name == "run" else value) for name, value in facts])
    changed = [each for each in settings_of(recipe) if each.differs]
    if changed:
        cells = [(code(each.flag), code(text(each.value)), code(text(each.default)), each.help) for each in changed]
        yield "\n" + rows(("flag", "value", "default", "what it is"), cells)
    for variant in recipe.variants:
        yield f"\n### {recipe.name}, variant {variant.name}\n\n" + _variant(variant)


def _variant(variant: Variant) -> str:
    facts = [
        ("from", f"{variant.ranks} ranks on"),
        ("time", variant.expected_time),
        ("accuracy", variant.expected_accuracy),
    ]
    overrides = [(code(flag_of(name)), code(text(value))) for name, value in variant.overrides.items()]
    return rows(("fact or flag", "value"), [*facts, *overrides])
