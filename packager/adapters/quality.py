"""Reads the figures that the tool `evaluate` left."""

from __future__ import annotations

from collections.abc import Iterable

from packager.adapters.opening import read_start
from packager.core.documents import MAX_BYTES, NotStrict, parse_model
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.quality import RESULT, QualityReport
from packager.errors import StepFailed


def read_quality(files: Iterable[ModelFile]) -> QualityReport:
    """Give the figures, or say what is wrong with them."""
    content = next((file.content for file in files if file.path == RESULT), None)
    if not isinstance(content, FileRange):
        raise StepFailed(f"the evaluation left no {RESULT}")
    try:
        return parse_model(QualityReport, read_start(content, MAX_BYTES + 1))
    except (NotStrict, OSError) as error:
        raise StepFailed(f"the evaluation's {RESULT} cannot be read: {error}") from error
