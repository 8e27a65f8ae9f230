"""The task that shows the recipes."""

from __future__ import annotations

from typing import Annotated

from cluster.cli.task import Json, task
from cluster.terminal.output import print_line, print_result, print_sentence


@task(word="--recipe")
def recipes(
    recipe: Annotated[str, "show this recipe with its settings; default: list all recipes"] = "",
    variant: Annotated[str, "show the settings of this variant"] = "",
    all: Annotated[bool, "show every setting, also those with default values"] = False,
    json: Json = False,
) -> None:
    """
    List the recipes with command, hardware, expected time and accuracy, or show the settings of one recipe.

    Example: fab recipes imagenet-fast --variant 16-nodes
    """
    # Other tasks and `fab --list` do not need these modules.
    from cluster.errors import UsageError
    from cluster.runs import recipe_tables as shown
    from cluster.terminal import tables
    from payload.recipes import RECIPES

    if not recipe:
        for flag, given in (("--variant", variant), ("--all", all)):
            if given:
                raise UsageError(flag, None, "needs a recipe; name it: `fab recipes NAME`")
        if json:
            print_result([shown.document(each) for each in RECIPES], json=True)
            return
        for each in RECIPES:
            tables.print_table(shown.summary_table(each))
            print_line("")
        print_sentence(
            "`fab recipes NAME` shows the settings of a recipe, `fab train --recipe NAME -- --FLAG VALUE` changes them"
        )
        return
    chosen = shown.recipe_named(recipe)
    which = shown.variant_named(chosen, variant)
    if json:
        print_result(shown.document(chosen, which), json=True)
        return
    for number, table in enumerate(shown.tables(chosen, which, everything=all)):
        if number:
            print_line("")
        tables.print_table(table)
