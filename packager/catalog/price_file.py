"""Refreshed prices: one small file a region, in the user's data directory.

Reading them back never fails a plan: what cannot be used is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packager.catalog.offer_file import BASIS, Offer
from packager.core.catalog import Price
from packager.core.documents import MAX_BYTES, NotStrict, field, parse_object, shorten
from packager.core.errors import OutputFailed
from packager.core.files.atomic import read_regular, user_dir

SCHEMA = "packager.prices/1"


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


def save_prices(region: str, offer: Offer, directory: Path) -> None:
    """Keep a region's prices for later plans, in place of earlier ones."""
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
