"""Refreshed prices: from AWS's public offer file to a small file in the user's data directory.

One file a region, replaced only when the whole offer has been read.  Reading
them back never fails a plan: what cannot be used is left out.
"""

from __future__ import annotations

import codecs
import contextlib
import http.client
import io
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import SplitResult, urlsplit

from packager.catalog.offer_file import BASIS, Offer, OfferFileBroken, read_offer
from packager.core.catalog import Price
from packager.core.documents import MAX_BYTES, NotStrict, field, parse_object, shorten
from packager.errors import NotFound, OutputFailed, Unavailable, UsageError
from packager.files.atomic import read_regular, user_dir
from packager.version import __version__

OFFER_URL = (
    "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/current"
    "/{region}/index.json"
)
SCHEMA = "packager.prices/1"
TIMEOUT_S = 60.0
LONGEST_BYTES = 2 * 1024**3  # the offer of the largest region has some 50 MB
LONGEST_S = 1800.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def refresh_prices(region: str, source: str | None, data_dir: Path) -> Offer:
    """Read a region's offer from AWS, a URL or a file, and keep its prices for later plans."""
    where = source or OFFER_URL.format(region=region)
    with _open(where) as data:
        reader = codecs.getreader("utf-8")(cast(BinaryIO, _Limited(data, where_shown(where))))
        offer = read_offer(reader.read, where_shown(where), region)
    _save(region, offer, data_dir)
    return offer


def load_prices(data_dir: Path) -> tuple[Price, ...]:
    """Return every refreshed price; a file that cannot be used is ignored."""
    found: list[Price] = []
    for path in sorted((data_dir / "prices").glob("*.json")):
        with contextlib.suppress(OSError, NotStrict):
            found += _parsed(parse_object(read_regular(path, MAX_BYTES)))
    return tuple(found)


def data_dir(environment: Mapping[str, str]) -> Path:
    """Return packager's directory for the user's data."""
    return user_dir("data", environment) / "packager"


def where_shown(source: str) -> str:
    """Return a source without credentials or directories, for records and messages."""
    if "://" not in source:
        return Path(source).name
    parts = _parts(source)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


class _Limited:
    """A file that ends with a refusal: at a size, or after a time, that no offer file has."""

    def __init__(
        self, file: BinaryIO, shown: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._shown = shown
        self._clock = clock
        self._until_s = clock() + LONGEST_S
        self._left = LONGEST_BYTES

    def read(self, size: int = -1) -> bytes:
        """Read some bytes."""
        data = self._file.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise OfferFileBroken(self._shown, f"it has more than {LONGEST_BYTES} bytes")
        if self._clock() > self._until_s:
            raise Unavailable(
                f"{self._shown} has not come in {LONGEST_S / 60:.0f} minutes", hint=LATER
            )
        return data


@contextmanager
def _open(source: str) -> Iterator[BinaryIO]:
    if "://" not in source:
        try:
            with Path(source).open("rb") as file:
                yield file
        except OSError as error:
            raise NotFound(
                f"cannot read offer file {source!r}: {error.strerror}",
                hint="name a file that is there, or leave --from out to ask AWS",
            ) from error
        return
    _check_url(source)
    request = urllib.request.Request(source, headers={"User-Agent": f"packager/{__version__}"})
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            yield io.BufferedReader(answer)
    except urllib.error.HTTPError as error:
        shown = where_shown(source)
        if error.code in (403, 404):
            hint = "check --region: AWS has one offer file for each region it sells SageMaker in"
            raise NotFound(f"there is no offer file at {shown}", hint=hint) from error
        raise Unavailable(f"{shown} answers with status {error.code}", hint=LATER) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"cannot reach {where_shown(source)}: {reason}", hint=LATER) from error


LATER = "try again later, or download the file elsewhere and name it with --from"


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises, too
    except ValueError as error:
        raise UsageError(
            f"--from is not an address: {error}", hint="use an https:// URL or a file"
        ) from error
    return parts


def _check_url(url: str) -> None:
    parts = _parts(url)
    plain = parts.scheme == "http" and parts.hostname in LOOPBACK
    if parts.scheme != "https" and not plain:
        raise UsageError(
            f"prices are not read from {where_shown(url)!r}", hint="use an https:// URL or a file"
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirect handler that follows nothing, so that no other host can supply the prices."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _save(region: str, offer: Offer, directory: Path) -> None:
    document = {
        "schema": SCHEMA,
        "region": region,
        "published": offer.published,
        "source": offer.prices[0].source,
        "prices": {
            price.instance: {"usd_hour": price.usd_hour, "date": price.date}
            for price in offer.prices
        },
    }
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    target = directory / "prices" / f"{region}.json"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".prices-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputFailed(
            f"cannot write {str(target)!r}: {(error.strerror or '').lower()}",
            hint="name a file in a directory that you may write to",
        ) from error


def _parsed(document: Mapping[str, Any]) -> list[Price]:
    if document.get("schema") != SCHEMA:
        return []
    region, source = field(document, "region", str), field(document, "source", str)
    found = []
    for instance, stated in field(document, "prices", dict).items():
        usd_hour = stated.get("usd_hour") if isinstance(stated, dict) else None
        if not isinstance(usd_hour, int | float) or isinstance(usd_hour, bool):
            raise NotStrict(f"the price of {shorten(instance)} is not a number")
        if usd_hour > 0:
            found.append(
                Price(
                    instance=instance,
                    usd_hour=float(usd_hour),
                    region=region,
                    basis=BASIS,
                    source=source,
                    date=field(stated, "date", str),
                )
            )
    return found


__all__ = ["OfferFileBroken", "data_dir", "load_prices", "refresh_prices", "where_shown"]
