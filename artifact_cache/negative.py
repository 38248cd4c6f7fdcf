"""Record of failed builds: their logs, and which must not be retried for a while.

    neg/<kind>/ab/<key>.json     the last failure of that key, with the end of its log

Only what the tool itself rejected is remembered as a fact, until it expires.
Every other failure leaves its log for people and decides nothing.  None of
this is signed, so nobody who requires signatures lets it keep a build from
running.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from artifact_cache.errors import BuildFailed, Rejected, RejectedBefore
from artifact_cache.files import bounded_bytes
from artifact_cache.store import Address
from artifact_cache.strict_json import NotStrict, parse_object

EXPIRY_S = 24 * 3600.0
MAX_LOG_CHARACTERS = 64 * 1024
MAX_REASON_CHARACTERS = 2000
MAX_RECORD_BYTES = 1024 * 1024
CHECK_PREFIX = b"packager-failure-v1\n"

# What credentials look like; the length of each part has a limit, so that time is linear.
# A caller who knows its own secrets passes them as well.
_TOKENS = re.compile(
    r"hf_[A-Za-z0-9]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=-]{8,}"
    r"|((?i:password|secret|token|api_?key|credential)[A-Za-z_]{0,64}\s{0,16}[=:]\s{0,16})[^\s'\"]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """Remove what looks like a credential, and every one of `known`."""
    for secret in sorted(filter(None, known), key=len, reverse=True):
        text = text.replace(secret, "***")
    return _TOKENS.sub(lambda found: f"{found[1] or ''}***", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last failed build of one key."""

    kind: str
    key: str
    reason: str
    rejected: bool  # by the tool itself; the others decide nothing
    failed_at: int
    expires_at: int
    log: str  # its end, and a little of its beginning

    def stands(self, now: float) -> bool:
        """Return whether a retry is still pointless.

        A moment in the future is a clock that was set back: then nobody knows
        how old this is, and another try costs only time.
        """
        return self.rejected and self.failed_at <= now < self.expires_at

    def error(self) -> RejectedBefore:
        """Return it as the error a build would raise."""
        return RejectedBefore(
            self.reason, log=self.log, since=_date(self.failed_at), until=_date(self.expires_at)
        )


class Failures:
    """The failures kept below one directory. A fault in here costs a log and nothing else."""

    def __init__(
        self,
        directory: Path,
        *,
        expiry_s: float = EXPIRY_S,
        scrub: Callable[[str], str] = scrub,
    ) -> None:
        self._directory = directory
        self._expiry_s = expiry_s
        self._scrub = scrub

    def get(self, address: Address) -> Failure | None:
        """Find the last failure of a key; a broken record is none, and is removed."""
        path = self._path(address)
        try:
            failure = _parse(bounded_bytes(path, MAX_RECORD_BYTES))
        except OSError:
            return None
        if failure is None or (failure.kind, failure.key) != (address.kind, address.key):
            with suppress(OSError):
                path.unlink()
            return None
        return failure

    def record(self, address: Address, error: Exception, now: float) -> None:
        """Store why a build failed. Never raises: the build's own error is what people need."""
        failure = Failure(
            kind=address.kind,
            key=address.key,
            reason=_encodable(self._scrub(_reason(error)))[:MAX_REASON_CHARACTERS],
            rejected=isinstance(error, Rejected) and not isinstance(error, RejectedBefore),
            failed_at=int(now),
            expires_at=int(now + self._expiry_s),
            log=_ends(_encodable(self._scrub(_log(error)))),
        )
        path = self._path(address)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                draft.write_bytes(_bytes(failure))
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)

    def forget(self, address: Address) -> bool:
        """Delete the record of a failure. False: there was none."""
        try:
            self._path(address).unlink()
        except OSError:
            return False
        return True

    def list(self, kind: str | None = None) -> Iterator[Failure]:
        """Yield what can be read, in no order."""
        for path in self._directory.glob(f"{kind or '*'}/??/*.json"):
            failure = self.get(Address(path.parent.parent.name, path.stem))
            if failure is not None:
                yield failure

    def _path(self, address: Address) -> Path:
        return self._directory / address.kind / address.key[:2] / f"{address.key}.json"


def _reason(error: Exception) -> str:
    if isinstance(error, BuildFailed):
        return error.message
    return "".join(traceback.format_exception_only(error)).strip()


def _log(error: Exception) -> str:
    if isinstance(error, BuildFailed) and error.log:
        return error.log
    return "".join(traceback.format_exception(error))


def _encodable(text: str) -> str:
    """Replace what UTF-8 cannot hold, such as bytes of a log that were no text."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _ends(log: str) -> str:
    """Return the start and the end of a log: versions are at the start, the error at the end."""
    if len(log) <= MAX_LOG_CHARACTERS:
        return log
    start = MAX_LOG_CHARACTERS // 8
    left_out = len(log) - MAX_LOG_CHARACTERS
    return f"{log[:start]}\n[{left_out} characters left out]\n{log[start + left_out :]}"


def _bytes(failure: Failure) -> bytes:
    plain = json.dumps(asdict(failure), sort_keys=True).encode("utf-8", "replace")
    return json.dumps({"check": _check(plain), "failure": plain.decode("utf-8")}).encode("utf-8")


def _parse(data: bytes) -> Failure | None:
    """Return the failure, or None for bytes that are not one or have changed."""
    try:
        outer = parse_object(data, max_bytes=MAX_RECORD_BYTES)
        plain = outer["failure"].encode("utf-8")
        if outer["check"] != _check(plain):
            return None
        return Failure(**parse_object(plain, max_bytes=MAX_RECORD_BYTES))
    except (NotStrict, TypeError, KeyError, AttributeError):
        return None


def _check(data: bytes) -> str:
    return hashlib.sha256(CHECK_PREFIX + data).hexdigest()


def _date(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))
