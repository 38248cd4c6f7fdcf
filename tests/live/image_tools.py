"""Programs of others that read images."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import need


def skopeo(*words: str) -> str:
    """Run skopeo, which must succeed; return what it printed, byte for byte."""
    return _ran("skopeo", *words)


def inspected(reference: str, *, raw: bool = False) -> Any:
    """Return what skopeo says of an image, or its manifest as it is stored."""
    insecure = () if reference.startswith("oci:") else ("--tls-verify=false",)
    printed = skopeo("inspect", *(("--raw",) if raw else ()), *insecure, reference)
    return printed if raw else json.loads(printed)


def unpacked(image: str, place: Path) -> Path:
    """Have umoci unpack an image of a layout; return the root of its files."""
    _ran("umoci", "unpack", "--image", image, str(place))
    return place / "rootfs"


def _ran(program: str, *words: str) -> str:
    done = subprocess.run([need(program), *words], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
