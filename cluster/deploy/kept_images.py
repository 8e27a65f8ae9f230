"""Machine images that a deployed cluster keeps, although newer ones are published under the same parameters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cluster.aws.errors import aws_errors
from cluster.deploy.change_effects import TEMPLATE
from cluster.errors import AwsError
from stacks.config import IMAGE_PARAMETER, KEPT_IMAGES

if TYPE_CHECKING:
    from cluster.aws.client import Aws


def deployed(stack: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, str]:
    """Return the deployed image id by SSM parameter, from a stack's launch templates. `stack` is from DescribeStacks.

    Launch templates without a parameter are left out.
    """
    parameters = {each["ParameterKey"]: each for each in stack.get("Parameters", ())}
    found: dict[str, str] = {}
    for resource in template.get("Resources", {}).values():
        if resource.get("Type") != TEMPLATE:
            continue
        image = resource["Properties"].get("LaunchTemplateData", {}).get("ImageId")
        if isinstance(image, Mapping) and image.get("Ref") in parameters:
            parameter = parameters[image["Ref"]]
            found[parameter.get("ParameterValue", "")] = parameter.get("ResolvedValue", "")
        elif isinstance(image, str) and (name := resource.get("Metadata", {}).get(IMAGE_PARAMETER)):
            found[name] = image
    return {name: image for name, image in found.items() if name and image}


def superseded(aws: Aws, images: Mapping[str, str]) -> dict[str, str]:
    """Return the newest image of each SSM parameter that no longer refers to its image in `images`.

    `images` maps parameters to images. A parameter that cannot be read is included, with "". AWS errors are ignored.
    """
    newest: dict[str, str] = {}
    with contextlib.suppress(AwsError), aws_errors("reading the image parameters"):
        found = aws.client("ssm").get_parameters(Names=list(images))["Parameters"] if images else []
        newest = {each["Name"]: each["Value"] for each in found}
    return {name: newest.get(name, "") for name, image in images.items() if newest.get(name) != image}


def context(images: Mapping[str, str], newest: Mapping[str, str]) -> dict[str, str]:
    """Return the CDK context with which the nodes keep their images; {} if `newest` is empty.

    `images` maps SSM parameters to the deployed images. Only the images of the parameters in `newest` need to be kept.
    """
    kept = {name: images[name] for name in newest}
    return {KEPT_IMAGES: json.dumps(kept)} if kept else {}


def describe(images: Mapping[str, str], newest: Mapping[str, str]) -> list[str]:
    """Return a line for each kept image that has a known newer version. The arguments are results of `deployed` and
    `superseded`.
    """
    return [
        f"image {images[name]} is kept, but {name} now names {image}; to change to it: `fab up --update-images`"
        for name, image in newest.items()
        if image
    ]
