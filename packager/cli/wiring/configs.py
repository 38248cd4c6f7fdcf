"""The config.json of a model in a bucket, where it can be had at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.errors import PackagerError
from packager.core.references import BucketReference
from packager.core.remote.s3 import explained, s3_client
from packager.models.reference import parse_model_reference

PATIENCE_S = 2.0  # the client of the document's request waits
MAX_BYTES = 1024 * 1024


def read_config_soon(reference: str) -> Mapping[str, Any] | None:
    """Return a model's config.json; None where it is not in a bucket, or not read soon.

    Never raises: the build reports what is wrong with the model.
    """
    try:
        place = parse_model_reference(reference)
        if not isinstance(place, BucketReference):
            return None
        client = s3_client(patience_s=PATIENCE_S)
        key = f"{place.prefix.strip('/')}/config.json".lstrip("/")
        with explained(place.bucket, None):
            answer = client.get_object(Bucket=place.bucket, Key=key)
            with closing(answer["Body"]) as body:
                return parse_object(body.read(MAX_BYTES + 1), max_bytes=MAX_BYTES)
    except (PackagerError, NotStrict):
        return None
