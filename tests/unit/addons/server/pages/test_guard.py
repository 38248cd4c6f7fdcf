"""Who may use the pages."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from packager.addons.server.pages.guard import COOKIE, FormGuard, PageRefused
from tests.support.cases import cases_of

cases = cases_of(__file__)


class Transport:
    """A connection from an address."""

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.peer, 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return False


def check(peer: str, host: str) -> None:
    request = make_mocked_request("GET", "/ui/jobs", {"Host": host}, transport=Transport(peer))
    FormGuard().check(request)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost:8470", "127.0.0.1:8470", "[::1]:8470", "localhost"])
def test_this_machine_may(peer: str, host: str) -> None:
    check(peer, host)


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.168.1.2", "2001:db8::1", "::ffff:10.0.0.7", ""])
def test_other_machines_may_not(peer: str) -> None:
    with pytest.raises(PageRefused, match="answer only this machine") as refused:
        check(peer, "localhost:8470")
    assert refused.value.status == 403


@cases("names_that_strangers_point_here_are_refused")
def test_names_that_strangers_point_here_are_refused(host: str) -> None:
    with pytest.raises(PageRefused, match="not served as"):
        check("127.0.0.1", host)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@cases("loads")
def test_another_site_may_link_to_pages_and_not_load_them(
    site: str, mode: str, kind: str, may: bool
) -> None:
    headers = {
        "Host": "localhost:8470",
        "Sec-Fetch-Site": site,
        "Sec-Fetch-Mode": mode,
        "Sec-Fetch-Dest": kind,
    }
    request = make_mocked_request("GET", "/ui", headers, transport=Transport("127.0.0.1"))

    if may:
        FormGuard().check(request)
        return
    with pytest.raises(PageRefused, match="not parts of another site's") as refused:
        FormGuard().check(request)
    assert refused.value.status == 403


def test_a_token_is_of_one_session_and_one_server() -> None:
    guard = FormGuard()

    assert guard.token("a") == guard.token("a")
    assert len({guard.token("a"), guard.token("b"), FormGuard().token("a")}) == 3


def test_a_cookie_that_is_not_ours_is_replaced() -> None:
    request = make_mocked_request("GET", "/ui", {"Cookie": f"{COOKIE}=short"})

    assert len(FormGuard().session(request)) == 43
