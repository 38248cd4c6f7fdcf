"""Errors of the registry client. What nobody catches apart is a function with a code.

    Unavailable
    ├── RegistryUnreachable    no answer: refused, unknown, TLS, time-out, cut off
    ├── ServiceLimited         a limit that holds for hours
    └── RegistryBusy           429 or 5xx, also after trying again; or it wants another try
    AccessDenied
    └── AccessRefused          for a reason that is known: expired, a policy, a network rule
    NotFound
    └── NotInRegistry
    OutputFailed
    ├── WriteRefused           for a reason that is known: quota, immutable tag, read-only
    └── OverLimits             known before the first byte: the image does not fit the registry
    ProtocolFailed
    ├── ContentMismatch        the bytes are not those of the digest
    └── UnexpectedAnswer       everything else

Addresses of uploads carry signatures and answers may repeat what we sent, so
neither goes into a message: only host, repository, status and the error codes
of the specification.
"""

from __future__ import annotations

from packager.core.errors import (
    AccessDenied,
    NotFound,
    OutputFailed,
    PackagerError,
    ProtocolFailed,
    Unavailable,
)
from packager.core.findings import Finding
from packager.core.remote.refusals import Refusal


class RegistryUnreachable(Unavailable):
    """No usable response from the registry. `transient`: another attempt may succeed."""

    def __init__(
        self, authority: str, reason: str, *, hint: str = "", transient: bool = True
    ) -> None:
        super().__init__(
            f"cannot reach the registry at {authority!r}: {reason}",
            hint=hint or f"check the address and the network: `curl -v {authority}/v2/`",
        )
        self.transient = transient


class RegistryBusy(Unavailable):
    """The registry says that it cannot serve us now."""

    def __init__(self, authority: str, status: int, codes: str) -> None:
        super().__init__(
            f"the registry at {authority!r} answers {status}{codes}",
            hint="try again later; finished layers are not sent again",
        )


class ServiceLimited(Unavailable):
    """The registry serves no more for now, and trying again soon does not help."""

    def __init__(self, host: str, what: str, refusal: Refusal, codes: str = "") -> None:
        super().__init__(f"{host!r} refuses {what}: {refusal.says}{codes}", hint=refusal.hint)


class AccessRefused(AccessDenied):
    """The registry refuses, and says why: a row of the table of refusals."""

    def __init__(self, host: str, what: str, refusal: Refusal, codes: str = "") -> None:
        super().__init__(f"{host!r} refuses {what}: {refusal.says}{codes}", hint=refusal.hint)
        self.refusal = refusal


class WriteRefused(OutputFailed):
    """The registry does not store it, and says why: a row of the table of refusals."""

    def __init__(self, host: str, what: str, refusal: Refusal, codes: str = "") -> None:
        super().__init__(f"{host!r} refuses {what}: {refusal.says}{codes}", hint=refusal.hint)
        self.refusal = refusal


def storage_refused(
    host: str, storage: str, what: str, answer: str, refusal: Refusal | None
) -> AccessDenied:
    """Return an error: the place that the registry sends to for the bytes does not let us in."""
    reason = f": {refusal.says}" if refusal else ""
    return AccessDenied(
        f"{host!r} sends for {what} to {storage!r}, which answers {answer}{reason}",
        hint=refusal.hint
        if refusal
        else "the registry's password is right: a proxy, a firewall or the policy of a VPC "
        "endpoint between here and the storage may refuse, or this machine's clock is wrong",
        code="StorageRefused",
    )


def credentials_missing(host: str, what: str) -> AccessDenied:
    """Return an error: the registry requires credentials and none were found."""
    return AccessDenied(
        f"{host!r} wants credentials {what}, and none were found",
        hint=f"docker login {host}",
        code="CredentialsMissing",
    )


def credentials_refused(host: str, what: str, user: str, codes: str = "") -> AccessDenied:
    """Return an error: the credentials are wrong, or their owner may not do this."""
    who = f"user {user!r}" if user else "an anonymous user"
    return AccessDenied(
        f"{host!r} does not allow {who} {what}{codes}",
        hint=f"docker login {host}, as a user who is allowed {what}",
        code="CredentialsRefused",
    )


class CredentialHelperFailed(AccessDenied):
    """The configured credential helper is missing or failed."""

    def __init__(self, helper: str, host: str, reason: str) -> None:
        super().__init__(
            f"credential helper {helper!r} gave nothing for {host!r}: {reason}",
            hint=f"run `echo {host} | {helper} get`, or remove it from the docker configuration",
        )


def aws_credentials_failed(host: str, reason: str) -> AccessDenied:
    """Return an error: AWS gave no password for a registry of Amazon ECR."""
    return AccessDenied(
        f"no password for {host!r}: {reason}",
        hint="set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of somebody with "
        f"ecr:GetAuthorizationToken, or docker login {host}",
        code="AwsCredentialsFailed",
    )


class NotInRegistry(NotFound):
    """The repository, manifest or blob does not exist."""

    def __init__(
        self, host: str, what: str, codes: str = "", *, hint: str = "", code: str = ""
    ) -> None:
        super().__init__(
            f"{host!r} has no {what}{codes}",
            hint=hint or "check the name; some registries want the repository to be created first",
            code=code,
        )


def repository_missing(host: str, repository: str, create: str, codes: str = "") -> NotInRegistry:
    """Return an error: the registry does not make repositories when something is pushed to them."""
    return NotInRegistry(
        host,
        f"repository {repository!r}",
        codes,
        hint=create or "create the repository there first, or check its name",
        code="RepositoryMissing",
    )


def file_systems_refused(host: str, error: PackagerError) -> OutputFailed:
    """Return an error: the registry takes the plain form of an image, and not the manifest of its

    file systems.
    """
    return OutputFailed(
        f"{host!r} does not take layers that are EROFS file systems: {error.message}",
        hint="leave --layer-format out: the plain layers are there, and are not sent again",
        code="FileSystemsRefused",
    )


class OverLimits(OutputFailed):
    """The image does not fit what the registry takes. Names everything that does not."""

    def __init__(self, host: str, findings: tuple[Finding, ...]) -> None:
        problems = "; ".join(finding.message for finding in findings)
        super().__init__(
            f"{host!r} cannot take this image: {problems}",
            hint="; ".join(dict.fromkeys(finding.hint for finding in findings)),
        )
        self.findings = findings


def refused_by_size(host: str, size: int) -> OutputFailed:
    """Return an error: the registry, or a proxy before it, limits the size of a request."""
    return OutputFailed(
        f"{host!r} refuses a blob of {size} bytes (413)",
        hint="raise the body limit of the registry or of the proxy before it (nginx: "
        "client_max_body_size 0), or state it as body_mib in a catalog file's [[registry]]",
        code="RefusedBySize",
    )


class ContentMismatch(ProtocolFailed):
    """The bytes are not those that the digest names."""

    def __init__(self, host: str, expected: str, found: str) -> None:
        super().__init__(
            f"{host!r} returned {found}, expected {expected}",
            hint="a proxy or mirror may have damaged it; ask the registry directly",
        )


def size_mismatch(host: str, digest: str, found: int, size: int) -> ProtocolFailed:
    """Return an error: a blob that the registry has is of another size than the image says."""
    return ProtocolFailed(
        f"{host!r} has blob {digest} with {found} bytes instead of {size}",
        hint="remove the blob there, and build again",
        code="SizeMismatch",
    )


class UnexpectedAnswer(ProtocolFailed):
    """The registry's response violates the distribution specification."""

    def __init__(self, host: str, what: str, answer: str, *, hint: str = "") -> None:
        super().__init__(f"{host!r} answered {answer} to {what}", hint=hint)
