"""AWS JSON 1.1: what is read of a request, and how answers and errors are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from packager.addons.deploy.sagemaker.api_refusals import (
    ApiRefusal,
    ResourceInUse,
    ValidationRefused,
)
from packager.addons.server.jobs.errors import JobExists, JobMissing, job_running
from packager.addons.server.protocol import (
    ApiTarget,
    check_content_type,
    error_document,
    read_body,
    read_target,
    wire_document,
)
from packager.addons.server.refusals import (
    refusal_of,
)
from packager.core.errors import PackagerError, Unavailable, UsageError
from tests.support.cases import cases, read_tables
from tests.support.refusals import raises_code


def test_a_target_is_a_service_and_an_operation() -> None:
    assert read_target("SageMaker.ListTags") == ApiTarget("SageMaker", "ListTags")


@cases("what_is_no_target_is_an_unknown_operation")
def test_what_is_no_target_is_an_unknown_operation(header: str | None) -> None:
    with raises_code("UnknownOperationException"):
        read_target(header)


def test_the_content_type_is_that_of_the_protocol() -> None:
    check_content_type("application/x-amz-json-1.1")
    check_content_type("Application/X-Amz-JSON-1.1; charset=utf-8")
    check_content_type("application/x-amz-json-1.0")
    for other in (None, "", "text/plain", "application/json"):
        with raises_code("UnsupportedMediaTypeException"):
            check_content_type(other)


def test_a_body_is_an_object() -> None:
    assert read_body(b'{"a": [1, null]}') == {"a": [1, None]}
    assert read_body(b"") == read_body(b" \n") == {}


@cases("any_other_body_is_refused")
def test_any_other_body_is_refused(body: bytes) -> None:
    with raises_code("SerializationException"):
        read_body(body)


def test_times_are_seconds_and_nothing_is_left_out() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=9)))

    answer = {"At": moment, "In": {"List": [elsewhere, None]}, "None": None, "Zero": 0}

    assert wire_document(answer) == {
        "At": 1767323045.679,
        "In": {"List": [1767323045.679, None]},
        "Zero": 0,
    }


def test_modelled_errors_have_a_message_and_others_one_in_lower_case() -> None:
    assert error_document(ResourceInUse("taken")) == {"__type": "ResourceInUse", "Message": "taken"}
    assert (
        error_document(ValidationRefused("wrong", hint="do that"))
        == read_tables(__file__)["refusal"]
    )


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (JobMissing("optimization", "a"), "ResourceNotFound", 400),
        (JobExists("optimization", "a"), "ResourceInUse", 400),
        (job_running("optimization", "a"), "ValidationException", 400),
        (UsageError("wrong"), "ValidationException", 400),
        (Unavailable("the engine does not answer"), "ServiceUnavailable", 503),
        (PackagerError("the disk's serial number"), "InternalFailure", 500),
        (RuntimeError("a secret"), "InternalFailure", 500),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_errors_are_told_as_aws_tells_them(error: Exception, kind: str, status: int) -> None:
    refusal = refusal_of(error)

    assert isinstance(refusal, ApiRefusal)
    assert (refusal.type, refusal.http_status) == (kind, status)
    if status == 500:
        assert str(error) not in str(error_document(refusal))
