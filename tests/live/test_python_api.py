"""`packager.evaluate` and `packager.tune` as a program calls them, on tiny-llama."""

from __future__ import annotations

from pathlib import Path

import pytest

import packager
from tests.live.tiny_images import TINY_ENGINE
from tests.support.commandline import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "PACKAGER_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))


def test_what_quantizing_cost_is_told(
    quantizing_fast: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in quantizing_fast.items():
        monkeypatch.setenv(name, value)
    small = tmp_path / "small"
    packager.build(TINY, "local", base="scratch", quantize="fp8", output=f"dir:{small}")

    report = packager.evaluate(TINY, small, samples=4, max_tokens=64)

    assert report.quality.kld_mean is not None
    assert 0 < report.quality.kld_mean < 0.1
    assert "KLD" in repr(report)


@pytest.mark.xdist_group("engine")
def test_the_best_build_is_found_by_measuring(tiny_base: str, engine: str, tmp_path: Path) -> None:
    report = packager.tune(
        TINY,
        "local",
        base=f"docker:{TINY_ENGINE}",
        goal="throughput",
        quantize="none",
        vary={"max_batch": ["4", "8"]},
        workload="16:8",
        concurrency=(2,),
        requests=4,
        rounds=2,
        journal=tmp_path / "journal.jsonl",
    )

    assert report.best is not None
    assert "best" in repr(report)
