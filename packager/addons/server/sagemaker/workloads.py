"""Workload configurations of AI benchmark and recommendation jobs.

A configuration holds a workload specification, as text, and where its data set is.  Both are kept
as they were written, and read again when a job begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.addons.bench.workload_spec import WorkloadSpec, parse_workload_spec
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.sources import is_argument
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.references import parse_bucket_place

SPEC_FILE = "workload.json"  # in the folder of a job; YAML, too, in spite of its name
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_CHANNELS = "/opt/ml/input/data/"  # where a job of AWS sees its channels
_WHERE = "AIWorkloadConfigs.WorkloadSpec.Inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig:
    """A workload configuration, read."""

    spec: WorkloadSpec
    text: bytes  # of the specification
    template: str = ""  # s3://… of the request template, "" where none is in a bucket
    data: str = ""  # s3://… or a path of the server's, of the requests to send; "" for made ones


def read_workload_config(
    body: Mapping[str, Any], datasets: Sequence[tuple[str, str]] = ()
) -> WorkloadConfig:
    """Read the body of CreateAIWorkloadConfig; raise `ValidationRefused`.

    `datasets` are the public data sets that the server has, by name.
    """
    inline = ((body.get("AIWorkloadConfigs") or {}).get("WorkloadSpec") or {}).get("Inline")
    if not inline:
        raise ValidationRefused(
            f"{_WHERE} is missing",
            hint='write {"benchmark": {"type": "aiperf"}, "parameters": {…}}',
        )
    try:
        text = inline.encode()
        spec = parse_workload_spec(text, _WHERE)
    except UnicodeEncodeError as error:
        raise ValidationRefused(f"{_WHERE} is not Unicode text", hint="write UTF-8") from error
    except UsageError as error:
        raise ValidationRefused(error.message, hint=error.hint) from error
    _check_tokenizer(spec)
    channels = _channels_of(body)
    template = _template_of(spec, channels)
    data = _data_of(channels)
    if spec.dataset:
        data = _mapped(spec.dataset, data, dict(datasets))
    if spec.needs_data and not data:
        raise ValidationRefused(
            f"the requests of {_WHERE} are those of a data set, and none is named",
            hint="add DatasetConfig.InputDataConfig with one channel",
        )
    return WorkloadConfig(spec=spec, text=text, template=template, data=data)


def _check_tokenizer(spec: WorkloadSpec) -> None:
    """Refuse paths: clients must not read files of this machine."""
    if spec.tokenizer and not _HUB_ID.fullmatch(spec.tokenizer):
        raise ValidationRefused(
            f"the tokenizer {shorten(spec.tokenizer, 200)} is not the id of a model on a hub",
            hint="write ORG/NAME, or leave it out: servers count tokens themselves",
        )


def _mapped(name: str, data: str, datasets: Mapping[str, str]) -> str:
    """Return the address of a public data set, as the server's operator maps it."""
    if data:
        raise ValidationRefused(
            "the workload has both public_dataset and DatasetConfig", hint="give one of them"
        )
    if name not in datasets:
        raise ValidationRefused(
            f"the public data set {shorten(name, 96)} is not mapped, and nothing is downloaded",
            hint=f"start the server with --dataset {name}=FILE, or give DatasetConfig",
        )
    return datasets[name]


def _channels_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the places of a configuration's channels, by their names."""
    found: dict[str, str] = {}
    for channel in (body.get("DatasetConfig") or {}).get("InputDataConfig") or []:
        place = (channel["DataSource"].get("S3DataSource") or {}).get("S3Uri", "")
        parsed = parse_bucket_place(place)
        if parsed is None or not parsed.bucket or not parsed.key or not is_argument(place):
            raise ValidationRefused(
                f"the data set {shorten(place, 200)} is not a place in S3",
                hint="write s3://BUCKET/PREFIX/, or s3://BUCKET/FILE.jsonl",
            )
        name = str(channel.get("ChannelName") or "")
        if name in found:
            raise ValidationRefused(
                f"DatasetConfig.InputDataConfig has two channels named {shorten(name, 100)}",
                hint="name one place in each",
            )
        found[name] = place
    return found


def _template_of(spec: WorkloadSpec, channels: dict[str, str]) -> str:
    """Remove and return the channel of the template; refuse a path of this machine."""
    if not spec.template_file:
        return ""
    channel, _, name = spec.template_file.removeprefix(_CHANNELS).partition("/")
    inside = spec.template_file.startswith(_CHANNELS) and name and ".." not in name.split("/")
    if not inside or channel not in channels:
        raise ValidationRefused(
            f"payload_template {shorten(spec.template_file, 200)} is not a file of a channel",
            hint=f"write {_CHANNELS}CHANNEL/FILE, with that channel in "
            "DatasetConfig.InputDataConfig, or the template itself",
        )
    place = channels.pop(channel)
    if place.endswith("/") or not place.endswith(f"/{name}"):
        place = f"{place.rstrip('/')}/{name}"
    if not is_argument(place):
        raise ValidationRefused(
            f"payload_template {shorten(spec.template_file, 200)} is not the name of a file",
            hint="use letters, digits, dots, dashes",
        )
    return place


def _data_of(channels: Mapping[str, str]) -> str:
    if len(channels) > 1:
        raise ValidationRefused(
            f"DatasetConfig.InputDataConfig has {len(channels)} channels, expected one",
            hint="name one data set",
        )
    return next(iter(channels.values()), "")
