"""What all requests hold together."""

from __future__ import annotations

import pytest

from packager.addons.server import bodies
from packager.addons.server.bodies import Held


def test_what_is_held_is_given_back_at_the_end_also_of_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MAX_HELD_BYTES", 100)
    held = Held()

    with held.part() as first, held.part() as second:
        assert first.grow(60)
        assert not second.grow(41)
        assert second.size == 0
        assert second.grow(40)
        assert not first.grow(1)
    with held.part() as third:
        assert third.grow(100)
