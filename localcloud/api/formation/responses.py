"""All actions of CloudFormation's API."""

from __future__ import annotations

from localcloud.api.formation.reading_actions import ReadingActions
from localcloud.api.formation.stack_actions import StackActions


class Responses(StackActions, ReadingActions):
    """Answer requests with the stacks of one account."""
