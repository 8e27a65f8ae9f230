"""The task that shows what can be trained."""

from __future__ import annotations

import json as json_format

from invoke.context import Context
from invoke.tasks import task

from cluster.cli.task import JSON, guarded, say


@task(
    help={
        "recipe": "show this one with its settings; default: all, in short",
        "variant": "the settings of this variant of it",
        "all": "every setting, also those that are as always",
        "json": JSON,
    }
)
@guarded
def recipes(c: Context, recipe: str = "", variant: str = "", all: bool = False, json: bool = False) -> None:
    """
    Show the recipes: command, hardware, expected time and accuracy, measured or cited; of one, every setting.

    Example: fab recipes imagenet-fast --variant 16-nodes
    """
    # Of no use to the other tasks, nor to `fab --list`.
    from cluster.errors import UsageError
    from cluster.runs import recipe_tables as shown
    from cluster.terminal import tables
    from payload.recipes import RECIPES

    if not recipe:
        for flag, given in (("--variant", variant), ("--all", all)):
            if given:
                raise UsageError(flag, None, "is about one recipe; name it: `fab recipes NAME`")
        if json:
            say(json_format.dumps([shown.document(each) for each in RECIPES], indent=1))
            return
        for each in RECIPES:
            tables.print_table(shown.summary_table(each))
            say("")
        say("`fab recipes NAME` shows the settings of one, `fab train --recipe NAME -- --FLAG VALUE` changes them")
        return
    chosen = shown.recipe_named(recipe)
    which = shown.variant_named(chosen, variant)
    if json:
        say(json_format.dumps(shown.document(chosen, which), indent=1))
        return
    for number, table in enumerate(shown.tables(chosen, which, everything=all)):
        if number:
            say("")
        tables.print_table(table)
