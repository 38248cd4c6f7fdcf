"""The worker that keeps compile caches, with a server that is a stand-in for vLLM.

The launcher and what it does with compiled files are the real ones; only their place for
copies is another, so that tests do not meet.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.free_ports import free_port
from tests.support.workers import SERVING, compile_with, load

COMPILED_CACHE = load(SERVING / "vllm" / "compiled_cache.py")

# Compiles one file where there is none, as its argument says otherwise.
SERVER = """
import http.server, json, os, pathlib, sys
port, way = int(sys.argv[1]), sys.argv[2]
caches = pathlib.Path(os.environ["CACHES"])
code = caches / "inductor/ab/code.so"
seen = code.exists()
if not seen or way == "again":
    code.parent.mkdir(parents=True, exist_ok=True)
    (code.with_name("second.so") if seen else code).write_bytes(b"machine code")
(caches / "inductor/locks").mkdir(exist_ok=True)
(caches / "inductor/locks/x.lock").touch()
if way == "rewrite" and seen:
    code.write_bytes(b"other code")
if way == "dies" and seen:
    sys.exit(3)
took = 1.5 if seen else 20.25
print(f"INFO init engine (profile, create kv cache) took {took} s", flush=True)

asked = []

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        asked.append(self.path)
        if way == "loads" and len(asked) < 4:
            self.send_response(503); self.end_headers(); return
        if way == "refuses":
            self.send_response(400); self.end_headers(); return
        text = "other" if way == "answers" and seen else "text"
        body = json.dumps({"choices": [{"text": text, "finish_reason": "length"}]}).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class Worker:
    """One run of the worker, with everything below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "output"
        self.copy = root / "copy"
        serving = root / "serving"
        for place in (serving, self.output, root / "work"):
            place.mkdir()
        (serving / "launch.py").write_bytes((SERVING / "vllm/launch.py").read_bytes())
        source = (SERVING / "vllm/compiled_cache.py").read_text()
        elsewhere = source.replace('Path("/tmp/packager-compiled")', f"Path({str(self.copy)!r})")
        assert elsewhere != source
        (serving / "compiled_cache.py").write_text(elsewhere)
        (root / "server.py").write_text(SERVER)

    def run(self, way: str = "", *, by_entrypoint: bool = False, **changes: Any) -> dict[str, Any]:
        port = free_port()
        argv = [sys.executable, str(self.root / "server.py"), str(port), way]
        env = {"PACKAGER_COMPILED": str(self.output), "CACHES": str(self.copy)}
        serving = self.root / "serving"
        (serving / "command.json").write_text(json.dumps({"argv": argv, "env": env}))
        if by_entrypoint:
            launcher = [sys.executable, str(serving / "with_compiled.py"), *argv]
        else:
            launcher = [sys.executable, str(serving / "launch.py")]
        here = COMPILED_CACHE.describe_machine({})
        parameters = {
            "command": launcher,
            "directory": str(self.root),
            "env": {"PATH": "/usr/bin:/bin", **env},
            "verify_env": {},
            "serving_dir": str(serving),
            "port": port,
            "ready_s": 30,
            "requests": [["/v1/completions", {"prompt": "x"}]],
            "engine": {"name": "pydantic", "version": importlib.metadata.version("pydantic")},
            "target": {name: here[name] for name in ("machine", "isa", "threads")},
            **changes,
        }
        return compile_with("vllm-cache", self.root, parameters)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def test_what_a_start_compiles_is_kept_with_a_manifest(worker: Worker) -> None:
    result = worker.run()

    assert "error" not in result, result
    assert result["files"] == ["inductor/ab/code.so", "manifest.json"]  # no locks
    details = result["details"]
    assert (details["init_seconds_without"], details["init_seconds"]) == (20.25, 1.5)
    manifest = json.loads((worker.output / "manifest.json").read_text())
    assert set(manifest["for"]) == {"machine", "isa", "threads"}
    assert list(manifest["files"]) == ["inductor/ab/code.so"]


def test_a_server_that_is_healthy_before_it_has_loaded_is_asked_again(worker: Worker) -> None:
    """As DJL Serving of LMI is, which starts by an entrypoint of its own."""
    (worker.root / "serving/with_compiled.py").write_bytes(
        (SERVING / "vllm/with_compiled.py").read_bytes()
    )
    result = worker.run("loads", by_entrypoint=True)

    assert "error" not in result, result
    assert result["files"] == ["inductor/ab/code.so", "manifest.json"]


@cases("what_a_second_start_does_not_use_is_no_result")
def test_what_a_second_start_does_not_use_is_no_result(worker: Worker, way: str, said: str) -> None:
    error = worker.run(way)["error"]

    assert error["class"] == "internal"
    assert said in error["message"]


@cases("another_machine_or_engine_than_the_plan_s_is_refused_before_a_start")
def test_another_machine_or_engine_than_the_plan_s_is_refused_before_a_start(
    worker: Worker, changes: dict[str, Any], said: str
) -> None:
    error = worker.run(**changes)["error"]

    assert said in error["message"]
    assert not (worker.root / "work/compiling.log").exists()
