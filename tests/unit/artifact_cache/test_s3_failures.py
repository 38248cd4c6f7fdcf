"""What exceptions of boto3 mean, and those of sockets below it."""

from __future__ import annotations

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError
from urllib3.exceptions import ProtocolError

from artifact_cache.s3.failures import S3Failure, failure_of
from tests.support.cases import cases


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            exceptions.FlexibleChecksumError(error_msg="it differs"),
            "damaged",
        ),
        (exceptions.NoCredentialsError(), "credentials"),
        (exceptions.UnauthorizedSSOTokenError(), "credentials"),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), "silent"),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), "silent"),
        (ProtocolError("cut"), "silent"),
        (ConnectionResetError(), "silent"),
        (RecursionError(), "circle"),
        (ResponseParserError(), "foreign"),
        (KeyError("Contents"), "foreign"),
        (exceptions.InvalidRegionError(region_name="x y"), "settings"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "?"), "settings"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_an_exception_means(error: Exception, kind: str) -> None:
    assert failure_of(error) == S3Failure(kind=kind)


@cases("what_an_answer_means")
def test_what_an_answer_means(status: int, code: str, kind: str) -> None:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "7"}}
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": metadata}

    found = failure_of(exceptions.ClientError(answer, "PutObject"))

    assert found == S3Failure(kind=kind, status=status, code=code, message="no", after_s=7.0)
    assert found.shown == (code or str(status))


def test_what_is_none_of_s3_is_left_alone() -> None:
    assert failure_of(Exception("a bug")) is None
