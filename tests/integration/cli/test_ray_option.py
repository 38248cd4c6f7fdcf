"""`--executor ray`: refused before any work where it cannot end well. No cluster here."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from packager.core.errors import Unavailable
from packager.optimize.steps.ray.connection import join_cluster


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_an_address_at_which_nothing_listens_is_refused_within_seconds() -> None:
    """Ray itself tries for a minute and a half, and writes its own log meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(Unavailable, match="no Ray cluster answers at") as caught:
            join_cluster(address, {})

    assert "HOST:PORT" in caught.value.hint
