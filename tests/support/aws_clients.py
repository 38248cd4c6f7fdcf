"""Unmodified clients of AWS's SDK for servers of tests."""

from __future__ import annotations

from typing import Any

import boto3


def aws_client(service: str, url: str, **settings: Any) -> Any:
    """Return a client of a service that is served at a URL."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys, **settings)
