"""All actions of CloudFormation's API."""

from __future__ import annotations

from localcloud.api.cloudformation.actions.describe import ReadingActions
from localcloud.api.cloudformation.actions.stacks import StackActions


class Responses(StackActions, ReadingActions):
    """Answer requests with the stacks of one account."""
