"""Documents of strangers: one meaning, within limits of size, depth, numbers and time."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from packager.core.documents import NotStrict, parse_toml


@pytest.mark.extended
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b".".join([b"a"] * 20_000) + b" = 1", id="one long key"),
        pytest.param(
            b"["
            + b".".join([b"a"] * 60)
            + b"]\n"
            + b"\n".join(b"k%d=1" % n for n in range(100_000)),
            id="many lines below a deep table",
        ),
        pytest.param(
            b"\n".join(b".".join([b"k%d" % n] + [b"a"] * 62) + b" = 1" for n in range(7000)),
            id="many deep keys",
        ),
        pytest.param(b"a = [" + b"1," * 500_000 + b"]", id="many numbers"),
        pytest.param(b"[[a]]\n" * 170_000, id="many tables"),
        pytest.param(b'"' * 1_000_000, id="quotes"),
    ],
)
def test_no_toml_costs_more_than_seconds(data: bytes) -> None:
    before = time.process_time()

    with suppress(NotStrict):
        parse_toml(data)

    assert time.process_time() - before < 30  # a megabyte of dotted keys took many minutes
