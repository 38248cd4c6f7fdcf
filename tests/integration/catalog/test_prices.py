"""Shipped prices, and those of an offer file as AWS writes it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from packager.catalog.instances import find_instance
from packager.catalog.offer_file import OfferFileBroken
from packager.catalog.price_file import load_prices
from packager.catalog.price_refresh import refresh_prices
from packager.catalog.prices import price_of, prices
from packager.errors import NotFound, Unavailable
from tests.unit.catalog.test_prices import OFFER


@contextmanager
def serving(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """Serve bytes by path on a loopback port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, b""))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/offer.json")
            self.send_header("Content-Length", str(len(OFFER.read_bytes()) if body else 0))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_refreshed_prices_are_used_afterwards(tmp_path: Path) -> None:
    with serving({"/offer.json": (200, OFFER.read_bytes())}) as url:
        refresh_prices("us-east-1", f"{url}/offer.json", tmp_path)
    refreshed = load_prices(tmp_path)
    price = price_of(find_instance("ml.g5.12xlarge"), "us-east-1", refreshed)

    assert price is not None
    assert (price.usd_hour, price.basis, price.date) == (6.8, "offer file", "2026-11-01")
    assert price.source == "http://127.0.0.1/offer.json"
    replaced = [found for found in prices(refreshed) if found.instance == "ml.g5.12xlarge"]
    assert sorted((found.region, found.usd_hour) for found in replaced) == [
        ("us-east-1", 6.8),
        ("us-west-2", 7.09),
    ]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/cut.json", OfferFileBroken),
        ("/none.json", NotFound),
        ("/busy.json", Unavailable),
        ("/moved.json", Unavailable),
    ],
)
def test_old_prices_outlive_a_refresh(path: str, error: type[Exception], tmp_path: Path) -> None:
    refresh_prices("us-east-1", str(OFFER), tmp_path)
    before = load_prices(tmp_path)
    answers = {
        "/offer.json": (200, OFFER.read_bytes()),
        "/cut.json": (200, OFFER.read_bytes()[:1500]),
        "/busy.json": (503, b""),
        "/moved.json": (302, b""),
    }
    with serving(answers) as url, pytest.raises(error):
        refresh_prices("us-east-1", url + path, tmp_path)

    assert load_prices(tmp_path) == before != ()
    assert [path.name for path in (tmp_path / "prices").iterdir()] == ["us-east-1.json"]


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with serving({}) as url:
        pass
    with pytest.raises(Unavailable) as error:
        refresh_prices("us-east-1", f"{url}/offer.json", tmp_path)

    assert "name it with --from" in error.value.hint
