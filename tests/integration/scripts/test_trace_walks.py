"""`scripts/trace-walks` notes who handles a value in a real build."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.places import ROOT
from tests.support.processes import run_python


def test_an_image_target_is_followed_from_its_text_to_the_sink(tmp_path: Path) -> None:
    words = ["--value", "image target", "--format", "json", "--cache-dir", str(tmp_path)]
    done = run_python(str(ROOT / "scripts/trace-walks"), *words)

    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout).values()
    handlers = [
        "packager/cli/wiring/settings.py:parse_output",  # the text
        "packager/images/target.py:parse_target",  # makes the value
        "packager/images/layout/sink.py:LayoutSink.__init__",  # reads its fields
    ]
    assert [one for one in found["walk"] if one in handlers] == handlers
    assert found["returns"] == found["entries"] - found["rooms"]
