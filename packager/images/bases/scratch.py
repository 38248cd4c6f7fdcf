"""The empty base: `scratch`. Weights and configuration only, nothing to run."""

from __future__ import annotations

from packager.core.image import BaseImage, Platform
from packager.core.references import ImageTarget
from packager.images.oci import scratch


class ScratchBase:
    """Always there, always the same."""

    name = "scratch"

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:  # noqa: ARG002
        """Return the empty base image for `platform`."""
        return scratch(platform)
