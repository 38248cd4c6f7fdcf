"""What steps are given, stated by every technique in the same way."""

from __future__ import annotations

from packager.core.image import BaseImage, Inline
from packager.core.model import ModelFile
from packager.core.samples import Samples


def samples_file(samples: Samples, path: str = "samples.jsonl") -> ModelFile:
    """Give the chosen texts as the file that every worker reads."""
    return ModelFile(
        path=path,
        role="other",
        content=Inline(samples.jsonl()),
        sha256=samples.digest.removeprefix("sha256:"),
    )


def environment_of(base: BaseImage | None) -> dict[str, str]:
    """Give the environment that the image itself sets."""
    config = (base.config.get("config") or {}) if base else {}
    return dict(line.split("=", 1) for line in config.get("Env") or () if "=" in line)
