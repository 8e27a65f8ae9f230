"""Gateway endpoints: their routes follow the route tables that are added and removed, and one has each table once.

moto gives a new endpoint its routes, but leaves them as they are when its route tables change, puts a second endpoint's
route over the first one's, and still describes endpoints that were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import vpcs

from localcloud.api.monkeypatch import replace


class RouteTakenError(EC2ClientError):
    """Report a route table that leads to the service already."""

    def __init__(self, table: str, prefix_list: str) -> None:
        super().__init__(
            "RouteAlreadyExists",
            f"route table {table} already has a route with destination-prefix-list-id {prefix_list}",
        )


def apply() -> None:
    """Correct moto."""
    _correct_create()
    _correct_modify()
    _correct_delete()


def _correct_create() -> None:
    original: Any = getattr(vpcs.VPCBackend, "create_vpc_endpoint", None)

    def create(self: Any, vpc_id: str, service_name: str, *args: Any, **kwargs: Any) -> Any:
        lists = [each.id for each in self.managed_prefix_lists.values() if each.prefix_list_name == service_name]
        if str(kwargs.get("endpoint_type") or "Gateway").lower() == "gateway":
            for prefix_list in lists:
                _refuse_taken(self, kwargs.get("route_table_ids") or (), prefix_list)
        return original(self, vpc_id, service_name, *args, **kwargs)

    replace(vpcs.VPCBackend, "create_vpc_endpoint", create)


def _correct_modify() -> None:
    original: Any = getattr(vpcs.VPCBackend, "modify_vpc_endpoint", None)

    def modify(self: Any, vpc_id: str, **kwargs: Any) -> None:
        endpoint = self.get_vpc_end_point(vpc_id)  # moto calls the endpoint's id so
        before, prefix_list = list(endpoint.route_table_ids or ()), endpoint.destination_prefix_list_id
        added = [each for each in kwargs.get("add_route_tables") or () if each not in before]
        _refuse_taken(self, added, prefix_list)
        original(self, vpc_id, **kwargs)
        if prefix_list:
            for table in added:
                self.create_route(table, None, gateway_id=vpc_id, destination_prefix_list_id=prefix_list)
            for table in set(before) - set(endpoint.route_table_ids):
                self.delete_route(table, None, destination_prefix_list_id=prefix_list)

    replace(vpcs.VPCBackend, "modify_vpc_endpoint", modify)


def _correct_delete() -> None:
    original: Any = getattr(vpcs.VPCBackend, "delete_vpc_endpoints", None)

    def delete(self: Any, vpce_ids: list[str] | None = None) -> None:
        original(self, vpce_ids)
        for each in vpce_ids or ():
            self.vpc_end_points.pop(each, None)

    replace(vpcs.VPCBackend, "delete_vpc_endpoints", delete)


def _refuse_taken(ec2: Any, tables: Iterable[str], prefix_list: str | None) -> None:
    for table in tables:
        for route in ec2.get_route_table(table)._routes.values():
            if prefix_list and route.destination_prefix_list_id == prefix_list:
                raise RouteTakenError(table, prefix_list)
