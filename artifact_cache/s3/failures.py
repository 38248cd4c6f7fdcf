"""Why a request to S3 failed, whatever boto3 raised for it.

Messages of boto3 are not passed on: they can hold addresses with signatures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from artifact_cache.waits import retry_after_s

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_CODES = frozenset({"SlowDown", "RequestTimeout", "InternalError", "Throttling"})
# AWS: two conditional writes met; the answer is to try again.
_MET = frozenset({"ConditionalRequestConflict", "OperationAborted"})

# Names of exceptions of botocore, urllib3 and Python; the most derived one that is here counts.
_NAMES = {
    "damaged": "FlexibleChecksumError",
    "credentials": "NoCredentialsError PartialCredentialsError CredentialRetrievalError "
    "TokenRetrievalError SSOError",
    # urllib3's HTTPError: where botocore lets it through, in the body of an error
    "silent": "HTTPClientError ConnectionError IncompleteReadError HTTPError OSError",
    "circle": "RecursionError",
    "foreign": "ResponseParserError ArithmeticError LookupError TypeError RuntimeError",
    "settings": "BotoCoreError ValueError",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


class AnswerTooLong(Exception):
    """An answer has more bytes than any of S3's."""


class AnswerTooLate(Exception):
    """An answer is not complete after minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Failure:
    """A failed request.

    Without an answer its kind is `damaged`, `credentials`, `silent` (no answer, or only the
    beginning of one), `circle` (of redirects), `foreign` (none of S3) or `settings`.  With one it
    is `met` (two conditional writes at once), `condition` (it does not hold), `bucket` (there is
    none), `missing`, `busy` (another try may do), `denied` or `refused`.
    """

    kind: str
    status: int = 0  # of the answer; 0 where there is none
    code: str = ""  # of S3
    message: str = ""  # of the server
    after_s: float = 0.0  # when it wants to be asked again

    @property
    def shown(self) -> str:
        """Return the code, or the status where there is none."""
        return self.code or str(self.status)


def failure_of(error: Exception) -> S3Failure | None:
    """Return what an exception of boto3, or of a socket below it, means; None for another one."""
    if isinstance(answer := getattr(error, "response", None), dict):  # of a ClientError
        return _of_answer(answer)
    names = (one.__name__ for one in type(error).__mro__)
    kind = next((_KINDS[name] for name in names if name in _KINDS), "")
    return S3Failure(kind=kind) if kind else None


def _of_answer(answer: dict[str, Any]) -> S3Failure:
    found = answer.get("Error", {})
    metadata = answer.get("ResponseMetadata", {})
    code, status = str(found.get("Code", "")), int(metadata.get("HTTPStatusCode", 0))
    return S3Failure(
        kind=_kind_of(code, status),
        status=status,
        code=code,
        message=str(found.get("Message", "")),
        after_s=retry_after_s(metadata.get("HTTPHeaders", {}).get("retry-after")),
    )


def _kind_of(code: str, status: int) -> str:
    if code in _MET:
        return "met"
    if status == 412 or code == "PreconditionFailed":
        return "condition"
    if code == "NoSuchBucket":
        return "bucket"
    if status == 404:
        return "missing"
    if status in TRANSIENT or code in _TRANSIENT_CODES:
        return "busy"
    return "denied" if status in (401, 403) else "refused"
