"""The AWS API of the embedded cloud: moto's server with corrections, and a separate CloudFormation."""

import functools

import botocore.loaders
import botocore.session

_loader_of = functools.cache(botocore.loaders.create_loader)


def _create_loader(search_path_string: str | None = None) -> botocore.loaders.Loader:
    """Return the loader of service models that all sessions of botocore in this process share.

    Importing moto creates three sessions, and each would list all services and parse the same files again.
    """
    return _loader_of(search_path_string)


botocore.loaders.create_loader = botocore.session.create_loader = _create_loader
