"""Sizes as people write them."""

from __future__ import annotations

import pytest

from packager.core.units import decimal, parse_rate, parse_size
from tests.support.cases import cases


@cases("a_size_is_read")
def test_a_size_is_read(written: object, expected: int) -> None:
    assert parse_size(written) == expected


@pytest.mark.parametrize("written", ["", "GiB", "4 GiBs", "-1GiB", "1e9", "4G", "9" * 40])
def test_what_is_no_size_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(written)


@cases("a_size_is_never_a_thousand_of_its_unit")
def test_a_size_is_never_a_thousand_of_its_unit(size: int, shown: str) -> None:
    assert decimal(size) == shown


@cases("speeds_are_read_in_bits_and_bytes")
def test_speeds_are_read_in_bits_and_bytes(written: str, bytes_s: float) -> None:
    assert parse_rate(written) == bytes_s


@pytest.mark.parametrize("written", ["", "10", "fast", "-1Gbit", "0Gbit", "1e9Gbit", "nanGbit"])
def test_what_is_no_speed_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a speed"):
        parse_rate(written)
