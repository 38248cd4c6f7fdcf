"""AWS's public offer files: the price list that needs no account.

The file of one region is JSON of tens of megabytes.  It is read member by member, so that memory
stays small for any size; a truncated file is an error, never a shorter list.

`products` comes before `terms`: only prices of products already read count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from packager.core.catalog import Price
from packager.core.documents import NotStrict, shorten, strict_decoder
from packager.core.errors import PackagerError

CHUNK_CHARACTERS = 1 << 16
LONGEST_MEMBER = 1 << 22  # characters; a product has about two thousand

MOST_PRODUCTS = 100_000  # instances for endpoints; all regions together have some ten thousand

BASIS = "offer file"
COMPONENT = "Hosting"

Path = tuple[str, ...]
ReadText = Callable[[int], str]


class OfferFileBroken(PackagerError):
    """The file is not an offer file, or not all of one."""

    exit_code = 76

    def __init__(self, source: str, why: str) -> None:
        super().__init__(
            f"{source} is not a usable offer file: {why}",
            hint="the prices known before are kept; try again, or name another file with --from",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The prices of one offer file."""

    published: str  # when AWS wrote it: `2026-09-09T18:46:21Z`
    prices: tuple[Price, ...]


def read_offer(read: ReadText, source: str, region: str | None = None) -> Offer:
    """Read the hosting prices in USD of an offer file for SageMaker.

    Without a region, prices of every region in the file are taken.
    """
    head: dict[str, Any] = {}
    hosted: dict[str, tuple[str, str]] = {}  # product → instance, region
    found: dict[tuple[str, str], Price] = {}
    for path, value in members(read, source, _descend):
        if len(path) == 1:
            head[path[0]] = value
        elif path[0] == "products" and len(path) == 2:
            product = _hosted(value, region)
            if product:
                hosted[path[1]] = product
            if len(hosted) > MOST_PRODUCTS:
                raise OfferFileBroken(source, f"it has more than {MOST_PRODUCTS} products")
        elif len(path) == 3 and path[:2] == ("terms", "OnDemand") and path[2] in hosted:
            price = _price(hosted[path[2]], value, source)
            if price:
                found[price.instance, price.region] = price
    code = shorten(head.get("offerCode"))
    if head.get("offerCode") != "AmazonSageMaker":
        raise OfferFileBroken(source, f"it is for {code}, not AmazonSageMaker")
    if not found:
        raise OfferFileBroken(source, f"no hosting price in USD found{_for(region)}")
    published = str(head.get("publicationDate", ""))
    if not _is_date(published):
        raise OfferFileBroken(source, f"its publicationDate is {shorten(published)}")
    return Offer(published=published, prices=tuple(found[key] for key in sorted(found)))


def members(
    read: ReadText, source: str, descend: Callable[[Path], bool]
) -> Iterator[tuple[Path, Any]]:
    """Yield the members of nested JSON objects while reading, each with its path of names.

    Objects for which `descend` holds are walked through; everything else is one value.
    """
    text = _Text(read, source)
    text.expect("{")
    path: Path = ()
    first = True
    while True:
        mark = text.next_mark()
        if mark == "}":
            text.expect("}")
            if not path:
                break
            path, first = path[:-1], False
            continue
        if not first:
            text.expect(",")
        name = text.value()
        if not isinstance(name, str):
            raise OfferFileBroken(source, "a member has no name")
        text.expect(":")
        first = False
        if descend((*path, name)) and text.next_mark() == "{":
            text.expect("{")
            path, first = (*path, name), True
        else:
            yield (*path, name), text.value()


class _Text:
    """Reader of JSON text in chunks, which returns tokens and values."""

    def __init__(self, read: ReadText, source: str) -> None:
        self._read = read
        self._source = source
        self._buffer = ""
        self._at = 0
        self._decoder = strict_decoder()

    def next_mark(self) -> str:
        """Return the next character that is not whitespace, without consuming it."""
        while True:
            while self._at < len(self._buffer):
                if not self._buffer[self._at].isspace():
                    return self._buffer[self._at]
                self._at += 1
            if not self._more():
                raise OfferFileBroken(self._source, "it ends too early")

    def expect(self, mark: str) -> None:
        """Consume one expected character."""
        found = self.next_mark()
        if found != mark:
            raise OfferFileBroken(self._source, f"{found!r} found, {mark!r} expected")
        self._at += 1

    def value(self) -> Any:
        """Parse one complete value."""
        self.next_mark()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise OfferFileBroken(self._source, "it is nested too deeply") from None
            except NotStrict as error:
                raise OfferFileBroken(self._source, str(error)) from None
            except json.JSONDecodeError:
                value, end = None, len(self._buffer)
            # A number at the very end may go on in the next chunk.
            if end < len(self._buffer):
                self._at = end
                return value
            if len(self._buffer) - self._at > LONGEST_MEMBER:
                raise OfferFileBroken(self._source, "one of its members is too long or broken")
            if not self._more():
                raise OfferFileBroken(self._source, "it ends too early")

    def _more(self) -> bool:
        try:
            chunk = self._read(CHUNK_CHARACTERS)
        except UnicodeDecodeError:
            raise OfferFileBroken(self._source, "it is not UTF-8 text") from None
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)


def _descend(path: Path) -> bool:
    return path in (("products",), ("terms",)) or (len(path) == 2 and path[0] == "terms")


def _hosted(product: Any, region: str | None) -> tuple[str, str] | None:
    """Return instance and region of a product that is an instance for an endpoint."""
    attributes = product.get("attributes") if isinstance(product, dict) else None
    if not isinstance(attributes, dict) or attributes.get("component") != COMPONENT:
        return None
    name, where = attributes.get("instanceName"), attributes.get("regionCode")
    if not isinstance(name, str) or not isinstance(where, str) or not name.startswith("ml."):
        return None
    return (name, where) if region in (None, where) else None


def _price(product: tuple[str, str], terms: Any, source: str) -> Price | None:
    """Return the hourly price in USD that took effect last; offers for 0 are ignored."""
    instance, region = product
    latest: tuple[str, float] | None = None
    for term in terms.values() if isinstance(terms, dict) else ():
        dimensions = term.get("priceDimensions") if isinstance(term, dict) else None
        effective = str(term.get("effectiveDate", ""))[:10] if isinstance(term, dict) else ""
        for dimension in dimensions.values() if isinstance(dimensions, dict) else ():
            usd_hour = _usd_hour(dimension)
            if usd_hour and _is_date(effective) and (latest is None or effective > latest[0]):
                latest = effective, usd_hour
    if latest is None:
        return None
    return Price(
        instance=instance,
        usd_hour=latest[1],
        region=region,
        basis=BASIS,
        source=source,
        date=latest[0],
    )


def _usd_hour(dimension: Any) -> float:
    if not isinstance(dimension, dict) or str(dimension.get("unit", "")).lower() not in HOURS:
        return 0.0
    per_unit = dimension.get("pricePerUnit")
    stated = per_unit.get("USD") if isinstance(per_unit, dict) else None
    try:
        amount = Decimal(str(stated))
    except InvalidOperation:
        return 0.0
    return float(amount) if amount.is_finite() and amount > 0 else 0.0


HOURS = ("hrs", "hour", "hours")


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _for(region: str | None) -> str:
    return f" for region {region!r}" if region else ""
