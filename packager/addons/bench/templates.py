"""Where a request template is: given itself, in a file, or an object of a bucket."""

from __future__ import annotations

from pathlib import Path

from packager.addons.bench.load.template import MAX_TEMPLATE_BYTES, NAMED, is_inline
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.files.user_files import read_user_file
from packager.models.samples.buckets import fetched, is_bucket_data

_HINT = "give a file, s3://BUCKET/KEY, or the template itself"


def find_template(text: str) -> str:
    """Return the template that a text is or names; raises what reading it does."""
    if not text or is_inline(text) or text in NAMED:
        return text
    if is_bucket_data(text):
        with fetched(text, (".jinja", ".jinja2", ".j2", ".json", ".txt")) as files:
            if len(files) > 1:
                raise UsageError(
                    f"there are {len(files)} objects at {shorten(text, 200)}, expected one",
                    hint="name one object",
                )
            return _decoded(_read(files[0][1]), text)
    return _decoded(_read(Path(text)), text)


def _read(path: Path) -> bytes:
    return read_user_file(
        path, what="the request template", hint=_HINT, max_bytes=MAX_TEMPLATE_BYTES
    )


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the request template {shorten(name, 200)} is not UTF-8 text", hint=_HINT
        ) from error
