"""Reads the results of head training, and moves the head to its destination."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from packager.core.documents import MAX_BYTES, NotStrict, parse_model
from packager.core.errors import OutputFailed, StepFailed, UsageError
from packager.core.files.atomic import explain_disk_errors, read_regular, sync_directory
from packager.core.files.opening import read_start
from packager.core.image import Blob, FileRange
from packager.core.model import ModelFile, ModelFiles
from packager.core.references import DirectoryReference
from packager.core.training import RESULT, TEXTS, TrainingReport
from packager.images.blobs import BlobReader
from packager.models.local import LocalSource

MAX_REPORT_BYTES = 256 * 1024
HEAD_FILES = frozenset({"config.json", "model.safetensors", RESULT})


def read_training(files: Iterable[ModelFile]) -> TrainingReport:
    """Parse the training's figures; raises `StepFailed` where they are invalid."""
    content = _content(files, RESULT)
    try:
        return parse_model(TrainingReport, read_start(content, MAX_BYTES + 1))
    except (NotStrict, OSError) as error:
        raise StepFailed(
            f"the training's {RESULT} cannot be read: {error}", hint="run it again with --restart"
        ) from error


def report_beside(head: ModelFiles) -> TrainingReport | None:
    """Return the figures that a training left beside a head on this machine; None without."""
    config = next((file.content for file in head.files if file.path == "config.json"), None)
    if not isinstance(config, FileRange):
        return None
    try:
        data = read_regular(Path(config.path).parent / RESULT, MAX_REPORT_BYTES)
        return parse_model(TrainingReport, data, max_bytes=MAX_REPORT_BYTES)
    except (NotStrict, OSError):  # the head serves without its figures
        return None


def read_head(files: Iterable[ModelFile]) -> ModelFiles:
    """Read a head's headers, as a build with it would."""
    config = _content(files, "config.json")
    source = LocalSource(is_draft=True, is_linked=bool(config.sha256))  # in the cache
    return source.facts(DirectoryReference.at(Path(config.path).parent))


def check_answers(files: Iterable[ModelFile]) -> None:
    """Check that there are texts for training and held-out texts."""
    for name in TEXTS:
        if not _content(files, name).length:
            raise StepFailed(
                f"the model answered nothing of {name}",
                hint="are the prompts longer than the model reads? Raise --max-tokens, or use "
                "--answers data",
            )


def check_head_place(place: Path) -> None:
    """Refuse a directory that holds something else than an earlier head, before any work."""
    with explain_disk_errors(place):
        if place.is_dir() and not place.is_symlink():
            others = sorted(path.name for path in place.iterdir() if path.name not in HEAD_FILES)
            if others:
                raise UsageError(
                    f"{str(place)!r} holds other files than a head's, such as {others[0]!r}",
                    hint="name a new directory with --output",
                )
            # The directory is replaced whole: refuse one that is a mount or a current directory.
            if os.path.ismount(place) or place.samefile(Path.cwd()):
                raise UsageError(
                    f"{str(place)!r} cannot be replaced by a head",
                    hint="name a directory in it with --output, such as "
                    f"{str(place / 'head')!r}; it is made",
                )
        elif os.path.lexists(place):
            raise UsageError(f"{str(place)!r} is not a directory", hint="name a new one: --output")
        parent = place.absolute().parent
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise OutputFailed(
                f"{str(place)!r} cannot be made: {str(parent)!r} is not a directory to write to",
                hint="make it, or name another place with --output",
            )


def check_new_place(place: Path) -> None:
    """Refuse a directory that is there already, before any work."""
    check_head_place(place)
    if os.path.lexists(place):
        raise UsageError(f"{str(place)!r} is there already", hint="name a new one with --output")


def write_head(files: Iterable[ModelFile], place: Path) -> None:
    """Write a head's files into a new directory, or atomically replace an earlier head.

    At any moment the directory holds a whole head, the old or the new, or is not there.
    """
    place = place.absolute()
    fresh = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    with explain_disk_errors(place):
        try:
            fresh.mkdir()
            for file in files:
                _copy(file, fresh)
            sync_directory(fresh)
            if place.exists():
                old = fresh.with_suffix(".old")
                place.rename(old)
                fresh.rename(place)
                shutil.rmtree(old)
            else:
                fresh.rename(place)
            sync_directory(place.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _copy(file: ModelFile, into: Path) -> None:
    content = file.content
    blob = content if isinstance(content, Blob) else Blob((content,))
    (into / file.path).parent.mkdir(parents=True, exist_ok=True)
    with (into / file.path).open("xb") as target:
        for chunk in BlobReader().chunks(blob):
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())


def _content(files: Iterable[ModelFile], name: str) -> FileRange:
    content = next((file.content for file in files if file.path == name), None)
    if not isinstance(content, FileRange):
        raise StepFailed(f"the step left no {name}", hint="run it again with --restart")
    return content
