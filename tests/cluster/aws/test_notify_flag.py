"""The arguments of `--notify`: the cluster's own topics, and no addresses."""

from __future__ import annotations

import re

import pytest

from cluster.aws.notify_flag import check_notify, resolve_topics
from cluster.errors import DeepcdkError, UsageError
from tests.factories import make_stack

MAILS = "arn:aws:sns:eu-west-1:123456789012:mails"
PAGER = "arn:aws:sns:eu-west-1:123456789012:pager"
STACK = make_stack(topics=(PAGER, MAILS))


def test_topic_stands_for_all_topics_of_the_alarms_without_duplicates() -> None:
    assert resolve_topics(("curl x", "topic", MAILS), STACK) == ("curl x", PAGER, MAILS)
    assert resolve_topics((MAILS,), STACK) == (MAILS,)
    assert resolve_topics((), STACK) == ()
    assert resolve_topics(("none",), STACK) == resolve_topics((" none ",), STACK) == ()


def test_missing_alarm_topic_is_reported_with_fix() -> None:
    with pytest.raises(DeepcdkError, match="alarms of stack deepcdk have no topic") as caught:
        resolve_topics(("topic",), make_stack())
    assert "alarm_emails" in str(caught.value)


def test_topic_without_publish_permission_is_rejected_with_the_permitted_topics() -> None:
    other = f"{MAILS}2"
    with pytest.raises(DeepcdkError, match=f"may not publish to this topic, only to {re.escape(PAGER)}, "):
        resolve_topics((other,), STACK)
    with pytest.raises(DeepcdkError, match="only to none"):
        resolve_topics((other,), make_stack())


@pytest.mark.parametrize("address", ["you@example.com", " Ops.Team+x@mail.example.org "])
def test_mail_address_is_rejected_with_fix(address: str) -> None:
    with pytest.raises(UsageError, match=r"is a mail address, .* alarm_emails to it, .*`--notify topic`"):
        check_notify((address,))


def test_commands_that_mention_an_address_are_commands() -> None:
    check_notify(("mail -s done you@example.com", "user@host.sh/x", "curl https://a@b.example.com"))


@pytest.mark.parametrize(
    ("given", "why"),
    [(("  ",), "must be a command"), (("x",) * 11, "at most 10"), (("none ", "x"), "contradicts the other values")],
)
def test_invalid_notification_is_rejected(given: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_notify(given)
