"""Who reads and writes trained heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.jobs.train_draft import HeadTools


def head_tools_for(output: Path) -> HeadTools:
    """Choose who reads and writes a trained head; refuse a place that cannot be written."""
    from packager.adapters.training import check_head_place, read_head, read_training, write_head
    from packager.jobs.train_draft import HeadTools

    check_head_place(output)
    return HeadTools(
        read_report=read_training,
        read_head=read_head,
        write=lambda files: write_head(files, output),
    )
