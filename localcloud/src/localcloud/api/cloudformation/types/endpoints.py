"""Resource type of VPC endpoints: gateways, as routes of their route tables."""

from __future__ import annotations

from typing import Any, Final

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import delete_with, retag, tagged
from localcloud.api.cloudformation.types.resource_type import Context, Physical, Properties, ResourceType

_NO_INTERFACES: Final = "its hosts reach every service at one address, so interfaces of services are not made"
_NO_PACKETS: Final = "its routes are in the tables, and no packet takes them, because S3 has the API's one address"


def _create_endpoint(context: Context, properties: Properties) -> Physical:
    kind = properties.get("VpcEndpointType", "Gateway")
    if kind != "Gateway":
        raise ResourceError(f"the embedded cloud has no VPC endpoint of type {kind}: {_NO_INTERFACES}")
    endpoint = context.aws.client("ec2").create_vpc_endpoint(
        VpcEndpointType=kind,
        VpcId=properties["VpcId"],
        ServiceName=properties["ServiceName"],
        RouteTableIds=properties.get("RouteTableIds", []),
        TagSpecifications=tagged("vpc-endpoint", context, properties),
    )["VpcEndpoint"]["VpcEndpointId"]
    return Physical(id=endpoint, attributes={"Id": endpoint})


def _update_endpoint(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    before, after = (set(each.get("RouteTableIds", ())) for each in (old, new))
    changes: dict[str, Any] = {
        "AddRouteTableIds": sorted(after - before),
        "RemoveRouteTableIds": sorted(before - after),
    }
    ec2.modify_vpc_endpoint(VpcEndpointId=resource.id, **{key: tables for key, tables in changes.items() if tables})
    retag(ec2, resource.id, context, old, new)
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::VPCEndpoint",
        rules={
            "RouteTableIds": "no route to the service in them yet",
            "VpcEndpointType": "Gateway alone",
        },
        honoured=frozenset({"VpcEndpointType", "VpcId", "ServiceName", "Tags"}),
        inert={"RouteTableIds": _NO_PACKETS},
        refused={
            "PolicyDocument": "policies of endpoints are not enforced",
            "PrivateDnsEnabled": _NO_INTERFACES,
            "SecurityGroupIds": _NO_INTERFACES,
            "SubnetIds": _NO_INTERFACES,
        },
        replaced_by=frozenset({"VpcEndpointType", "VpcId", "ServiceName"}),
        attributes=frozenset({"Id"}),
        create=_create_endpoint,
        update=_update_endpoint,
        delete=delete_with("ec2", "delete_vpc_endpoints", "VpcEndpointIds"),
    ),
)
