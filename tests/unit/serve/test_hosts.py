"""Addresses to listen at, names that a server on loopback answers to, pages of other sites."""

from __future__ import annotations

import pytest

from packager.errors import UsageError
from packager.serve.hosts import Listen, check_host, check_origin, parse_listen
from packager.serve.refusals import ForeignHost
from tests.support.cases import cases


@pytest.mark.parametrize(
    ("text", "listen", "loopback"),
    [
        ("127.0.0.1:8470", Listen("127.0.0.1", 8470), True),
        ("localhost:0", Listen("127.0.0.1", 0), True),
        (":8470", Listen("127.0.0.1", 8470), True),
        ("[::1]:1", Listen("::1", 1), True),
        ("127.8.9.1:1", Listen("127.8.9.1", 1), True),
        ("0.0.0.0:8443", Listen("0.0.0.0", 8443), False),
        ("[::]:8443", Listen("::", 8443), False),
        ("10.0.0.5:1", Listen("10.0.0.5", 1), False),
        ("build.example:1", Listen("build.example", 1), False),
        ("[::ffff:127.0.0.1]:1", Listen("::ffff:127.0.0.1", 1), False),
    ],
)
def test_an_address_is_read_and_judged(text: str, listen: Listen, loopback: bool) -> None:
    assert parse_listen(text) == listen
    assert listen.is_loopback is loopback


@pytest.mark.parametrize(
    "text",
    ["", "8470", "127.0.0.1", "a:b", "a:99999", "http://a:1", "a:1/x", "a@b:1", "a b:1", "[::1:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid address"):
        parse_listen(text)


def test_an_address_that_stands_for_all_is_none_to_connect_to() -> None:
    assert Listen("0.0.0.0", 1).is_any and Listen("::", 1).is_any
    assert not Listen("127.0.0.1", 1).is_any and not Listen("build.example", 1).is_any


def test_an_address_of_six_is_written_in_brackets() -> None:
    assert Listen("::1", 8470).url("http") == "http://[::1]:8470"


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8470", "127.0.0.1", "localhost:1", "[::1]:8470", "a.localhost", "LOCALHOST"]
)
def test_names_of_this_machine_are_answered(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "rebound.example:8470",
        "10.0.0.1",
        "0.0.0.0",
        "localhost.example",
        "127.0.0.1.nip.io",
    ]
    + ["a@127.0.0.1@evil.example", "[::1", "notlocalhost"],
)
def test_a_name_that_was_pointed_at_this_machine_is_refused(host: str | None) -> None:
    with pytest.raises(ForeignHost):
        check_host(host)


def test_programs_and_our_own_pages_are_answered() -> None:
    check_origin("POST", "127.0.0.1:8470", None, None)
    check_origin("POST", "127.0.0.1:8470", "http://127.0.0.1:8470", "same-origin")
    check_origin("GET", "127.0.0.1:8470", None, "cross-site")  # a link of another page to ours
    check_origin("GET", "127.0.0.1:8470", None, "none")


@pytest.mark.parametrize(*cases(__file__, "origins"))
def test_pages_of_other_origins_are_refused(origin: str | None, site: str | None) -> None:
    with pytest.raises(ForeignHost):
        check_origin("POST", "127.0.0.1:8470", origin, site)


def test_a_page_of_another_origin_reads_nothing_either() -> None:
    with pytest.raises(ForeignHost):
        check_origin("GET", "127.0.0.1:8470", "http://evil.example", "cross-site")
