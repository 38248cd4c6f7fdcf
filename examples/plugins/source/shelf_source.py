"""Models of a shelf: `shelf://NAME[@REVISION]` is the directory `$MODEL_SHELF/NAME/REVISION`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from packager.cli.plugins.contexts import SourceContext
from packager.core.errors import NotFound
from packager.core.model import ModelFiles, ModelRef
from packager.core.references import DirectoryReference, ModelReference
from packager.models.local import LocalSource


class ShelfSource:
    """Finds a model on the shelf; without a revision, the one whose name sorts last."""

    name = "shelf"

    def __init__(self, context: SourceContext) -> None:
        self._local = LocalSource(is_draft=context.is_draft)
        self._shelf = Path(os.environ["MODEL_SHELF"])

    def facts(self, reference: ModelReference) -> ModelFiles:
        """Pin the revision, and have the directory checked as a local model is."""
        name, _, revision = reference.text.removeprefix("shelf://").partition("@")
        revisions = sorted(path.name for path in self._shelf.glob(f"{name}/*"))
        if not revisions or (revision and revision not in revisions):
            wanted = f"model {name!r} with revision {revision!r}" if revision else f"model {name!r}"
            raise NotFound(
                f"the shelf has no {wanted}",
                hint=f"revisions that it has: {', '.join(revisions) or 'none'}",
            )
        pinned = revision or revisions[-1]
        found = self._local.facts(DirectoryReference.at(self._shelf / name / pinned))
        return replace(found, ref=ModelRef(source="other", name=name, revision=pinned))
