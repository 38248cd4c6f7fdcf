"""Grids and plans: files here, and plans that a web server has because no ConfigMap holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, shorten
from packager.core.errors import NotFound, Unavailable, UsageError
from packager.core.files.user_files import parse_table, read_user_file
from packager.core.request import YAML_SUFFIXES

LARGEST_BYTES = 256 * 1024 * 1024
TIMEOUT_S = 30.0


def read_document(place: str) -> dict[str, Any]:
    """Read a table in TOML, YAML or JSON."""
    data = _fetch(place) if place.startswith(("http://", "https://")) else _read(Path(place))
    if place.lower().endswith(YAML_SUFFIXES):
        from packager.core.yaml_values import parse_yaml_table

        try:
            table: dict[str, Any] = parse_yaml_table(data)
            return table
        except NotStrict as error:
            raise UsageError(
                f"{shorten(place, 200)} cannot be parsed: {error}",
                hint="correct it: it is read as YAML",
            ) from error
    is_json = not place.endswith(".toml")
    return parse_table(data, place, max_json_bytes=LARGEST_BYTES, is_json=is_json)


def _read(path: Path) -> bytes:
    return read_user_file(
        path,
        what="the grid or plan",
        hint="name a grid in TOML, YAML or JSON, or a plan; see `packager warm --help`",
        max_bytes=LARGEST_BYTES,
    )


def _fetch(url: str) -> bytes:
    import urllib3

    from packager.core.remote.pools import timely

    shown = url.partition("?")[0]  # what follows may be a signature
    try:
        with timely(urllib3.PoolManager()).request(
            "GET", url, preload_content=False, timeout=TIMEOUT_S, retries=urllib3.Retry(3)
        ) as answer:
            data: bytes = answer.read(LARGEST_BYTES + 1, decode_content=True)
    except urllib3.exceptions.HTTPError as error:
        raise Unavailable(
            f"cannot get the plan from {shown!r}: {type(error).__name__}",
            hint="check the URL and the network, and run again",
        ) from error
    if answer.status in (404, 410):
        raise NotFound(f"there is no plan at {shown!r}", hint="put it there, or name another URL")
    if answer.status >= 300:
        raise Unavailable(
            f"{shown!r} answered {answer.status}", hint="check that the URL may still be read"
        )
    if len(data) > LARGEST_BYTES:
        raise UsageError(
            f"the plan at {shown!r} is larger than {LARGEST_BYTES} bytes",
            hint="plan fewer jobs in each of several grids",
        )
    return data
