"""Text that is safe to print: one line stays one line, and reads in the order it is written.

Whatever reaches a terminal, a log or a message goes through `escape`.  Names, messages and logs
come from registries, models, servers and tools; a line feed in one of them would let it write a
line that looks like ours, and a direction mark would reorder the line around it.
"""

from __future__ import annotations

import re

from artifact_cache import secrets

QUOTED_BYTES = 64 * 1024  # of an answer, for `quote_answer`: it cuts no secret that it looks for
_NOT_SHOWN = "(not shown: a secret was sent that is too short to be found in it)"

# Letters and marks that show as nothing at all, though Unicode does not count them as format.
_UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
_EMOJI = "\u2190-\u2bff\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U0001faff"
_JOINED = re.compile(f"(?<=[{_EMOJI}])\u200d(?=[{_EMOJI}])")  # one emoji made of several
_SPACES = "\u00a0\u2007\u202f\u3000"  # of French, of numbers and of CJK text; as harmless as ' '
_COLOUR = re.compile(r"\x1b\[[;?0-9]*[a-zA-Z]")

# Who logs in, in a URL, and in a reference without a scheme that is no NAME:TAG@DIGEST.
_USERINFO = re.compile(r"(?<=://)[^\s/?#]*@")
_BARE_USERINFO = re.compile(
    r"(?<![\w/.:-])[\w.%+-]{1,128}:[^\s/@]{1,256}@(?!sha(?:256|384|512):)(?=[\w.\[-]{1,255}[:/])"
)


def hide_userinfo(text: str) -> str:
    """Write `***` for names and passwords in front of the hosts of addresses."""
    if "@" not in text:
        return text
    return _BARE_USERINFO.sub("***@", _USERINFO.sub("***@", text))


def quote_answer(said: str | bytes, most: int) -> str:
    """Return at most `most` characters of what a server said, on one line and without secrets.

    Give all of it, or `QUOTED_BYTES`: of a text that was cut half a secret would be left.
    """
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    if text and secrets.SECRETS.has_short:
        return _NOT_SHOWN
    shown = secrets.hide_secrets(text)
    if len(said) >= QUOTED_BYTES:
        shown = shown[: -secrets.SECRETS.longest or None]
    return escape(shown[:most])


def escape(text: str) -> str:
    r"""Write every character that a terminal would obey or hide as `\n`, `\x1b` or `\u202e`.

    Control and format characters, line and paragraph separators, direction marks, zero-width,
    private and unassigned characters, and halves of surrogate pairs; secrets that were sent become
    `***`.  Letters of all scripts and emoji stay.  Escaping twice changes nothing: a backslash is
    left as it is.
    """
    text = secrets.hide_secrets(text)
    if text.isascii() and text.isprintable():
        return text
    return "\u200d".join(_escaped(part) for part in _JOINED.split(text))


def quoted_lines(text: str, mark: str = "| ") -> list[str]:
    """Split the output of a tool or a server into lines that begin with `mark`, as none of ours.

    Colours are left out.  Lines end at line feeds; what else a terminal takes for an end of a
    line is escaped.
    """
    plain = _COLOUR.sub("", text).replace("\r\n", "\n").rstrip()
    return (
        [f"{mark}{escape(line.expandtabs())}".rstrip() for line in plain.split("\n")]
        if plain
        else []
    )


def _escaped(text: str) -> str:
    return "".join(
        letter
        if (letter.isprintable() and letter not in _UNSEEN) or letter in _SPACES
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
