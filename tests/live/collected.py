"""A worker's report for programs that call it in their own process."""

from __future__ import annotations

from typing import Any

from packager_worker import Report


class Collected(Report):
    """Keeps what a worker says, in place of sending it."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.notes: list[str] = []
        self.steps: list[tuple[str, float, float]] = []

    def _say(self, line: dict[str, Any]) -> None:
        if line["event"] == "note":
            self.notes.append(line["message"])
        elif line["event"] == "progress":
            self.steps.append((line["message"], line["done"], line["total"]))
