"""The condition keys of a call, and the keys that the embedded cloud supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from localcloud.api.permissions.caller import Caller
from localcloud.api.permissions.request import Call
from localcloud.api.permissions.resource_arns import values
from localcloud.snapshot import ACCOUNT, REGION

Context = dict[str, str | list[str]]

_KNOWN: Final = frozenset(
    {
        "aws:calledvia",
        "aws:calledviafirst",
        "aws:calledvialast",
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principaltype",
        "aws:requestedregion",
        "aws:resourceaccount",
        "aws:securetransport",
        "aws:sourceip",
        "aws:tagkeys",
        "aws:userid",
        "aws:username",
        "aws:viaawsservice",
        "cloudformation:changesetname",
        "cloudformation:rolearn",
        "cloudformation:templateurl",
        "cloudwatch:namespace",
        "ec2:createaction",
        "ec2:sourceinstancearn",
        "iam:passedtoservice",
        "iam:permissionsboundary",
        "kms:calleraccount",
        "kms:grantisforawsresource",
        "kms:viaservice",
        "s3:delimiter",
        "s3:prefix",
        "s3:resourceaccount",
        "s3:tlsversion",
        "s3:versionid",
        "s3:x-amz-server-side-encryption",
        "s3:x-amz-server-side-encryption-aws-kms-key-id",
        "sts:externalid",
        "sts:rolesessionname",
        # Only services have these when they publish, deliver or encrypt on behalf of a caller; a caller never has them.
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceowner",
    }
)
_KNOWN_PREFIXES: Final = (
    "aws:requesttag/",
    "aws:resourcetag/",
    "autoscaling:resourcetag/",
    "ec2:resourcetag/",
    "kms:encryptioncontext:",
)
# Request parameters with the values of condition keys.
_PARAMETERS: Final = {
    "cloudformation:ChangeSetName": "ChangeSetName",
    "cloudformation:RoleArn": "RoleARN",
    "cloudformation:TemplateUrl": "TemplateURL",
    "cloudwatch:namespace": "Namespace",
    "iam:PermissionsBoundary": "PermissionsBoundary",
    "s3:delimiter": "Delimiter",
    "s3:prefix": "Prefix",
    "s3:VersionId": "VersionId",
    "s3:x-amz-server-side-encryption": "ServerSideEncryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id": "SSEKMSKeyId",
    "sts:ExternalId": "ExternalId",
    "sts:RoleSessionName": "RoleSessionName",
}


def is_known(key: str) -> bool:
    """Return whether the embedded cloud sets a condition key in the same cases as AWS. Case is ignored."""
    lower = key.lower()
    return lower in _KNOWN or lower.startswith(_KNOWN_PREFIXES)


def of(call: Call, caller: Caller) -> Context:
    """Return the values of a call's condition keys, by key. Keys that depend on the resource are not included."""
    found: Context = {
        "aws:PrincipalArn": caller.owner,
        "aws:PrincipalAccount": ACCOUNT,
        "aws:RequestedRegion": REGION,
        "aws:ResourceAccount": ACCOUNT,
        # The API is on the same machine. Report it as TLS 1.3.
        "aws:SecureTransport": "true",
        "s3:TlsVersion": "1.3",
        "s3:ResourceAccount": ACCOUNT,
        "kms:CallerAccount": ACCOUNT,
        "aws:ViaAWSService": "true" if caller.via else "false",
        **caller.context,
    }
    if caller.via:
        found |= {"aws:CalledVia": [caller.via], "aws:CalledViaFirst": caller.via, "aws:CalledViaLast": caller.via}
    elif call.address:
        found["aws:SourceIp"] = call.address
    for key, parameter in _PARAMETERS.items():
        given = call.params.get(parameter)
        if isinstance(given, str) and key.partition(":")[0] == call.service:
            found[key] = given
    tags = dict(request_tags(call.params))
    if tags:
        found["aws:TagKeys"] = list(tags)
        found |= {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    return found


def request_tags(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and value of each tag that a request sets. For removed tags, the value is ""."""
    given = params.get("Tags") or params.get("tags") or params.get("TagKeys") or {}
    if isinstance(given, Mapping):
        yield from ((str(key), str(value)) for key, value in given.items())
        return
    yield from ((each, "") for each in given if isinstance(each, str))
    for each in (each for each in given if isinstance(each, Mapping)):
        key = next(values(each, "Key", "TagKey", "key"), "")
        if key:
            yield key, next(values(each, "Value", "TagValue", "value"), "")
