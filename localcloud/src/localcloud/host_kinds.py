"""The choice between hosts in namespaces and machines (`start --hosts`), and the preparation of their images."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Final

from localcloud.cloud_paths import Layout
from localcloud.hosts import debian_image, debian_root, nfs_client, this_machine_image
from localcloud.hosts.cpu_limit import CpuLimit
from localcloud.hosts.debian_image import DISTRIBUTIONS, Distribution
from localcloud.hosts.images import Image, aws_cli_binds, interpreter_binds
from localcloud.hosts.namespace_host import NamespaceHosts, SharedDirectory
from localcloud.hosts.package_index import PackageIndex
from localcloud.hosts.volumes import open_volumes
from localcloud.machines import disks, qemu
from localcloud.machines.file_server import ServerImage
from localcloud.machines.machine import MachineHosts, MachineImage
from localcloud.network.addressing import API_ADDRESS
from localcloud.reconciler import HostKind
from localcloud.snapshot import REGION
from localcloud.start_options import MACHINES, Options

ENDPOINT: Final = f"http://{API_ADDRESS}"
Publish = Callable[[Distribution], str]
"""Takes a distribution; publishes it in the API and returns the id of its AMI."""
GUEST_ENVIRONMENT: Final = {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION}
"""Variables that point programs on the hosts to the cloud's API."""
Chosen = tuple[HostKind, frozenset[str]]
"""The cloud's kind of hosts, and the names of the servers with the packages of their images."""


def prepare(options: Options, environment: Mapping[str, str]) -> None:
    """Create the root file system or disks that the options need in the user's cache, unless they exist.

    This can take minutes and downloads packages. `choose` then finds them there. Raises ImageError.
    """
    cache = debian_root.default_cache(environment)
    if options.hosts == MACHINES:
        disks.node_disk(DISTRIBUTIONS[options.image], GUEST_ENVIRONMENT, cache)
        disks.server_disk(DISTRIBUTIONS[options.image], cache)
        disks.shown_disk(options.mount, cache)
    elif options.image:
        debian_root.root_of(DISTRIBUTIONS[options.image].root, cache)


def choose(options: Options, *, layout: Layout, packages: PackageIndex, publish: Publish) -> Chosen:
    """Return the kind of hosts that the options select, and the servers with the packages of their images.

    For hosts in namespaces, this creates the directories of their images and volumes below `layout`. If the options
    name an image, it is passed to `publish`. Raises LocalCloudError or OSError.
    """
    if options.hosts == MACHINES:
        return _machines(options, layout, publish)
    return _namespaces(options, layout, packages, publish)


def _namespaces(options: Options, layout: Layout, packages: PackageIndex, publish: Publish) -> Chosen:
    """Build the images of hosts in namespaces, and open their volumes. Returns like `choose`."""
    binds = (*options.mount, *packages.binds)
    layers = [layout.layers / "image"]
    layers[0].mkdir()
    machine = this_machine_image.build(layers[0], (*interpreter_binds(), *aws_cli_binds(), *binds), GUEST_ENVIRONMENT)
    images: dict[str, Image] = {}
    archive: frozenset[str] = frozenset()
    if options.image:
        distribution = DISTRIBUTIONS[options.image]
        root = debian_root.root_of(distribution.root, debian_root.default_cache(os.environ))
        layers.append(layout.layers / distribution.name)
        layers[1].mkdir()
        image = debian_image.build(layers[1], root, distribution, binds, GUEST_ENVIRONMENT)
        images[publish(distribution)] = image
        archive = debian_root.archive_hosts(root)
    for layer in layers:
        packages.install(layer)
        if options.nfs_client:
            nfs_client.install(layer)
    shared = SharedDirectory(path=layout.efs, caches=options.nfs_client)
    limit = CpuLimit(cloud=layout.name, cpus=options.cpus) if options.cpus else None
    kind = NamespaceHosts(
        machine=machine,
        images=images,
        layers=layout.layers,
        volumes=open_volumes(layout.volumes),
        shared=shared,
        cpu_limit=limit,
    )
    return kind, archive


def _machines(options: Options, layout: Layout, publish: Publish) -> Chosen:
    """Prepare the disks of machines and of their file servers. Returns like `choose`."""
    cache, distribution = debian_root.default_cache(os.environ), DISTRIBUTIONS[options.image]
    root = disks.node_disk(distribution, GUEST_ENVIRONMENT, cache)
    accelerator = qemu.accelerator(root.kernel)
    image = MachineImage(root=root, shown=disks.shown_disk(options.mount, cache), accelerator=accelerator)
    server = ServerImage(root=disks.server_disk(distribution, cache), accelerator=accelerator)
    if options.efs_size:
        server = dataclasses.replace(server, size=options.efs_size.upper())
    kind = MachineHosts(images={publish(distribution): image}, server=server, layout=layout)
    return kind, root.archive
