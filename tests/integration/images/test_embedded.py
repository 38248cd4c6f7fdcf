"""Building the serving bases: what an interrupt does to the builder."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.places import ROOT

BUILDER = """
import pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    (here / "half-a-base").touch()
    time.sleep(600)
finally:
    time.sleep(0.5)
    (here / "half-a-base").unlink()
"""


ASKING = """
import sys
from pathlib import Path
from packager.images.bases import embedded
embedded._builder = lambda name, platform: Path(sys.argv[1])
embedded.build_base("vllm-cpu")
"""


def test_an_interrupted_base_build_leaves_no_half_built_base(tmp_path: Path) -> None:
    """In a process of its own: here, an interrupt may come where Python has to ignore it."""
    (tmp_path / "build-base").write_text(BUILDER)
    command = [sys.executable, "-c", ASKING, str(tmp_path / "build-base")]
    asking = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (tmp_path / "half-a-base").exists():
        assert asking.poll() is None
        time.sleep(0.01)

    asking.send_signal(signal.SIGINT)

    assert asking.wait(120) == -signal.SIGINT
    assert [path.name for path in tmp_path.iterdir()] == ["build-base"]
