"""Credentials for Amazon ECR, from the AWS credentials of this machine.

boto3 requests them; it is an optional extra, imported when a host of ECR requires credentials that
no file and no helper has.  They are valid for twelve hours, and renewed before they expire.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from artifact_cache.aws import aws_client
from artifact_cache.distribution import install_command
from packager.core.errors import PackagerError, UsageError
from packager.images.registry.credential import Credentials
from packager.images.registry.failures import aws_credentials_failed

PUBLIC = "public.ecr.aws"
_PUBLIC_REGION = "us-east-1"  # the only one that gives tokens
_PRIVATE = re.compile(
    r"[0-9]{12}\.dkr(?:\.ecr|-ecr)(?:-fips)?\.(?P<region>[a-z0-9-]+)\."
    r"(?:amazonaws\.com(?:\.cn|\.eu)?|on\.aws|on\.amazonwebservices\.com\.cn)"
)
_FILTER = re.compile(r"[0-9a-zA-Z._*-]{1,128}")  # of tags, in ECR's settings
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 30
_ASKING_S = 5  # for what a push can do without
_RENEW_BEFORE_S = 600.0  # a token must outlive the request that it starts


def is_ecr(host: str) -> bool:
    """Whether a host is a registry of Amazon ECR."""
    return host == PUBLIC or _PRIVATE.fullmatch(host) is not None


def ecr_credentials(host: str) -> Credentials | None:
    """Return ECR credentials for `host` from AWS.

    None for ECR Public without AWS credentials: it allows anonymous access.
    """
    private = _PRIVATE.fullmatch(host)
    try:
        if private is None:
            answer = _client("ecr-public", _PUBLIC_REGION, host).get_authorization_token()
            return _credentials(host, answer["authorizationData"])
        answer = _client("ecr", private["region"], host).get_authorization_token()
        return _credentials(host, answer["authorizationData"][0])
    except PackagerError:
        if private is None:
            return None
        raise
    except (LookupError, TypeError):
        raise aws_credentials_failed(host, "AWS gave no token") from None
    except Exception as error:
        if private is None:
            return None
        raise aws_credentials_failed(host, _reason(error)) from None


def has_fixed_tag(host: str, repository: str, tag: str) -> bool:
    """Whether ECR's settings of a repository forbid to move a tag that exists.

    False for other hosts, and where AWS does not say: without boto3, without the right
    `ecr:DescribeRepositories`, without an answer.  `MUTABLE_WITH_EXCLUSION` and the filters: API
    reference of Amazon ECR, PutImageTagMutability.
    """
    private = _PRIVATE.fullmatch(host)
    if private is None:
        return False
    try:
        asked = {"registryId": host.partition(".")[0], "repositoryNames": [repository]}
        client = _client("ecr", private["region"], host, read_s=_ASKING_S, attempts=1)
        [found] = client.describe_repositories(**asked)["repositories"]
        setting = str(found.get("imageTagMutability", ""))
        filters = [one["filter"] for one in found.get("imageTagMutabilityExclusionFilters") or ()]
    except Exception:  # the registry's own answer to the push will say it
        return False
    is_excluded = any(_FILTER.fullmatch(one) and fnmatchcase(tag, one) for one in filters)
    return is_excluded if setting.startswith("MUTABLE") else setting != "" and not is_excluded


def _client(
    service: str, region: str, host: str, *, read_s: int = _READ_TIMEOUT_S, attempts: int = 3
) -> Any:
    try:
        import boto3  # noqa: F401
        from botocore.config import Config
    except ImportError as error:
        raise UsageError(
            f"{host!r} wants AWS credentials, and boto3 is not installed",
            hint=f"install it with `{install_command('boto3', 'ecr')}`, or docker login {host}",
        ) from error
    return aws_client(
        service,
        region_name=region,
        config=Config(
            connect_timeout=min(read_s, _CONNECT_TIMEOUT_S),
            read_timeout=read_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_extra="packager",
        ),
    )


def _credentials(host: str, data: Any) -> Credentials:
    try:
        decoded = base64.b64decode(data["authorizationToken"], validate=True).decode()
        user, colon, password = decoded.partition(":")
        expires: datetime = data["expiresAt"]
        renew_at = expires.timestamp() - _RENEW_BEFORE_S
    except (binascii.Error, UnicodeDecodeError, AttributeError):
        # `from None`: the cause would carry the token.
        raise aws_credentials_failed(host, "AWS gave no token that can be read") from None
    if not colon:
        raise aws_credentials_failed(host, "AWS gave no token that can be read")
    return Credentials(user=user, password=password, renew_at=renew_at)


def _reason(error: Exception) -> str:
    """Return a reason for a boto3 error without its message, which can hold URLs and secrets."""
    from botocore import exceptions

    match error:
        case exceptions.ClientError():
            code = str(error.response.get("Error", {}).get("Code", ""))
            return f"AWS answers {code}" if re.fullmatch(r"[A-Za-z0-9.]{1,64}", code) else "refused"
        case exceptions.NoCredentialsError() | exceptions.PartialCredentialsError():
            return "there are no AWS credentials"
        case exceptions.HTTPClientError() | exceptions.ConnectionError():
            return "AWS does not answer"
    return type(error).__name__
