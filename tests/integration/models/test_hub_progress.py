"""Bytes that a download from a hub tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.models.hub import HubSource
from packager.models.reference import parse_model_reference
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model


def test_a_download_tells_how_far_it_is_and_draws_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    files = {path.name: path.read_bytes() for path in write_model(tmp_path / "up").iterdir()}
    seen: list[tuple[int, int]] = []
    with FakeHub() as hub:
        hub.add("acme/tiny", files)
        source = HubSource(
            endpoint=hub.url,
            cache_dir=tmp_path / "hub",
            on_bytes=lambda done, size, kept=0: seen.append((done, size)),
        )
        source.facts(parse_model_reference("acme/tiny"))
        told = len(seen)
        source.facts(parse_model_reference("acme/tiny"))

    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    done, size = seen[-1]
    assert done == size > max(len(data) for data in files.values())
    assert len(seen) == told  # nothing is downloaded again
    assert capfd.readouterr().err == ""
