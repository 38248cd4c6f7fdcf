"""Reads the figures that the tool `evaluate` left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

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
        return QualityReport.model_validate_json(Path(content.path).read_bytes())
    except (ValidationError, OSError) as error:
        first = error.errors()[0]["msg"].lower() if isinstance(error, ValidationError) else error
        raise StepFailed(f"the evaluation's {RESULT} cannot be read: {first}") from error
