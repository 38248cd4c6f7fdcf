"""DataCaptureConfig: what of an endpoint's traffic is kept, where, and how it is described.

Beside `s3://BUCKET/PREFIX`, `file:///DIRECTORY` is a destination: one below the directory that the
server's operator has named, for who sends documents does not choose among this machine's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.core.references import parse_bucket_place

FILE = "file://"
_Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCapture:
    """A configuration that captures."""

    percent: int  # of the requests
    destination: str  # s3://BUCKET/PREFIX or file:///DIRECTORY
    kms_key: str
    has_input: bool
    has_output: bool
    json_types: frozenset[str]  # media types, in lower case
    csv_types: frozenset[str]


def read_capture(config: _Document | None) -> DataCapture | None:
    """Return the settings of data capture; None where it is off."""
    if not config or not config.get("EnableCapture", True):
        return None
    modes = {one["CaptureMode"] for one in config["CaptureOptions"]}
    kinds = config.get("CaptureContentTypeHeader") or {}
    return DataCapture(
        percent=config["InitialSamplingPercentage"],
        destination=config["DestinationS3Uri"],
        kms_key=config.get("KmsKeyId") or "",
        has_input=bool(modes & {"Input", "InputAndOutput"}),
        has_output=bool(modes & {"Output", "InputAndOutput"}),
        json_types=_media_types(kinds.get("JsonContentTypes")),
        csv_types=_media_types(kinds.get("CsvContentTypes")),
    )


def check_capture(config: _Document | None, allowed: str) -> None:
    """Refuse a destination that cannot be written; raises `ValidationRefused`.

    `allowed` is the only directory of this machine for captures, "" for none.
    """
    found = read_capture(config)
    if found is None:
        return
    where = f"DataCaptureConfig.DestinationS3Uri {found.destination!r}"
    if found.destination.startswith(FILE):
        folder = Path(found.destination.removeprefix(FILE))
        if not folder.is_absolute() or ".." in folder.parts:
            raise ValidationRefused(f"{where} is no absolute path: write file:///DIRECTORY.")
        if not allowed or not folder.resolve().is_relative_to(Path(allowed).resolve()):
            raise ValidationRefused(
                f"{where} is not below a directory that the server allows: it has --capture-dir "
                "for that."
            )
        if not folder.is_dir():
            raise ValidationRefused(f"{where} names no directory of this machine: make it first.")
        if found.kms_key:
            raise ValidationRefused("DataCaptureConfig.KmsKeyId needs a bucket as destination.")
    elif parse_bucket_place(found.destination) is None:
        raise ValidationRefused(f"{where} is not s3://BUCKET/PREFIX, nor file:///DIRECTORY.")


def summary_of(config: _Document | None, *, is_stopped: bool) -> dict[str, Any] | None:
    """Return DataCaptureConfigSummary; None without a capture configuration."""
    if not config:
        return None
    captures = bool(config.get("EnableCapture", True))
    return {
        "EnableCapture": captures,
        "CaptureStatus": "Started" if captures and not is_stopped else "Stopped",
        "CurrentSamplingPercentage": config["InitialSamplingPercentage"],
        "DestinationS3Uri": config["DestinationS3Uri"],
        "KmsKeyId": config.get("KmsKeyId") or "",
    }


def _media_types(given: list[str] | None) -> frozenset[str]:
    return frozenset(one.partition(";")[0].strip().lower() for one in given or ())
