"""Gateway endpoints: routes follow the added and removed route tables. A table can have one endpoint per service.

moto creates the routes of a new endpoint, but does not update them when its route tables change. It overwrites another
endpoint's route, and still describes deleted endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import vpcs

from localcloud.api.monkeypatch import around, first


@first(vpcs.VPCBackend, "create_vpc_endpoint")
def _check_creation(ec2: Any, vpc_id: str, service_name: str, *_: Any, **given: Any) -> None:
    if str(given.get("endpoint_type") or "Gateway").lower() == "gateway":
        for each in ec2.managed_prefix_lists.values():
            if each.prefix_list_name == service_name:
                _refuse_taken(ec2, given.get("route_table_ids") or (), each.id)


@around(vpcs.VPCBackend, "modify_vpc_endpoint")
def _modify_vpc_endpoint(original: Any, self: Any, vpc_id: str, **kwargs: Any) -> None:
    endpoint = self.get_vpc_end_point(vpc_id)  # moto's name for the endpoint's id
    before, prefix_list = list(endpoint.route_table_ids or ()), endpoint.destination_prefix_list_id
    added = [each for each in kwargs.get("add_route_tables") or () if each not in before]
    _refuse_taken(self, added, prefix_list)
    original(self, vpc_id, **kwargs)
    if prefix_list:
        for table in added:
            self.create_route(table, None, gateway_id=vpc_id, destination_prefix_list_id=prefix_list)
        for table in set(before) - set(endpoint.route_table_ids):
            self.delete_route(table, None, destination_prefix_list_id=prefix_list)


@around(vpcs.VPCBackend, "delete_vpc_endpoints")
def _delete_vpc_endpoints(original: Any, self: Any, vpce_ids: list[str] | None = None) -> None:
    original(self, vpce_ids)
    for each in vpce_ids or ():
        self.vpc_end_points.pop(each, None)


def _refuse_taken(ec2: Any, tables: Iterable[str], prefix_list: str | None) -> None:
    """Raise EC2's error if a route table already has a route to the endpoint's service."""
    for table in tables:
        for route in ec2.get_route_table(table)._routes.values():
            if prefix_list and route.destination_prefix_list_id == prefix_list:
                raise EC2ClientError(
                    "RouteAlreadyExists",
                    f"route table {table} already has a route with destination-prefix-list-id {prefix_list}",
                )
