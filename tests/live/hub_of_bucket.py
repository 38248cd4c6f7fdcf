"""The one request of SageMaker's SDKs to a hub, answered out of a bucket: for their programs."""

from __future__ import annotations

import io
import urllib.request
from typing import Any

import boto3

SAMPLES = ({"inputs": "hi", "parameters": {}}, [{"generated_text": ""}])  # of djl-serving
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def answer_for_hub(bucket: str) -> None:
    """Let config.json of any model of the hub be that of models/tiny in the bucket."""
    client = boto3.client("s3")
    found = client.get_object(Bucket=bucket, Key="models/tiny/config.json")["Body"].read()
    original = urllib.request.urlopen

    def urlopen(asked: Any, *arguments: Any, **options: Any) -> Any:
        url = asked if isinstance(asked, str) else asked.full_url
        if url.startswith("https://huggingface.co/") and url.endswith("/config.json"):
            return io.BytesIO(found)
        return original(asked, *arguments, **options)

    urllib.request.urlopen = urlopen
