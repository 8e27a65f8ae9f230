"""The errors of CloudFormation's API."""

from __future__ import annotations

from moto.core.exceptions import ServiceException


class FormationError(ServiceException):
    """Answer a request with an error code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


class ValidationError(FormationError):
    """Refuse a request or a template, in AWS's words where it has some."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationError", message)


class ResourceError(Exception):
    """Report that one resource could not be created, updated or deleted; the message becomes its status reason."""


class ServiceRefusalError(ResourceError):
    """Report what a service refused about a resource, in CloudFormation's form."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f'Resource handler returned message: "{message}" (HandlerErrorCode: {code})')
