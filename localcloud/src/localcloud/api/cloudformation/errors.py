"""The errors of CloudFormation's API."""

from __future__ import annotations

from moto.core.exceptions import ServiceException


class FormationError(ServiceException):
    """An error reply to a request, with an error code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


class ValidationError(FormationError):
    """A request or template is invalid. The message is AWS's, if it is known."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationError", message)


class ResourceError(Exception):
    """A resource could not be created, updated or deleted. The message becomes the resource's status reason."""


class ServiceRefusalError(ResourceError):
    """A service rejected a resource with an error code. The message has CloudFormation's form."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f'Resource handler returned message: "{message}" (HandlerErrorCode: {code})')
