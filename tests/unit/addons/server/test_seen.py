"""Signatures that were used are remembered for as long as they could be used again."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from packager.addons.server.used_signatures import SeenSignatures

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_signature_is_used_once_while_it_is_valid(tmp_path: Path) -> None:
    seen = SeenSignatures(tmp_path / "signatures")

    assert seen.use("a", NOON)
    assert not seen.use("a", NOON)
    assert not seen.use("a", NOON + timedelta(minutes=10))  # signed five minutes ahead of us
    assert seen.use("b", NOON)
    seen.close()


def test_old_signatures_take_no_room(tmp_path: Path) -> None:
    seen = SeenSignatures(tmp_path / "signatures")
    for number in range(100):
        seen.use(str(number), NOON)
    seen.use("last", NOON + timedelta(hours=1))

    assert seen.count() == 1
    seen.close()


def test_of_many_that_use_one_signature_one_may(tmp_path: Path) -> None:
    seen = SeenSignatures(tmp_path / "signatures")
    outcomes: list[bool] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(seen.use("a", NOON))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == [False] * 7 + [True]
    seen.close()


def test_another_server_remembers_them(tmp_path: Path) -> None:
    before = SeenSignatures(tmp_path / "signatures")
    before.use("a", NOON)

    after = SeenSignatures(tmp_path / "signatures")  # as after a kill: no close

    assert not after.use("a", NOON)
    before.close()
    after.close()
