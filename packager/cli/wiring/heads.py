"""Services that read and write trained heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.optimize.drafts.train.run import HeadServices


def head_services_for(output: Path) -> HeadServices:
    """Choose who reads and writes a trained head; refuse a place that cannot be written."""
    from packager.optimize.drafts.train.head_files import (
        check_head_place,
        read_head,
        read_training,
        write_head,
    )
    from packager.optimize.drafts.train.run import HeadServices

    check_head_place(output)
    return HeadServices(
        read_report=read_training,
        read_head=read_head,
        write=lambda files: write_head(files, output),
    )
