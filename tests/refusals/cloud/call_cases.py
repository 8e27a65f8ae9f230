"""Entries that the embedded cloud refuses at a call of its API."""

from __future__ import annotations

from typing import Final

from tests.refusals.case import Calls, Case, Client


def _parameters(count: int) -> Calls:
    """Return a call that asks for so many parameters."""

    def call(client: Client) -> object:
        return client("ssm").get_parameters(Names=[f"/lab/p{n}" for n in range(count)])

    return call


CASES: Final[tuple[Case[Calls], ...]] = (Case("SSM-07", _parameters(11), "ValidationException", _parameters(10)),)
