"""Files of an optimization job: the result at its place, and the error file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packager.addons.server.sagemaker.neo import (
    MAX_PROPERTIES_BYTES,
    PROPERTIES,
    error_document,
    input_configuration,
)
from packager.core.files.atomic import explain_disk_errors, read_regular, write_atomically

_WORK = ".packager-neo"
_MANIFEST = "packager-tree.json"  # of the tree as built; wrong once settings change


@contextmanager
def reported_errors(place: str) -> Iterator[None]:
    """Write any error to the job's error file, and raise it again.

    An earlier attempt's file is removed first, since its presence means failure.
    """
    path = Path(place) if place else None
    if path is not None:
        with suppress(OSError):
            path.unlink()
    try:
        yield
    except BaseException as error:
        if path is not None:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, f"{json.dumps(error_document(error))}\n".encode())
        raise


@contextmanager
def move_result(output: Path) -> Iterator[Path]:
    """Yield a work directory below `output`; its files move to `output` at the end.

    `output` is a mount and cannot be replaced. `serving.properties` moves last; if the work failed,
    no file moves.
    """
    work = output / _WORK
    with explain_disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
    try:
        tree = work / "tree"
        yield tree
        with explain_disk_errors(output):
            (tree / _MANIFEST).unlink(missing_ok=True)
            (output / PROPERTIES).unlink(missing_ok=True)  # of an earlier result: it comes last
            entries = sorted(tree.iterdir(), key=lambda one: (one.name == PROPERTIES, one.name))
            for entry in entries:
                _replace(entry, output / entry.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read_properties(source: Path) -> str | None:
    """Return the model's settings; None where it has none."""
    path = source / PROPERTIES
    try:
        data = read_regular(path, MAX_PROPERTIES_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise input_configuration(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if len(data) > MAX_PROPERTIES_BYTES:
        raise input_configuration(f"{str(path)!r} is longer than {MAX_PROPERTIES_BYTES} bytes")
    return data.decode("latin-1")


def _replace(entry: Path, place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    entry.rename(place)
