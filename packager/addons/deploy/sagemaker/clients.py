"""Clients of AWS, and its errors as ours. No message of boto3 is passed on that may hold a key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from artifact_cache.aws import aws_client, aws_session
from artifact_cache.distribution import install_command
from artifact_cache.waits import TooLate, within
from packager.addons.deploy.sagemaker.route import EndpointRoute, connection_to, signer
from packager.core.errors import AccessDenied, NotFound, PackagerError, Unavailable, UsageError
from packager.core.text import escape

_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
_DENIED = (
    "AccessDenied",
    "UnrecognizedClient",
    "InvalidSignature",
    "ExpiredToken",
    "InvalidClient",
)
_LONGEST = 600
# Of one call with its retries; and of one answer of a model, for which SageMaker waits a minute.
CALL_S, INVOKE_S = 300.0, 120.0


def aws_refused(operation: str, code: str, message: str) -> UsageError:
    """Return an error: AWS refuses a request."""
    hint = "`packager deploy sagemaker render` shows the request as it was sent"
    if "manifest media type" in message:
        hint = "copy the image with `packager copy --view docker`, and deploy the copy"
    return UsageError(
        f"AWS refuses {operation}: {code}: {escape(message[:_LONGEST])}",
        hint=hint,
        code="AwsRefused",
    )


class Clients:
    """Clients of services, each made at its first use."""

    def __init__(self, region: str = "") -> None:
        self._region = region or os.environ.get("AWS_REGION", "")  # which boto3 does not read
        self._made: dict[str, Any] = {}

    def of(self, service: str) -> Any:
        """Return a client that finds address, region and credentials as boto3 does."""
        if service not in self._made:
            self._made[service] = self._client(service)
        return self._made[service]

    def route(self, name: str, *, model: str, component: str) -> EndpointRoute:
        """Return the way to an endpoint, with the credentials that clients find, too."""
        client = self.of("sagemaker-runtime")

        with explained("InvokeEndpoint"):
            credentials = aws_session().get_credentials()
        if credentials is None:
            raise _no_credentials()
        address = str(client.meta.endpoint_url)
        return EndpointRoute(
            name,
            address=address,
            sign=signer(credentials, str(client.meta.region_name)),
            connection=connection_to(address, os.environ.get("AWS_CA_BUNDLE", "")),
            model=model,
            component=component,
        )

    def _client(self, service: str) -> Any:
        try:
            import boto3  # noqa: F401
            from botocore.config import Config
        except ImportError as error:
            raise Unavailable(
                "deploying to SageMaker needs boto3, which is not installed",
                hint=f"install it with `{install_command('boto3', 'serve')}`",
            ) from error
        from botocore import exceptions

        # An answer of a large model takes a minute; a second try would make it work twice.
        patient = {"read_timeout": 80, "retries": {"total_max_attempts": 1}}
        config = Config(**(patient if service == "sagemaker-runtime" else {}))
        most_s = INVOKE_S if service == "sagemaker-runtime" else CALL_S
        try:
            made = aws_client(service, region_name=self._region or None, config=config)
            return _Bounded(made, most_s)
        except exceptions.NoRegionError as error:
            raise UsageError(
                "nobody says in which region of AWS", hint="give --region, or set AWS_REGION"
            ) from error
        except exceptions.BotoCoreError as error:
            raise UsageError(
                f"boto3 cannot be set up: {type(error).__name__}",
                hint="check AWS_PROFILE and AWS_ENDPOINT_URL",
            ) from error


@contextmanager
def explained(operation: str) -> Iterator[None]:
    """Turn errors of boto3 inside the block into ours."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        raise _refusal(operation, error.response) from error
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
    ) as error:
        raise _no_credentials() from error
    except exceptions.ParamValidationError as error:
        raise aws_refused(operation, "ParamValidationError", str(error)) from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError, TooLate) as error:
        why = str(error) if isinstance(error, TooLate) else type(error).__name__
        raise Unavailable(
            f"AWS does not answer {operation}: {why}",
            hint="check the network, AWS_REGION and AWS_ENDPOINT_URL; applying again goes on",
        ) from error
    except exceptions.BotoCoreError as error:
        raise UsageError(
            f"boto3 refuses {operation}: {type(error).__name__}", hint="check the settings of AWS"
        ) from error


def _no_credentials() -> AccessDenied:
    return AccessDenied(
        "there are no usable AWS credentials",
        hint="set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
        "`aws sts get-caller-identity` shows who you are",
    )


def is_missing(error: Exception) -> bool:
    """Check whether AWS reports that no resource has that name."""
    response = getattr(error, "response", None) or {}
    found = response.get("Error") or {}
    code, message = str(found.get("Code", "")), str(found.get("Message", ""))
    is_gone = "Could not find" in message or "does not exist" in message
    return code in ("ResourceNotFound", "ObjectNotFoundException") or (
        code == "ValidationException" and is_gone
    )


def _refusal(operation: str, response: Mapping[str, Any]) -> PackagerError:
    found = response.get("Error") or {}
    code, message = str(found.get("Code", "")), str(found.get("Message", ""))
    code = code if _CODE.fullmatch(code) else "an error"
    if code.startswith(_DENIED):
        return AccessDenied(
            f"AWS denies {operation}: {code}",
            hint="the caller needs sagemaker:* of this endpoint, and iam:PassRole for its role",
        )
    if code == "ResourceNotFound":
        return NotFound(f"{operation}: {escape(message[:_LONGEST])}", hint="apply it first")
    return aws_refused(operation, code, message)


class _Bounded:
    """An object whose methods end in time, with `TooLate` if need be."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of that name; of a method, one that ends in time."""
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            return within(self._seconds, lambda: found(*given, **named))

        return call
