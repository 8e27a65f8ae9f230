"""Service Quotas of EC2 and VPC, and checks of launches, addresses and VPCs against them.

An account has quotas of vCPUs for each family of instance types, separately for on-demand and spot. EC2's page in the
AWS General Reference lists them with their defaults. Without `start --vcpus` the quotas are larger than any test needs.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moto.core.exceptions import JsonRESTError
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.responses.elastic_ip_addresses import ElasticIPAddresses
from moto.ec2.responses.nat_gateways import NatGateways
from moto.ec2.responses.vpcs import VPCs
from moto.servicequotas.models import ServiceQuotasBackend, servicequotas_backends
from moto.servicequotas.resources.default_quotas.vpc import VPC_DEFAULT_QUOTAS
from moto.servicequotas.responses import ServiceQuotasResponse

from localcloud.api.monkeypatch import added, first, instead

ON_DEMAND_CODE: Final = "VcpuLimitExceeded"
SPOT_CODE: Final = "MaxSpotInstanceCountExceeded"
EXCEEDED: Final = frozenset({ON_DEMAND_CODE, SPOT_CODE})
"""EC2's error codes for launches beyond the vCPUs of an account."""
CAPACITY_BLOCK: Final = "capacity-block"
"""Market of instances that count towards no quota."""
_STANDARD: Final = ("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z")
_COUNTED: Final = ("pending", "running")
_PAGE: Final = 100
_APPLIED: Final = "_localcloud_applied"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quota:
    """One quota of AWS: of vCPUs, addresses or other resources."""

    service: str
    code: str
    name: str
    default: float
    adjustable: bool = True
    families: tuple[str, ...] = ()
    """The instance families whose vCPUs the quota counts (`p`), or single generations of a family (`p4`).

    Empty for a quota that does not count vCPUs.
    """
    spot: bool = False


def _vcpus(code: str, name: str, *families: str, default: float = 0.0) -> Quota:
    spot = name.endswith("Spot Instance Requests")
    return Quota(service="ec2", code=code, name=name, default=default, families=families, spot=spot)


def _of_vpc(entry: Mapping[str, Any]) -> Quota:
    return Quota(
        service="vpc",
        code=entry["QuotaCode"],
        name=entry["QuotaName"],
        default=entry["Value"],
        adjustable=entry["Adjustable"],
    )


_ADDRESSES: Final = Quota(service="ec2", code="L-0263D0A3", name="EC2-VPC Elastic IPs", default=5.0)
_VPCS: Final = "L-F678F1CE"
_GATEWAYS: Final = "L-FE5A380F"
QUOTAS: Final = (
    _vcpus("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", *_STANDARD, default=5.0),
    _vcpus("L-DB2E81BA", "Running On-Demand G and VT instances", "g", "gr", "vt"),
    _vcpus("L-417A185B", "Running On-Demand P instances", "p"),
    _vcpus("L-1945791B", "Running On-Demand Inf instances", "inf"),
    _vcpus("L-2C3B7624", "Running On-Demand Trn instances", "trn"),
    _vcpus("L-6E869C2A", "Running On-Demand DL instances", "dl"),
    _vcpus("L-74FC7D96", "Running On-Demand F instances", "f"),
    _vcpus("L-7295265B", "Running On-Demand X instances", "x"),
    _vcpus("L-43DA4232", "Running On-Demand High Memory instances", "u"),
    _vcpus("L-F7808C92", "Running On-Demand HPC instances", "hpc"),
    _vcpus("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", *_STANDARD, default=5.0),
    _vcpus("L-3819A6DF", "All G and VT Spot Instance Requests", "g", "gr", "vt"),
    _vcpus("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", "p2", "p3", "p4"),
    _vcpus("L-C4BD4855", "All P5 Spot Instance Requests", "p5"),
    _vcpus("L-B5D1601B", "All Inf Spot Instance Requests", "inf"),
    _vcpus("L-6B0D517C", "All Trn Spot Instance Requests", "trn"),
    _vcpus("L-85EED4F7", "All DL Spot Instance Requests", "dl"),
    _vcpus("L-88CF9481", "All F Spot Instance Requests", "f"),
    _vcpus("L-E3A00192", "All X Spot Instance Requests", "x"),
    _ADDRESSES,
    *map(_of_vpc, VPC_DEFAULT_QUOTAS),
)
_AMPLE: Final = {each.code: 100_000.0 for each in QUOTAS if each.families or each.code in (_ADDRESSES.code, _VPCS)}
_SERVICES: Final = {
    "ec2": "Amazon Elastic Compute Cloud (Amazon EC2)",
    "vpc": "Amazon Virtual Private Cloud (Amazon VPC)",
}


def apply(backend: ServiceQuotasBackend, vcpus: int | None) -> None:
    """Set an account's quotas to AWS's defaults, with `vcpus` for the standard families. None: set large quotas."""
    applied = _AMPLE
    if vcpus is not None:
        applied = {each.code: float(vcpus) for each in QUOTAS if each.families and each.default}
    setattr(backend, _APPLIED, applied)


def _applied(ec2_or_own: Any) -> Mapping[str, float]:
    """Return the applied quota values by code, for the account and region of the backend of EC2 or Service Quotas."""
    backend = servicequotas_backends[ec2_or_own.account_id][ec2_or_own.region_name]
    found: Mapping[str, float] = getattr(backend, _APPLIED, _AMPLE)
    return found


def vcpu_quota(instance_type: str, *, spot: bool) -> Quota | None:
    """Return the quota that counts the vCPUs of an on-demand or spot instance, or None if no quota does."""
    match = re.match(r"([a-z]+)(\d*)", instance_type)
    if match is None:
        return None
    family, generation = match[1], match[1] + match[2]
    return next((each for each in QUOTAS if each.spot == spot and {family, generation} & {*each.families}), None)


def vcpus_of(instance_type: str) -> int:
    """Return the number of vCPUs of an instance type, or 1 if moto's table lacks it."""
    described = INSTANCE_TYPES.get(instance_type, {})
    return int(described.get("VCpuInfo", {}).get("DefaultVCpus", 1))


def check_vcpus(ec2: Any, wanted: Iterable[str], *, spot: bool) -> None:
    """Raise EC2's error if new instances would exceed the account's vCPUs. `wanted` has the type of each new instance.

    Types that no quota counts are not limited. The texts are EC2's, from the output of tools that call it (scrapoxy
    issue 202; CMAQ's guide for spot).
    """
    asked: dict[str, tuple[Quota, int]] = {}
    for instance_type in wanted:
        if quota := vcpu_quota(instance_type, spot=spot):
            asked[quota.code] = quota, asked.get(quota.code, (quota, 0))[1] + vcpus_of(instance_type)
    for quota, vcpus in asked.values():
        limit = _applied(ec2).get(quota.code, quota.default)
        if vcpus + sum(_used(ec2, quota)) <= limit:
            continue
        if spot:
            raise EC2ClientError(SPOT_CODE, "Max spot instance count exceeded")
        raise EC2ClientError(
            ON_DEMAND_CODE,
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} allows for the "
            "instance bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        )


def _used(ec2: Any, quota: Quota) -> Iterator[int]:
    """Yield the vCPUs of each instance that counts towards a quota."""
    for reservation in ec2.reservations.values():
        for instance in reservation.instances:
            if instance.state not in _COUNTED or instance.lifecycle == CAPACITY_BLOCK:
                continue
            if vcpu_quota(instance.instance_type, spot=instance.lifecycle == "spot") is quota:
                yield vcpus_of(instance.instance_type)


@first(InstanceBackend, "start_instances")
def _check_start(ec2: Any, instance_ids: list[str]) -> None:
    named = ec2.get_multi_instances_by_id(instance_ids)
    stopped = [each for each in named if each.state == "stopped" and each.lifecycle != CAPACITY_BLOCK]
    for spot in (False, True):
        check_vcpus(ec2, (each.instance_type for each in stopped if (each.lifecycle == "spot") is spot), spot=spot)


@first(ElasticIPAddresses, "allocate_address")
def _check_addresses(responses: Any) -> None:
    ec2 = responses.ec2_backend
    if len(ec2.addresses) >= _applied(ec2).get(_ADDRESSES.code, _ADDRESSES.default):
        raise EC2ClientError("AddressLimitExceeded", "The maximum number of addresses has been reached.")


@first(VPCs, "create_vpc", "create_default_vpc")
def _check_vpcs(responses: Any) -> None:
    ec2 = responses.ec2_backend
    quota = next(each for each in QUOTAS if each.code == _VPCS)
    if len(ec2.vpcs) >= _applied(ec2).get(quota.code, quota.default):
        raise EC2ClientError("VpcLimitExceeded", "The maximum number of VPCs has been reached.")


@first(NatGateways, "create_nat_gateway")
def _check_gateways(responses: Any) -> None:
    ec2 = responses.ec2_backend
    quota = next(each for each in QUOTAS if each.code == _GATEWAYS)
    limit = _applied(ec2).get(quota.code, quota.default)
    zone = ec2.get_subnet(responses._get_param("SubnetId")).availability_zone
    there = [each for each in ec2.nat_gateways.values() if each.state in ("pending", "available", "deleting")]
    if sum(ec2.get_subnet(each.subnet_id).availability_zone == zone for each in there) >= limit:
        message = f"Performing this operation would exceed the limit of {limit:.0f} NAT gateways"
        raise EC2ClientError("NatGatewayLimitExceeded", message)


@added(ServiceQuotasResponse, "list_service_quotas")
def list_service_quotas(self: Any) -> str:
    """Answer ListServiceQuotas. As on AWS, it only lists quotas with an applied value."""
    applied = _applied(self.backend)
    return _page(
        self, [_shown(self.backend, each, applied[each.code]) for each in _listed(self) if each.code in applied]
    )


@instead(ServiceQuotasResponse, "list_aws_default_service_quotas")
def _list_defaults(self: Any) -> str:
    return _page(self, [_shown(self.backend, each) for each in _listed(self)])


@instead(ServiceQuotasResponse, "get_service_quota")
def _get(self: Any) -> str:
    quota = _find(self)
    applied = _applied(self.backend)
    if quota.code not in applied:
        raise _missing()
    return json.dumps({"Quota": _shown(self.backend, quota, applied[quota.code])})


@added(ServiceQuotasResponse, "get_aws_default_service_quota")
def get_aws_default_service_quota(self: Any) -> str:
    """Answer GetAWSDefaultServiceQuota with the default of the request's quota."""
    return json.dumps({"Quota": _shown(self.backend, _find(self))})


def _find(responses: Any) -> Quota:
    wanted = json.loads(responses.body).get("QuotaCode")
    found = next((each for each in _listed(responses) if each.code == wanted), None)
    if found is None:
        raise _missing()
    return found


def _listed(responses: Any) -> list[Quota]:
    """Return the quotas of the service in a request. Raises AWS's error for an unknown service."""
    service = json.loads(responses.body).get("ServiceCode")
    found = [each for each in QUOTAS if each.service == service]
    if not found:
        raise _missing()
    return found


def _missing() -> JsonRESTError:
    """Return the error for an unknown quota or service."""
    return JsonRESTError("NoSuchResourceException", "The specified resource does not exist.")


def _shown(backend: ServiceQuotasBackend, quota: Quota, value: float | None = None) -> dict[str, Any]:
    """Return a quota in the API's form, with this applied value, or with the default if None."""
    account = "" if value is None else backend.account_id
    return {
        "ServiceCode": quota.service,
        "ServiceName": _SERVICES[quota.service],
        "QuotaArn": f"arn:aws:servicequotas:{backend.region_name}:{account}:{quota.service}/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": quota.default if value is None else value,
        "Unit": "None",
        "Adjustable": quota.adjustable,
        "GlobalQuota": False,
    }


def _page(responses: Any, quotas: list[dict[str, Any]]) -> str:
    """Return the page of quotas that a request asks for, as JSON. Raises AWS's error for an invalid page or size."""
    given = json.loads(responses.body)
    token, count = str(given.get("NextToken") or "0"), int(given.get("MaxResults", _PAGE))
    if not token.isdecimal():
        raise JsonRESTError("InvalidPaginationTokenException", "Invalid input was provided.")
    if not 1 <= count <= _PAGE:
        bound = f"less than or equal to {_PAGE}" if count > _PAGE else "greater than or equal to 1"
        raise JsonRESTError(
            "ValidationException",
            f"1 validation error detected: Value '{count}' at 'maxResults' failed to satisfy constraint: Member must "
            f"have value {bound}",
        )
    end = int(token) + count
    more = {"NextToken": str(end)} if end < len(quotas) else {}
    return json.dumps({"Quotas": quotas[int(token) : end], **more})
