"""Hourly prices of instances: shipped, refreshed, or the user's own.

A price belongs to a region and a date.  If the requested region has none, the price of another
region is used, with that region's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.catalog.instances import EC2_PRICE, instance_rows
from packager.core.catalog import Price
from packager.core.instance import Instance
from packager.core.share import read_shipped

SOURCES_TABLE = Path(__file__).parent / "data" / "price_sources.toml"

CAPACITY_BLOCK = "ec2 capacity block"  # bought in advance for days: no price of an endpoint
USER = "user"


def price_of(
    instance: Instance, region: str | None = None, extra: tuple[Price, ...] = ()
) -> Price | None:
    """Return an instance's price in a region, or the closest known one; None when there is none.

    The user's own price wins, then the requested region, then the newest date.
    """
    own = tuple(price for price in extra if price.instance == instance.name)
    known = _first_own(own, _prices_by_instance().get(instance.name, ()))
    usable = [price for price in known if price.basis != CAPACITY_BLOCK]
    return max(
        usable,
        key=lambda price: (price.basis == USER, price.region == region, price.date),
        default=None,
    )


def priced(instance: Instance, region: str | None, extra: tuple[Price, ...]) -> Instance:
    """Return the instance with its best price; the basis states region and date."""
    price = price_of(instance, region, extra)
    if price is None or price.basis == USER:
        return instance
    basis = f"{price.basis.partition('[')[0]}, {price.region}, {price.date}"
    return replace(instance, price_usd_hour=price.usd_hour, price_basis=basis)


def at_price(instance: Instance, usd_hour: float | None) -> Instance:
    """Return the instance at the user's price; unchanged without one."""
    if usd_hour is None:
        return instance
    return replace(instance, price_usd_hour=usd_hour, price_basis=USER)


def prices(extra: tuple[Price, ...] = ()) -> tuple[Price, ...]:
    """List every price, refreshed and own ones first; those replace the same region's."""
    return _first_own(extra, shipped_prices())


def _first_own(own: tuple[Price, ...], shipped: Iterable[Price]) -> tuple[Price, ...]:
    newer = {(price.instance, price.region) for price in own}
    return own + tuple(price for price in shipped if (price.instance, price.region) not in newer)


@cache
def shipped_prices() -> tuple[Price, ...]:
    """Read the prices of `data/instances.csv`, each with its region, basis and date."""
    sources = read_shipped(SOURCES_TABLE)
    return tuple(price for one, row in instance_rows() for price in _prices(one, row, sources))


@cache
def _prices_by_instance() -> dict[str, list[Price]]:
    found: dict[str, list[Price]] = {}
    for price in shipped_prices():
        found.setdefault(price.instance, []).append(price)
    return found


def _prices(
    instance: Instance, row: Mapping[str, str], sources: Mapping[str, Any]
) -> Iterator[Price]:
    if instance.cloud == "ec2" and row["ec2_ondemand_usd_hr_us_east_1"]:
        stated = sources["ec2"]
        yield Price(
            instance=instance.name,
            usd_hour=float(row["ec2_ondemand_usd_hr_us_east_1"]),
            region=stated["region"],
            basis=EC2_PRICE,
            source=stated["source"],
            date=stated["date"],
        )
    if row["sagemaker_hosting_usd_hr"]:
        for stated in _sources(row["sagemaker_price_basis"], sources):
            yield Price(
                instance=instance.name,
                usd_hour=float(row["sagemaker_hosting_usd_hr"]),
                region=stated["region"],
                basis=row["sagemaker_price_basis"],
                source=stated["source"],
                date=stated["date"],
            )
    if row["capacity_block_usd_hr"]:
        yield Price(
            instance=instance.name,
            usd_hour=float(row["capacity_block_usd_hr"]),
            region=row["capacity_block_region"],
            basis=CAPACITY_BLOCK,
            source=sources["capacity_block"]["source"],
            date=sources["capacity_block"]["date"],
        )


def _sources(basis: str, sources: Mapping[str, Any]) -> Iterable[Mapping[str, str]]:
    """Return the sources of a basis such as `published[F+W]` or `derived ec2x1.25`."""
    if basis.startswith("derived"):
        return [sources["derived"]]
    letters = basis.removeprefix("published[").removesuffix("]").split("+")
    return [sources["published"][letter] for letter in letters]
