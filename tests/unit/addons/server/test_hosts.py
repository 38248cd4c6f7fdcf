"""Addresses to listen at, names that a server on loopback answers to, pages of other sites."""

from __future__ import annotations

import pytest

from packager.addons.server.hosts import Listen, check_host, check_origin, parse_listen
from packager.core.errors import UsageError
from tests.support.cases import cases
from tests.support.refusals import raises_code


@cases("addresses")
def test_an_address_is_read_and_judged(text: str, host: str, port: int, loopback: bool) -> None:
    assert parse_listen(text) == Listen(host, port)
    assert Listen(host, port).is_loopback is loopback


@cases("what_is_no_address_is_refused")
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid address"):
        parse_listen(text)


def test_an_address_that_stands_for_all_is_none_to_connect_to() -> None:
    assert Listen("0.0.0.0", 1).is_any and Listen("::", 1).is_any
    assert not Listen("127.0.0.1", 1).is_any and not Listen("build.example", 1).is_any


def test_an_address_of_six_is_written_in_brackets() -> None:
    assert Listen("::1", 8470).url("http") == "http://[::1]:8470"


@cases("names_of_this_machine_are_answered")
def test_names_of_this_machine_are_answered(host: str) -> None:
    check_host(host)


@cases("strangers")
def test_a_name_that_was_pointed_at_this_machine_is_refused(host: str | None) -> None:
    with raises_code("AccessDeniedException"):
        check_host(host)


def test_programs_and_our_own_pages_are_answered() -> None:
    check_origin("POST", "127.0.0.1:8470", None, None)
    check_origin("POST", "127.0.0.1:8470", "http://127.0.0.1:8470", "same-origin")
    check_origin("GET", "127.0.0.1:8470", None, "cross-site")  # a link of another page to ours
    check_origin("GET", "127.0.0.1:8470", None, "none")


@cases("origins")
def test_pages_of_other_origins_are_refused(origin: str | None, site: str | None) -> None:
    with raises_code("AccessDeniedException"):
        check_origin("POST", "127.0.0.1:8470", origin, site)


def test_a_page_of_another_origin_reads_nothing_either() -> None:
    with raises_code("AccessDeniedException"):
        check_origin("GET", "127.0.0.1:8470", "http://evil.example", "cross-site")
