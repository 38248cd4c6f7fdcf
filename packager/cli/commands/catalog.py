"""`packager catalog`."""

from __future__ import annotations

import os
import re
from typing import Any

import click

from packager.catalog.instances import instances
from packager.catalog.offer_file import Offer
from packager.catalog.price_file import data_dir, load_prices
from packager.catalog.price_refresh import refresh_prices
from packager.catalog.prices import price_of
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_result
from packager.core.catalog import Price
from packager.core.errors import UsageError
from packager.core.reports.report import Lines, Report, Words, one_section, plain_table

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d{1,2}", re.ASCII)


@click.group("catalog")
def catalog() -> None:
    """Update the catalog."""


@catalog.command("refresh")
@click.option(
    "--region",
    default="us-east-1",
    show_default=True,
    metavar="REGION",
    help="AWS region of the prices.",
)
@click.option(
    "--from",
    "source",
    metavar="FILE|URL",
    help="Path or URL of an offer file, instead of AWS's.",
)
@format_option
def refresh(region: str, source: str | None, output_format: str) -> None:
    """Download hosting prices from AWS's public offer file; needs no account.

    Later plans use them for that region. What was known before is kept when anything fails.

    \b
    packager catalog refresh --region eu-central-1
    """
    if not REGION.fullmatch(region):
        raise UsageError(f"{region!r} is not an AWS region", hint="name one such as 'us-east-1'")
    directory = data_dir(os.environ)
    before = {found.name: price_of(found, region, load_prices(directory)) for found in instances()}
    offer = refresh_prices(region, source, directory)
    document = _document(region, offer, before)
    print_result(output_format, document, _report(document))


def _document(region: str, offer: Offer, before: dict[str, Price | None]) -> dict[str, Any]:
    changes = []
    for price in offer.prices:
        old = before.get(price.instance)
        if price.instance in before and (old is None or old.usd_hour != price.usd_hour):
            changes.append(
                {
                    "instance": price.instance,
                    "was": old.usd_hour if old else None,
                    "was_region": old.region if old else "",
                    "is": price.usd_hour,
                    "date": price.date,
                }
            )
    return {
        "region": region,
        "published": offer.published,
        "prices": len(offer.prices),
        "changes": changes,
    }


def _report(document: dict[str, Any]) -> Report:
    summary = (
        f"{document['prices']} prices of {document['region']}, "
        f"published {document['published'][:10]}, kept for later plans"
    )
    rows = [
        (found["instance"], _usd(found["was"]), found["was_region"], _usd(found["is"]))
        for found in document["changes"]
    ]
    changes = (Lines(("",)), plain_table(("instance", "was", "of", "is"), rows)) if rows else ()
    return one_section("Prices", Words(summary, is_soft=False), *changes)


def _usd(amount: float | None) -> str:
    return "" if amount is None else f"{amount:g}"
