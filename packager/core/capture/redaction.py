"""Redaction of personal data and secrets: by patterns, and by a command of the user.

A pattern that is too wide costs a word of a text; one that is too narrow keeps a secret, so
patterns are wide.  Card numbers are recognized by their check digit (ISO/IEC 7812-1).
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Sequence
from typing import Any

_LONGEST_LINE = 64 * 1024 * 1024  # bytes of a redacted row

_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"  # AWS
    r"|\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|ya29\.|AIza|npm_|pypi-|dop_v1_|SG\.)"
    r"[A-Za-z0-9._-]{10,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"  # JSON web tokens
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{12,}"
    r"|(?i:\b(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|token)\b"
    r"[\"']?\s*[:=]\s*[\"']?)[^\s\"',;]{6,}"
)
# What any of the alternatives above has in it, so that texts without are not searched in full.
_MARKS = (
    *("-----BEGIN", "AKIA", "ASIA", "AROA", "AIDA", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_"),
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "ya29."),
    *("AIza", "npm_", "pypi-", "dop_v1_", "SG.", "eyJ"),
)
_BEARER = "bearer"
_WORDS = ("password", "passwd", "pwd", "secret", "key", "token")  # before `:` or `=`
_DIGIT = re.compile(r"\d")
_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,15}://)[^\s/@:]+:[^\s/@]+@")  # with a password
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?!\d)")
_PHONE = re.compile(
    r"(?<![\w.])(?:\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})(?![\w])"
)


def redact_text(text: str) -> str:
    """Return a text with keys, e-mail addresses, card and phone numbers replaced by their kind."""
    if _may_hold_key(text):
        text = _KEY.sub("[KEY]", text)
    if "@" in text:
        if "://" in text:
            text = _URL.sub(r"\1[KEY]@", text)
        text = _EMAIL.sub("[EMAIL]", text)
    if _DIGIT.search(text) is None:
        return text
    text = _CARD.sub(_card, text)
    return _PHONE.sub("[PHONE]", text)


def _may_hold_key(text: str) -> bool:
    """Return False only for a text without a match of `_KEY`; a quick test decides most texts."""
    if any(mark in text for mark in _MARKS):
        return True
    folded = text.casefold()  # as (?i) compares: a long s is an s
    if _BEARER in folded:
        return True
    return (":" in text or "=" in text) and any(word in folded for word in _WORDS)


def _card(found: re.Match[str]) -> str:
    digits = [int(one) for one in found[0] if one.isdigit()]
    doubled = (digit * 2 for digit in digits[-2::-2])
    total = sum(digits[-1::-2]) + sum(digit - 9 if digit > 9 else digit for digit in doubled)
    return found[0] if total % 10 else "[CARD]"


class CommandFailed(Exception):
    """The user's command did not give a row back."""


class RedactCommand:
    """A program that reads a row on each line and writes one for each; an empty line drops it.

    It is started once and keeps running; used by one thread.
    """

    def __init__(self, command: Sequence[str], *, patience_s: float = 10.0) -> None:
        self._command = list(command)
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def redact(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row that the command writes; None if it drops the row.

        Raises `CommandFailed`; the next row finds a new process then.
        """
        try:
            line = self._ask(json.dumps(row).encode() + b"\n")
            document = json.loads(line) if line.strip() else None
        except (OSError, ValueError, CommandFailed) as error:
            self.close()
            raise CommandFailed(str(error)) from error
        if document is not None and not isinstance(document, dict):
            raise CommandFailed("it wrote something else than a row")
        return document

    def close(self) -> None:
        """End the process."""
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _ask(self, line: bytes) -> bytes:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        put, get = self._process.stdin.fileno(), self._process.stdout.fileno()
        end = time.monotonic() + self._patience_s
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            readable, writable, _ = select.select([get], [put] if line else [], [], max(0.0, left))
            if not readable and not writable:
                raise CommandFailed(f"it gave nothing within {self._patience_s:.0f} s")
            if writable:
                line = line[os.write(put, line) :]
            if readable:
                piece = os.read(get, 65536)
                if not piece:
                    raise CommandFailed("it ended")
                self._unread += piece
                if len(self._unread) > _LONGEST_LINE:
                    raise CommandFailed("its line is too long")
        answer, _, self._unread = self._unread.partition(b"\n")
        return answer
