"""Public images in addition to Amazon's, each with its publisher's SSM parameter. moto has a list of Amazon's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.ec2.models.amis import Ami
from moto.ec2.utils import random_ami_id
from moto.ssm.models import Parameter


def publish(ec2: Any, ssm: Any, *, name: str, owner: str, root_device: str, parameter: str) -> str:
    """Add a public image, and the SSM parameter with its id, to moto's backends; return the id.

    `owner`: account id of the publisher. `root_device`: such as /dev/xvda. `parameter`: name of the SSM parameter.
    """
    image_id: str = random_ami_id()
    ec2.amis[image_id] = Ami(
        ec2,
        image_id,
        name=name,
        owner_id=owner,
        public=True,
        virtualization_type="hvm",
        architecture="x86_64",
        image_location=f"{owner}/{name}",
        hypervisor="xen",
        root_device_type="ebs",
        root_device_name=root_device,
    )
    known: Any = Parameter  # moto declares it abstract, but creates instances of it.
    ssm._parameters[parameter].append(
        known(
            account_id=ssm.account_id,
            name=parameter,
            value=image_id,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=datetime.now(UTC),
            version=1,
            data_type="aws:ec2:image",
        )
    )
    return image_id
