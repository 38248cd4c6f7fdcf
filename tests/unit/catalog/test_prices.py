"""Shipped prices, and those of an offer file as AWS writes it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from packager.catalog.instances import find_instance
from packager.catalog.offer_file import OfferFileBroken, read_offer
from packager.catalog.price_file import load_prices
from packager.catalog.price_refresh import refresh_prices
from packager.catalog.prices import price_of, priced, shipped_prices
from packager.cli.commands.catalog import catalog
from packager.core.catalog import Price
from packager.core.errors import NotFound, Unavailable, UsageError
from tests.support.cases import cases, fields_of, read_tables
from tests.support.known import known
from tests.support.places import DATA

OFFER = DATA / "catalog" / "offer-us-east-1.json"


def user_price(usd_hour: float) -> Price:
    return Price(
        instance="ml.g5.12xlarge",
        usd_hour=usd_hour,
        region="on-premises",
        basis="user",
        source="contract",
        date="2020-01-01",
    )


@cases("prices", region=None)
def test_a_price_says_where_it_holds_and_who_says_so(
    instance: str, region: str | None, expect: dict[str, Any]
) -> None:
    assert fields_of(price_of(find_instance(instance), region), expect) == expect


def test_capacity_blocks_are_no_price_of_an_endpoint() -> None:
    assert price_of(find_instance("ml.p5e.48xlarge")) is None
    blocks = [price for price in shipped_prices() if price.instance == "ml.p5e.48xlarge"]

    assert [(price.basis, price.usd_hour) for price in blocks] == [("ec2 capacity block", 47.76)]


def test_the_users_own_price_wins() -> None:
    price = known(price_of(find_instance("ml.g5.12xlarge"), "us-east-1", (user_price(3.5),)))

    assert price.usd_hour == 3.5


def test_an_offer_file_gives_hosting_prices_of_its_region() -> None:
    with OFFER.open(encoding="utf-8") as file:
        offer = read_offer(file.read, "offer.json", "us-east-1")

    assert offer.published == "2026-11-12T18:46:21Z"
    assert [(price.instance, price.usd_hour, price.date) for price in offer.prices] == [
        ("ml.g5.12xlarge", 6.8, "2026-11-01"),
        ("ml.p5.48xlarge", 60.0, "2026-10-01"),
    ]
    assert {price.basis for price in offer.prices} == {"offer file"}


@pytest.mark.parametrize("chunk", [1, 7, 100, 100_000])
def test_it_does_not_matter_how_the_file_arrives(chunk: int) -> None:
    file = io.StringIO(OFFER.read_text(encoding="utf-8"))
    offer = read_offer(lambda _: file.read(chunk), "offer.json", "us-east-1")

    assert [price.usd_hour for price in offer.prices] == [6.8, 60.0]


def test_a_large_offer_is_read_in_small_pieces() -> None:
    longest = 0

    def read(size: int) -> str:
        nonlocal longest
        longest = max(longest, size)
        return next(chunks, "")

    chunks = _large_offer(20_000)
    assert len(read_offer(read, "offer.json", None).prices) == 20_000
    assert longest <= 65536


def _large_offer(count: int) -> Iterator[str]:
    yield '{"offerCode": "AmazonSageMaker", "publicationDate": "2026-11-12T00:00:00Z", '
    yield '"products": {'
    for number in range(count):
        attributes = _attributes(f"ml.x{number}.large")
        yield ("," if number else "") + f'"S{number}": {json.dumps({"attributes": attributes})}'
    yield '}, "terms": {"OnDemand": {'
    for number in range(count):
        yield ("," if number else "") + f'"S{number}": {json.dumps(_term("1.25"))}'
    yield "}}}"


def _attributes(instance: str) -> dict[str, str]:
    return {"component": "Hosting", "instanceName": instance, "regionCode": "us-east-1"}


def _term(usd: str) -> dict[str, Any]:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {"t": {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"d": dimension}}}


@cases("broken_offers", text="")
def test_a_broken_offer_file_says_what_is_wrong(text: str, kept: int | None, why: str) -> None:
    whole = OFFER.read_text()[:kept] if kept else text
    with pytest.raises(OfferFileBroken) as error:
        read_offer(io.StringIO(whole).read, "offer.json", None)

    assert why in str(error.value)


def test_prices_that_are_no_prices_are_left_out() -> None:
    for usd in ("0.0000000000", "-1", "NaN", "Infinity", "seven"):
        document = {
            "offerCode": "AmazonSageMaker",
            "publicationDate": "2026-11-12T00:00:00Z",
            "products": {"S": {"attributes": _attributes("ml.g5.xlarge")}},
            "terms": {"OnDemand": {"S": _term(usd)}},
        }
        with pytest.raises(OfferFileBroken):
            read_offer(io.StringIO(json.dumps(document)).read, "offer.json", None)


@pytest.mark.parametrize("url", ["http://example.com/offer.json", "ftp://127.0.0.1/offer.json"])
def test_prices_do_not_come_over_unprotected_connections(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        refresh_prices("us-east-1", url, tmp_path)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        refresh_prices("us-east-1", str(tmp_path / "none.json"), tmp_path)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": "packager.prices/9"}', '{"a": 1}'])
def test_a_damaged_price_file_costs_no_plan(damage: str, tmp_path: Path) -> None:
    refresh_prices("us-east-1", str(OFFER), tmp_path)
    (tmp_path / "prices" / "eu-west-1.json").write_text(damage)

    assert [price.region for price in load_prices(tmp_path)] == ["us-east-1", "us-east-1"]


def test_the_command_tells_what_changed(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    done = CliRunner().invoke(catalog, ["refresh", "--from", str(OFFER)], env=environment)

    assert done.exit_code == 0
    assert done.stdout.splitlines() == read_tables(__file__)["printed"]
    again = CliRunner().invoke(
        catalog, ["refresh", "--from", str(OFFER), "--format", "json"], env=environment
    )
    assert json.loads(again.stdout)["changes"] == []


def test_a_region_cannot_name_a_path() -> None:
    done = CliRunner().invoke(catalog, ["refresh", "--region", "../../etc"])

    assert isinstance(done.exception, UsageError)


def test_a_refreshed_price_reaches_the_plan_with_its_region_and_date() -> None:
    instance = find_instance("ml.g5.12xlarge")
    newer = replace(user_price(6.8), region="us-east-1", basis="offer file", date="2026-11-01")

    known = priced(instance, "us-east-1", (newer,))
    assert (known.price_usd_hour, known.price_basis) == (6.8, "offer file, us-east-1, 2026-11-01")
    assert priced(instance, "eu-west-1", ()).price_basis == "published, us-west-2, 2026-09"


def test_the_price_of_a_machine_of_ones_own_stays_as_stated() -> None:
    own = replace(find_instance("ml.g5.12xlarge"), price_usd_hour=3.0, price_basis="user")

    assert priced(own, None, (user_price(3.0),)) == own


def test_an_endless_offer_file_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.catalog.price_refresh.LONGEST_BYTES", 10_000)
    (tmp_path / "offer.json").write_text('{"products":{' + " " * 20_000)

    with pytest.raises(OfferFileBroken, match="more than 10000 bytes"):
        refresh_prices("us-east-1", str(tmp_path / "offer.json"), tmp_path)


def test_a_slow_offer_file_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.catalog.price_refresh.LONGEST_S", -1.0)
    (tmp_path / "offer.json").write_text('{"products":{')

    with pytest.raises(Unavailable, match="has not come"):
        refresh_prices("us-east-1", str(tmp_path / "offer.json"), tmp_path)


@cases("an_offer_file_with_a_table_of_a_wrong_type_is_refused")
def test_an_offer_file_with_a_table_of_a_wrong_type_is_refused(text: str) -> None:
    with pytest.raises(OfferFileBroken):
        read_offer(io.StringIO(text).read, "x")
