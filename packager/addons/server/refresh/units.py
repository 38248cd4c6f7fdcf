"""What starts a refresh each hour: a line for cron, or a service and a timer for systemd. Pure."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

Unit = Literal["cron", "systemd"]


def unit_text(unit: Unit, name: str, file: Path, program: str, log: Path) -> str:
    """Return the text of a unit; `file` is absolute."""
    words = [program, "draft", "refresh", str(file), "--quiet"]
    if unit == "cron":
        command = f"{shlex.join(words)} >> {shlex.quote(str(log))} 2>&1"
        return f"17 * * * * {command.replace('%', chr(92) + '%')}\n"
    start = " ".join(_quoted(word) for word in words)
    return f"""# ~/.config/systemd/user/packager-refresh-{name}.service
[Unit]
Description=Next draft head of {name}

[Service]
Type=oneshot
ExecStart={start}
# 7: the gate kept the head that serves
SuccessExitStatus=7

# ~/.config/systemd/user/packager-refresh-{name}.timer
[Unit]
Description=Next draft head of {name}, each hour

[Timer]
OnCalendar=hourly
RandomizedDelaySec=600
Persistent=true

[Install]
WantedBy=timers.target
"""


def _quoted(word: str) -> str:
    """Return a word as systemd reads it: % and $ are its own."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'
