"""Settings of a capture, as images and fronts find them in a variable of their environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.capture.files import CaptureFiles, CaptureLimits
from packager.core.capture.keeping import OPT_OUT, Capture
from packager.core.capture.recorder import CapturePlace, Recorder
from packager.core.capture.redaction import RedactCommand, redact_text
from packager.core.capture.rows import Options

VARIABLE = "PACKAGER_CAPTURE"  # its value is the document of `CaptureSettings`
DIRECTORY = "/packager-capture"  # in containers: where the directory of captures is mounted
REDACT_FILE = "/packager-redact"  # and the program that redacts rows
MODULES = "/packager-capture-modules"  # and the directory with these modules for a server
MODULE_DIR = "packager/core/capture"  # below it
MIDDLEWARE = "capture_adapter.CaptureAdapter"  # that a vLLM server loads from there
SHARE = 0.1
OFF = "off"
# Paths whose requests and answers are rows; all else, such as /metrics, is never looked at.
PATHS = frozenset(
    ("/v1/chat/completions", "/v1/completions", "/invocations", "/generate", "/generate_stream")
)
_JSON = frozenset(("application/json",))
_OPT_OUT = OPT_OUT.lower().encode()


@dataclass(frozen=True)
class CaptureSettings:
    """What is captured, and where to."""

    directory: str = DIRECTORY
    name: str = "model/all"  # folders below it, as `ENDPOINT/VARIANT`
    share: float = SHARE  # of the conversations
    command: str = ""  # program that redacts rows, after the shapes were
    max_bytes: int = 0  # of all files below the directory; 0: 1 GiB
    max_age_s: float = 0.0  # of a file; 0: 14 days

    def text(self) -> str:
        """Return the value of the variable."""
        document = {name: value for name, value in vars(self).items() if value}
        return json.dumps({"share": 0.0, **document}, sort_keys=True)


def read_settings(text: str) -> CaptureSettings | None:
    """Read the variable's value; None where it is empty or `off`.

    Raises `ValueError` for another value than `CaptureSettings.text` returns.
    """
    if text.strip().lower() in ("", OFF):
        return None
    document = json.loads(text)
    kinds = {name: type(value) for name, value in vars(CaptureSettings()).items()}
    if not isinstance(document, dict) or document.keys() - kinds.keys():
        raise ValueError(f"it is no object with fields of {', '.join(kinds)}")
    made = {name: kinds[name](value) for name, value in document.items()}
    if not 0 <= made.get("share", SHARE) <= 1:
        raise ValueError("its share is not from 0 to 1")
    return CaptureSettings(**made)


def open_capture(settings: CaptureSettings) -> Capture:
    """Return the capture; its thread begins with the first exchange."""
    plain = CaptureLimits()
    limits = CaptureLimits(
        root_bytes=settings.max_bytes or plain.root_bytes,
        age_s=settings.max_age_s or plain.age_s,
    )
    command = RedactCommand([settings.command]) if settings.command else None
    return Capture(
        recorder=Recorder(CaptureFiles(limits), redact=redact_text, command=command),
        place=CapturePlace(Path(settings.directory), settings.name),
        options=Options(json_types=_JSON, share=settings.share),
        percent=100,
    )


def is_captured(method: bytes, path: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request may become a row; names of headers are in lower case.

    A compressed body is none: it could not be redacted.
    """
    return (
        method == b"POST"
        and path.partition(b"?")[0].decode("latin-1") in PATHS
        and headers.get(_OPT_OUT, b"").strip().lower() != OFF.encode()
        and not headers.get(b"content-encoding")
    )


def metric_lines(counts: Mapping[str, int]) -> str:
    """Return a recorder's counts as lines for Prometheus."""
    lost: Any = {name[8:]: one for name, one in counts.items() if name.startswith("dropped-")}
    lines = [
        f"packager_capture_{name}_total {counts.get(name, 0)}" for name in ("rows", "bytes")
    ] + [f'packager_capture_dropped_total{{reason="{name}"}} {lost[name]}' for name in sorted(lost)]
    return "".join(f"{line}\n" for line in lines)
