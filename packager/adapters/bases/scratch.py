"""The empty base: `scratch`. Weights and configuration only, nothing to run."""

from __future__ import annotations

from packager.core.image import BaseImage, Platform
from packager.imaging.oci import scratch


class ScratchBase:
    """Always there, always the same."""

    name = "scratch"

    def facts(self, reference: str, platform: Platform) -> BaseImage:  # noqa: ARG002
        """Give the empty image for `platform`."""
        return scratch(platform)
