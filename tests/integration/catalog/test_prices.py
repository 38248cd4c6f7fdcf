"""Shipped prices, and those of an offer file as AWS writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.catalog.instances import find_instance
from packager.catalog.offer_file import OfferFileBroken
from packager.catalog.price_file import load_prices
from packager.catalog.price_refresh import refresh_prices
from packager.catalog.prices import price_of, prices
from packager.core.errors import NotFound, Unavailable
from tests.support.cases import cases
from tests.support.doubles.http import Handler, serving
from tests.support.known import known
from tests.unit.catalog.test_prices import OFFER


class Offers(Handler):
    """Answers by path; one that is cut has the length of the whole file."""

    def do_GET(self) -> None:
        status, body = self.server.double.get(self.path, (404, b""))  # type: ignore[attr-defined]
        length = len(OFFER.read_bytes()) if body else 0
        self.head(status, {"Location": "/offer.json", "Content-Length": str(length)})
        self.wfile.write(body)
        self.close_connection = True


def test_refreshed_prices_are_used_afterwards(tmp_path: Path) -> None:
    with serving(Offers, {"/offer.json": (200, OFFER.read_bytes())}) as server:
        refresh_prices("us-east-1", f"{server.url}/offer.json", tmp_path)
    refreshed = load_prices(tmp_path)
    price = known(price_of(find_instance("ml.g5.12xlarge"), "us-east-1", refreshed))

    assert (price.usd_hour, price.basis, price.date) == (6.8, "offer file", "2026-11-01")
    assert price.source == "http://127.0.0.1/offer.json"
    replaced = [found for found in prices(refreshed) if found.instance == "ml.g5.12xlarge"]
    assert sorted((found.region, found.usd_hour) for found in replaced) == [
        ("us-east-1", 6.8),
        ("us-west-2", 7.09),
    ]


ERRORS = {one.__name__: one for one in (OfferFileBroken, NotFound, Unavailable)}


@cases("failures")
def test_old_prices_outlive_a_refresh(path: str, error: str, tmp_path: Path) -> None:
    refresh_prices("us-east-1", str(OFFER), tmp_path)
    before = load_prices(tmp_path)
    answers = {
        "/offer.json": (200, OFFER.read_bytes()),
        "/cut.json": (200, OFFER.read_bytes()[:1500]),
        "/busy.json": (503, b""),
        "/moved.json": (302, b""),
    }
    with serving(Offers, answers) as server, pytest.raises(ERRORS[error]):
        refresh_prices("us-east-1", server.url + path, tmp_path)

    assert load_prices(tmp_path) == before != ()
    assert [path.name for path in (tmp_path / "prices").iterdir()] == ["us-east-1.json"]


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with serving(Offers, {}) as server:
        pass
    with pytest.raises(Unavailable) as error:
        refresh_prices("us-east-1", f"{server.url}/offer.json", tmp_path)

    assert "name it with --from" in error.value.hint
