"""Prices of AWS's public offer file, read whole before they replace earlier ones."""

from __future__ import annotations

import codecs
import http.client
import io
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from packager.catalog.offer_file import Offer, OfferFileBroken, read_offer
from packager.catalog.price_file import save_prices
from packager.core.errors import NotFound, Unavailable, UsageError
from packager.core.files.pipes import open_waiting
from packager.core.text import remember_user
from packager.core.version import __version__

OFFER_URL = (
    "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/current"
    "/{region}/index.json"
)
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
    save_prices(region, offer, data_dir)
    return offer


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
            with open_waiting(Path(source)) as file:
                yield file
        except OSError as error:
            raise NotFound(
                f"cannot read offer file {source!r}: {error.strerror}",
                hint="name a file that is there, or leave --from out to ask AWS",
            ) from error
        return
    _check_url(source)
    request = _request(source)
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


def _request(url: str) -> urllib.request.Request:
    """Return a request for an address, whose user and password go in a header."""
    parts = urlsplit(url)
    headers = {"User-Agent": f"packager/{__version__}"}
    if parts.username is not None:
        remember_user(url)
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    host = parts.netloc.rpartition("@")[2]
    return urllib.request.Request(urlunsplit(parts._replace(netloc=host)), headers=headers)


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
    """Redirect handler that follows no redirect, so that no other host can supply prices."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
