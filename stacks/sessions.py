"""What Session Manager needs on a node."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Validations
from aws_cdk import aws_iam as iam

# The least that AWS names for Session Manager ("Create a custom IAM role for Session Manager", without logging and
# without a key): the agent registers, and opens the channels by which it is reached.
AGENT_ACTIONS: Final = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)


def grant_sessions(role: iam.Role) -> None:
    """Allow a node's role what Session Manager needs; the users' own policies say who may connect."""
    role.add_to_policy(iam.PolicyStatement(sid="SessionManagerAgent", actions=[*AGENT_ACTIONS], resources=["*"]))
    Validations.of(role).acknowledge(
        Acknowledgment(
            id="AwsSolutions-IAM5[Resource::*]",
            reason="The channels of Session Manager are no resources that a policy could name.",
        )
    )
