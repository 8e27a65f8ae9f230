"""Facts about the redaction: what names an account goes, what AWS says stays."""

from __future__ import annotations

import pytest

from tools.aws_trial.redaction import redact


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("The instance ID 'i-0123456789abcdef0' does not exist", "The instance ID 'i-ID' does not exist"),
        ("vpc-0a1b2c3d has dependencies", "vpc-ID has dependencies"),
        ("peer: 198.51.100.7/32, TCP, from port: 22", "peer: ADDRESS, TCP, from port: 22"),
        ("ip-10-0-1-23.ec2.internal at 2001:db8:0:1::5", "ip-ADDRESS.ec2.internal at ADDRESS"),
        ("arn:aws:sts::123456789012:assumed-role/Admin/jane@x.org", "arn:aws:sts::ACCOUNT:assumed-role/CALLER"),
        ("arn:aws:iam::123456789012:user/jane is not authorized", "arn:aws:iam::ACCOUNT:user/CALLER is not authorized"),
        ("at 2026-11-23T12:40:00.123Z, jane.doe@example.org", "at TIME, EMAIL"),
        ("stack/one/6b2f0e1a-1111-2222-3333-444455556666", "stack/one/UUID"),
        ("key AKIAIOSFODNN7EXAMPLE", "key KEY"),
        ("New SetDesiredCapacity value 4 is above max value 3", "New SetDesiredCapacity value 4 is above max value 3"),
        ("c6i.xlarge in 12:40:05, tls-1.3, 0.0.0 of 100", "c6i.xlarge in 12:40:05, tls-1.3, 0.0.0 of 100"),
    ],
)
def test_ids_addresses_callers_and_times_become_words(text: str, redacted: str) -> None:
    assert redact(text, {}) == redacted


def test_the_longest_of_the_given_names_is_replaced_first() -> None:
    names = {"trial-ab12": "CLUSTER", "trial-ab12-extra": "OTHER", "": "NOTHING"}
    assert redact("trial-ab12-extra and trial-ab12", names) == "OTHER and CLUSTER"
