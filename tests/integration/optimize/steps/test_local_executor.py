"""Steps that run on this machine, and every way in which they fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from packager.core.errors import StepFailed
from packager.core.events import Event
from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.core.recipe import Estimate
from packager.optimize.steps.capacity import check_capacity
from packager.optimize.steps.failures import StepTimedOut, StepTooLarge
from tests.integration.optimize.steps.conftest import Run
from tests.support.cases import cases
from tests.support.commandline import TINY
from tests.support.places import ROOT
from tests.support.processes import is_alive
from tests.support.running_jobs import until
from tests.support.tool_steps import model_files, step


def test_a_step_leaves_its_files_and_says_how_it_went(tmp_path: Path, into: Path, run: Run) -> None:
    said: list[Event] = []

    result = run(step("copy", model_files(TINY), parameters={"seed": 3}), on_event=said.append)

    assert json.loads((into / "config.json").read_text())["demo"] == 3
    assert result.details == {"copied": True}
    assert result.peak_memory_bytes > 5_000_000
    assert any("copied config.json" in event.detail for event in said)  # type: ignore[union-attr]
    assert list((tmp_path / "work").iterdir()) == []


def test_inputs_that_are_no_local_files_are_written_out(into: Path, run: Run) -> None:
    config = ModelFile(path="config.json", role="config", content=Inline(b"{}"))

    run(step("copy", (config,)))

    assert (into / "config.json").read_text() == '{"demo": 0}'


def test_a_worker_sees_a_clean_place(into: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@localhost/simple")
    for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(name, raising=False)

    run(step("environment", env={"OMP_NUM_THREADS": "1"}))

    seen = json.loads((into / "env.json").read_text())
    assert set(seen) - {"LC_CTYPE"} == {
        *("CUDA_VISIBLE_DEVICES", "HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE", "HOME", "LANG"),
        *("OMP_NUM_THREADS", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"),
        *("PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUNBUFFERED", "TMPDIR", "TRANSFORMERS_OFFLINE"),
    }
    assert Path(seen["HOME"]).parent == Path((into / "cwd.txt").read_text()).parent


def test_a_worker_has_kernel_limits(into: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Else the suite under caps would test the same kernels as without."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")

    run(step("environment"))

    seen = json.loads((into / "env.json").read_text())
    assert (seen["ONEDNN_MAX_CPU_ISA"], seen["ATEN_CPU_CAPABILITY"]) == ("AVX2", "avx2")


@cases("failing")
def test_failures_have_own_errors(do: str, kind: str, words: str, tmp_path: Path, run: Run) -> None:
    with pytest.raises(StepFailed) as caught:
        run(step(do))

    assert type(caught.value).__name__ == kind
    assert words in caught.value.message
    assert caught.value.exit_code == 6
    assert list((tmp_path / "work").iterdir()) == []


def test_the_end_of_the_log_is_in_the_error_and_all_of_it_is_kept(tmp_path: Path, run: Run) -> None:
    with pytest.raises(StepFailed) as caught:
        run(step("status"))

    [log] = (tmp_path / "logs").glob("*-demo-*.log")
    assert caught.value.log == "last words"
    assert caught.value.hint == f"all of the log is in {log}"
    assert log.read_text() == "last words\n"


def test_a_stray_line_is_a_notice_when_the_result_is_right(tmp_path: Path, run: Run) -> None:
    result = run(step("one_stray_line", model_files(TINY)))

    assert result.notices == ("step 'demo' wrote 1 lines that are not events",)
    [log] = (tmp_path / "logs").glob("*-demo-*.log")
    assert "a library said this" in log.read_text()


@cases("hangs")
def test_a_step_that_hangs_is_ended(limits: dict[str, float], words: str, run: Run) -> None:
    began = time.monotonic()
    with pytest.raises(StepTimedOut, match=words):
        run(step("hang", **limits))

    assert time.monotonic() - began < 120  # it would hang for ten minutes


def test_what_a_worker_started_ends_with_it(tmp_path: Path, run: Run) -> None:
    pids = tmp_path / "pids"
    for timeout_s in (2.0, 10.0, 60.0):  # on a busy machine it may not have begun so soon
        with pytest.raises(StepTimedOut):
            run(step("orphan", parameters={"pids": str(pids)}, timeout_s=timeout_s))
        if pids.exists() and " " in pids.read_text():
            break

    assert not alive(pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_however_packager_ends(how: signal.Signals, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "from pathlib import Path\n"
        "from packager.cli import interrupts\n"
        "from tests.support.tool_steps import executor, step\n"
        f"root = Path({str(tmp_path)!r}); (root / 'into').mkdir()\n"
        "interrupts.install()\n"
        f"executor(root).run(step('orphan', parameters={{'pids': {str(pids)!r}}}), root / 'into')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: pids.exists() and pids.read_text().count(" ") == 1)
        process.send_signal(how)
        assert process.wait(120) != 0
        until(lambda: not alive(pids))
    finally:
        process.kill()
    if how != signal.SIGKILL:
        assert list((tmp_path / "work").iterdir()) == []


def test_a_step_too_large_for_the_machine_is_refused_before_it_starts(into: Path, run: Run) -> None:
    with pytest.raises(StepTooLarge, match=r"needs about 1000000\.0 GiB of memory"):
        run(step("copy", needs=Estimate(memory_bytes=10**6 << 30)))
    with pytest.raises(StepTooLarge, match=r"needs about 1000000\.0 TB of disk space"):
        run(step("copy", needs=Estimate(disk_bytes=10**18)))
    assert list(into.iterdir()) == []


@cases("beyond_memory")
def test_weights_beyond_memory_need_disk_space(memory_bytes: int, refused: bool) -> None:
    needs = Estimate(
        memory_bytes=100, least_memory_bytes=50, disk_bytes=10**9, spilled_bytes=4 * 10**9
    )
    have = {"memory_bytes": memory_bytes, "disk_bytes": 4e9, "gpus": 0.0}

    with pytest.raises(StepTooLarge) if refused else nullcontext() as failure:
        check_capacity(step("copy", needs=needs), have)

    if refused:
        assert "needs about 5.0 GB of disk space, 4.0 GB are free" in str(failure.value)


def test_steps_run_from_a_thread_too(run: Run) -> None:
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(run(step("copy", model_files(TINY)))))
    thread.start()
    thread.join(60)

    assert len(done) == 1


def alive(pids: Path) -> list[int]:
    found = [int(text) for text in pids.read_text().split()]
    return [pid for pid in found if is_alive(pid)]
