"""Environment variables that point AWS's SDKs to a server on this machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.files.user_files import expand_home

SHIM = Path(__file__).with_name("shim")  # has the `sitecustomize` of clients
MAX_BYTES = 4096  # of a server's description of itself
_CONFIGURATION = "sagemaker-sdk.json"  # JSON is YAML, which the SDKs read
_PYTHONPATH = "PYTHONPATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server's description of itself in its lock, for programs of the same user."""

    url: str
    region: str
    account: str
    is_signed: bool  # requests must be signed with its keys
    s3: str = ""  # where the server's own buckets are; "": AWS's

    @property
    def bucket(self) -> str:
        """Return the name of the SDKs' default bucket."""
        return f"sagemaker-{self.region}-{self.account}"


def server_text(server: RunningServer) -> str:
    """Return a server as its lock holds it."""
    return json.dumps(
        {
            "url": server.url,
            "region": server.region,
            "account": server.account,
            "signed": server.is_signed,
            "s3": server.s3,
        }
    )


def parse_server(text: bytes) -> RunningServer | None:
    """Read a lock's content; None where a server has not written it."""
    try:
        found: Mapping[str, Any] = parse_object(text, max_bytes=MAX_BYTES)
        return RunningServer(
            url=str(found["url"]),
            region=str(found["region"]),
            account=str(found["account"]),
            is_signed=found["signed"] is True,
            s3=str(found["s3"]),
        )
    except (NotStrict, KeyError):
        return None


def sdk_configuration(bucket: str) -> str:
    """Return the SageMaker SDKs' configuration: their bucket, and no reports to AWS of their use.

    The reports go to an address of their own, which no variable changes (SDK 2.257
    telemetry/telemetry_logging.py, sagemaker-core 2.27 the same).
    """
    modules = {"Session": {"DefaultS3Bucket": bucket}, "TelemetryOptOut": True}
    document = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": modules}}}
    return f"{json.dumps(document, indent=2)}\n"


def client_variables(
    server: RunningServer, *, s3: str, configuration: Path, present: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of a client.

    `s3` is the address of the buckets, "" sends S3 requests to the server, which refuses them. A
    dummy access key is included where the server needs none and none is `present`.
    """
    found = {
        "AWS_ENDPOINT_URL": server.url,
        **({"AWS_ENDPOINT_URL_S3": s3} if s3 else {}),
        "AWS_DEFAULT_REGION": server.region,
        "AWS_REGION": server.region,
        "AWS_EC2_METADATA_DISABLED": "true",  # else botocore looks for keys in the network
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(configuration),
        "SAGEMAKER_CORE_USER_CONFIG_OVERRIDE": str(configuration),
        _PYTHONPATH: str(SHIM),
    }
    if not server.is_signed and not _has_keys(present):
        found |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return found


def configuration_path(state: Path) -> Path:
    """Return where the SDKs' configuration of a server is."""
    return state / _CONFIGURATION


def shell_lines(variables: Mapping[str, str]) -> list[str]:
    """Return lines for a POSIX shell; `PYTHONPATH` is prepended to its current value."""
    return [
        f"export {name}={shlex.quote(value)}"
        + ('"${PYTHONPATH:+:$PYTHONPATH}"' if name == _PYTHONPATH else "")
        for name, value in variables.items()
    ]


def _has_keys(present: Mapping[str, str]) -> bool:
    given = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    files = present.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return any(present.get(name) for name in given) or expand_home(files).exists()
