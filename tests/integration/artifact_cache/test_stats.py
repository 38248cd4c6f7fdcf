"""Every look-up is counted, by however many processes, and costs nobody anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from artifact_cache.stats import StatsLog


def test_many_processes_lose_no_count(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    code = (
        "import sys, pathlib\n"
        "from artifact_cache import stats\n"
        "stats.COMPACT_BYTES, stats.LOCK_WAIT_S = 2000, 60\n"  # a busy machine drops counts by then
        "log = stats.StatsLog(pathlib.Path(sys.argv[1]))\n"
        "for _ in range(200): log.count('hit', tier='local', kind='neuron', size=1)\n"
    )
    path = root / "stats.jsonl"
    processes = [subprocess.Popen([sys.executable, "-c", code, path]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]

    (total,) = StatsLog(path).totals()
    assert total.count == total.bytes == 600
    assert path.stat().st_size < 4000
