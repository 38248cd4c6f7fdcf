"""Models streamed from the hub into the image that is written: `hf://org/name[@revision]`.

Only configuration and tokenizer pass through the hub's cache, to be checked.
The same rules hold as for a download, and the result is the same image.
"""

from __future__ import annotations

from pathlib import Path

from packager.core.model import ModelFiles
from packager.core.references import ModelReference
from packager.models.hub import HubSource


class HubStreamSource:
    """Finds a model by `hf://org/name[@revision]`. No weights are written to this machine."""

    name = "hf"

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        cache_dir: Path | None = None,
        headers_only: bool = False,
        is_draft: bool = False,
        is_adapter: bool = False,
    ) -> None:
        self._hub = HubSource(
            endpoint=endpoint,
            token=token,
            cache_dir=cache_dir,
            headers_only=headers_only,
            is_draft=is_draft,
            is_adapter=is_adapter,
            streams=True,
        )

    def facts(self, reference: ModelReference) -> ModelFiles:
        """Pin, check what is small, and read headers; every file stays on the hub."""
        return self._hub.facts(reference)
