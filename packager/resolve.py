"""From names to pinned facts: the last time anything is looked up."""

from __future__ import annotations

from collections.abc import Callable

from packager import __version__
from packager.core.facts import ContainerFacts, Facts
from packager.core.image import BaseImage, Platform
from packager.core.instance import DeviceKind, Instance
from packager.core.model import ModelFiles
from packager.core.request import BuildRequest
from packager.errors import UsageError


def resolve(
    request: BuildRequest,
    *,
    find_model: Callable[[str], ModelFiles],
    find_instance: Callable[[str], Instance],
    find_container: Callable[[str | None, DeviceKind], ContainerFacts],
    find_base: Callable[[str, Platform], BaseImage] | None,
) -> Facts:
    """Pin the model, the instance, the container and, for a build, the base image.

    Cheap and local look-ups go first, so that a typing error costs no download.
    """
    instance = find_instance(request.instance)
    container = find_container(request.family, instance.kind)
    base = None
    if find_base is not None:
        reference = request.base or container.default_base
        if not reference:
            raise UsageError(
                f"no base image is known for {container.family} on {instance.name}",
                hint="name one with --base, or use --base scratch for weights and configuration",
            )
        base = find_base(reference, Platform())
    model = find_model(request.model)
    return Facts(
        request=request,
        model=model,
        instance=instance,
        container=container,
        base=base,
        packager_version=__version__,
    )
