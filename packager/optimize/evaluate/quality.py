"""Reads the figures that the tool `evaluate` left."""

from __future__ import annotations

from collections.abc import Iterable

from packager.core.documents import MAX_BYTES, NotStrict, parse_model
from packager.core.errors import StepFailed
from packager.core.files.opening import read_start
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.quality import RESULT, QualityReport


def read_quality(files: Iterable[ModelFile]) -> QualityReport:
    """Parse the figures of an evaluation; raises `StepFailed` where they are invalid."""
    content = next((file.content for file in files if file.path == RESULT), None)
    if not isinstance(content, FileRange):
        raise StepFailed(f"the evaluation left no {RESULT}", hint="run it again with --restart")
    try:
        return parse_model(QualityReport, read_start(content, MAX_BYTES + 1))
    except (NotStrict, OSError) as error:
        raise StepFailed(
            f"the evaluation's {RESULT} cannot be read: {error}", hint="run it again with --restart"
        ) from error
