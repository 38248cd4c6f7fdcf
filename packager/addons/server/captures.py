"""Data Capture of endpoints: records of invocations, written and uploaded.

Rows of a bucket go to a folder of the server's state first, one for each destination; complete
files are uploaded from there with the server's credentials, and removed. A new server continues
with the files of an earlier one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.addons.server.sagemaker.data_capture import FILE, DataCapture, read_capture
from packager.core.capture.files import CaptureFiles, CaptureLimits, adopt, complete_files
from packager.core.capture.keeping import Capture
from packager.core.capture.recorder import CapturePlace, Recorder
from packager.core.capture.redaction import RedactCommand
from packager.core.capture.rows import Options, Redact
from packager.core.errors import PackagerError
from packager.core.references import parse_bucket_place

COMPLETE_S = 20.0  # notebooks wait a minute or two for the first file
_LOOK_S = 2.0
_LONGEST_PAUSE_S = 300.0  # between attempts to reach a bucket
_DESTINATION = "destination.json"

_log = logging.getLogger(__name__)
Put = Callable[[str, str, Path, str], None]  # bucket, key, file, key of KMS


class Captures:
    """Captures of one server's endpoints; `of` is called in its event loop."""

    def __init__(
        self,
        spool: Path,
        *,
        redact: Redact | None,
        command: RedactCommand | None,
        put: Put,
        complete_s: float = COMPLETE_S,
    ) -> None:
        self._spool = spool
        self._files = CaptureFiles(CaptureLimits(file_s=complete_s))
        self._recorder = Recorder(self._files, redact=redact, command=command)
        self._uploads = CaptureUploads(spool, put)

    def start(self) -> None:
        """Upload the files of an earlier server."""
        if self._spool.is_dir():
            self._uploads.adopt()

    def of(self, endpoint: str, variant: str, config: Mapping[str, Any] | None) -> Capture | None:
        """Return the capture of a variant; None where its endpoint's configuration has none."""
        asked = read_capture(config)
        if asked is None:
            return None
        return Capture(
            recorder=self._recorder,
            place=CapturePlace(self._root(asked), f"{endpoint}/{variant}"),
            options=Options(
                has_input=asked.has_input,
                has_output=asked.has_output,
                json_types=asked.json_types,
                csv_types=asked.csv_types,
            ),
            percent=asked.percent,
        )

    def complete(self, endpoint: str, config: Mapping[str, Any] | None) -> None:
        """Complete the files of an endpoint that ends, or is updated."""
        asked = read_capture(config)
        if asked is not None:
            self._recorder.complete(CapturePlace(self._root(asked), f"{endpoint}/"))

    def is_stopped(self, config: Mapping[str, Any] | None) -> bool:
        """Return whether a full disk, or the limit of all captures, has ended these."""
        asked = read_capture(config)
        return asked is not None and self._recorder.is_full(self._root(asked))

    def counts(self) -> dict[str, int]:
        """Return how many rows were written, and dropped by reason, since the server started."""
        return self._recorder.counts()

    def close(self) -> None:
        """Write what is queued; the next server uploads files that remain."""
        self._recorder.close()
        self._uploads.close()

    def _root(self, asked: DataCapture) -> Path:
        """Return where rows of a destination are written."""
        if asked.destination.startswith(FILE):
            return Path(asked.destination.removeprefix(FILE))
        return self._uploads.folder(asked.destination, asked.kms_key)


class CaptureUploads:
    """Moves complete files below a spool to the buckets that they are meant for."""

    def __init__(self, spool: Path, put: Put) -> None:
        self._spool = spool
        self._put = put
        self._known: dict[tuple[str, str], Path] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def folder(self, destination: str, kms_key: str) -> Path:
        """Return the folder of a destination, made where it is missing."""
        found = self._known.get((destination, kms_key))
        if found is None:
            document = json.dumps({"uri": destination, "kms_key": kms_key})
            found = self._spool / hashlib.sha256(document.encode()).hexdigest()[:16]
            found.mkdir(parents=True, exist_ok=True, mode=0o700)
            (found / _DESTINATION).write_text(document, encoding="utf-8")
            self._known[destination, kms_key] = found
            self._begin()
        return found

    def adopt(self) -> None:
        """Complete and upload files that a killed server left."""
        for part in self._spool.rglob("*.part"):
            adopt(part)
        for folder, _, _ in os.walk(self._spool, topdown=False):
            with suppress(OSError):  # one that is not empty
                Path(folder).rmdir()
        self._begin()

    def close(self) -> None:
        """Upload once more, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="capture-upload", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        pause_s = _LOOK_S
        while True:
            is_last = self._stop.wait(pause_s)
            try:
                self._upload_all()
                pause_s = _LOOK_S
            except (PackagerError, OSError) as error:
                reason = error.message if isinstance(error, PackagerError) else repr(error)
                _log.warning("captures wait for their bucket: %s", reason)
                pause_s = min(pause_s * 4, _LONGEST_PAUSE_S)
            if is_last:
                return

    def _upload_all(self) -> None:
        """Upload every complete file; raise an error after all were tried."""
        failed: Exception | None = None
        for folder in self._spool.glob("*/"):
            try:
                document = json.loads((folder / _DESTINATION).read_text(encoding="utf-8"))
                place = parse_bucket_place(document["uri"])
                assert place is not None
                prefix = f"{place.key.strip('/')}/" if place.key.strip("/") else ""
                for path in complete_files(folder):
                    key = f"{prefix}{path.relative_to(folder).as_posix()}"
                    self._put(place.bucket, key, path, document["kms_key"])
                    path.unlink()
            except (PackagerError, OSError, ValueError) as error:
                failed = error
        if failed is not None:
            raise failed


def put_file(bucket: str, key: str, path: Path, kms_key: str) -> None:
    """Upload a file with the server's credentials; raises a `PackagerError`."""
    from packager.core.remote.s3_write import WritableBucket

    encrypted = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    with path.open("rb") as file:
        WritableBucket(bucket).call("put_object", Key=key, Body=file, **encrypted)
