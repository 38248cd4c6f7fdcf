"""Changes of a model's directory, as rows of a table state them: `corpus/damaged.toml`."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.doubles.models import write_json

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is done to a directory, by the names of its files, in this order."""

    remove: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)  # text
    octets: Mapping[str, str] = field(default_factory=dict)  # hexadecimal digits
    data: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # as JSON
    cut: Mapping[str, int] = field(default_factory=dict)  # bytes off the end
    index: Mapping[str, str] = field(default_factory=dict)  # shards of tensors
    link: Mapping[str, str] = field(default_factory=dict)  # targets
    pipe: tuple[str, ...] = ()
    socket: tuple[str, ...] = ()

    def apply(self, directory: Path) -> None:
        """Change a directory."""
        for name in self.remove:
            (directory / name).unlink()
        for name, other in self.rename.items():
            (directory / name).rename(directory / other)
        for name, text in self.write.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(text)
        for name, digits in self.octets.items():
            (directory / name).write_bytes(bytes.fromhex(digits))
        for name, value in self.data.items():
            write_json(directory / name, value)
        for name, count in self.cut.items():
            os.truncate(directory / name, (directory / name).stat().st_size - count)
        if self.index:
            stated = json.loads((directory / INDEX).read_text())
            write_json(
                directory / INDEX, stated | {"weight_map": stated["weight_map"] | self.index}
            )
        for name, target in self.link.items():
            (directory / name).symlink_to(target)
        for name in self.pipe:
            os.mkfifo(directory / name)
        for name in self.socket:
            os.mknod(directory / name, stat.S_IFSOCK | 0o600)
