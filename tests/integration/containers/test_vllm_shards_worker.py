"""The worker that splits weights into ranks, with a server that is a stand-in for vLLM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases, read_tables
from tests.support.free_ports import free_port
from tests.support.workers import TOOLS, load, run_worker

PARAMETERS = read_tables(__file__)["parameters"]


SAVER = TOOLS / "vllm-shards" / "rank_saver.py"

# A Python that is asked for vLLM's version, or to be its server.  It writes what the load format
# of the first start writes, reads what the second one reads, and may do either wrongly.
ENGINE = """#!{python}
import http.server, importlib.metadata, json, os, pathlib, sys
if sys.argv[1] == "-I":
    print("0.32.0+cpu")
    sys.exit()
way = os.environ["WAY"]
told = dict(zip(sys.argv[3::2], sys.argv[4::2]))
if sys.argv[1] == "serve":
    assert pathlib.Path(sys.argv[0]).name == "vllm", sys.argv
    told["--model"] = sys.argv[2]
else:
    assert sys.argv[1:3] == ["-m", "vllm.entrypoints.openai.api_server"], sys.argv
model, load_format = pathlib.Path(told["--model"]), told["--load-format"]

def write(name, tensors):
    header, at = {{}}, 0
    for tensor, size in tensors.items():
        header[tensor] = {{"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}}
        at += size
    text = json.dumps(header).encode()
    into = pathlib.Path(os.environ["PACKAGER_RANKS_INTO"])
    (into / name).write_bytes(len(text).to_bytes(8, "little") + text + bytes(at - (way == "short")))

if load_format == "packager_ranks":
    [point] = importlib.metadata.entry_points(group="vllm.general_plugins")
    assert callable(point.load()), point
    assert (model / "model.safetensors").exists()
    for rank in range(1 if way == "one rank" else 2):
        size = 10 if way == "lost" else 600
        write(f"model-rank-{{rank}}-part-0.safetensors", {{"a": size}})
        more = {{"c": 600}} if way == "uneven" and rank else {{"b": size}}
        write(f"model-rank-{{rank}}-part-1.safetensors", more)
    if way == "stray":
        write("model.safetensors", {{"a": 1}})
else:
    assert load_format == "sharded_state", load_format
    assert "PACKAGER_RANKS_INTO" not in os.environ
    names = sorted(path.name for path in model.iterdir())
    assert names == ["config.json", *(f"model-rank-{{r}}-part-{{p}}.safetensors"
                                      for r in (0, 1) for p in (0, 1))], names
    if way == "dies":
        sys.exit(3)
print("Loading weights took 1.50 seconds", flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        text = "other" if way == "answers" and load_format == "sharded_state" else "text"
        body = json.dumps({{"choices": [{{"text": text, "finish_reason": "length"}}]}}).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", int(told["--port"])), Handler).serve_forever()
"""


class Worker:
    """One run of the worker, with everything below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output, self.model = root / "output", root / "model"
        for place in (self.output, self.model, root / "work"):
            place.mkdir()
        (self.model / "config.json").write_text("{}")
        (self.model / "model.safetensors").write_bytes(bytes(2000))
        (self.model / "model.safetensors.index.json").write_text("{}")
        self.python = root / "python3"
        self.python.write_text(ENGINE.format(python=sys.executable))
        self.python.chmod(0o755)

    def run(self, way: str = "", path: str = "/usr/bin:/bin", **changes: Any) -> dict[str, Any]:
        port = free_port()
        parameters = {
            **PARAMETERS,
            "pythons": [str(self.root / "none"), str(self.python)],
            "env": {"PATH": "/usr/bin:/bin", "WAY": way},
            "port": port,
            **changes,
        }
        inputs = {"model": str(self.model)}
        return run_worker("vllm-shards", self.root, parameters, inputs=inputs, PATH=path)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


@pytest.mark.parametrize("named", [True, False], ids=["name", "path"])
@pytest.mark.parametrize("own", [True, False], ids=["vllm", "module"])
def test_what_loads_again_and_answers_alike_is_kept_alone(
    worker: Worker, own: bool, named: bool
) -> None:
    """The server is started by the image's own command: it may know how to start sooner.

    An image's Python is named as its PATH finds it, which is where its command is looked for.
    """
    if own:
        worker.python.with_name("vllm").symlink_to(worker.python)
        worker.python.write_text(worker.python.read_text().replace(', "-m"', ', "--"'))
    found = {"pythons": ["python3"], "path": f"{worker.root}:/usr/bin:/bin"} if named else {}
    result = worker.run(**found)

    assert "error" not in result, result
    assert result["files"] == [
        f"model-rank-{rank}-part-{part}.safetensors" for rank in (0, 1) for part in (0, 1)
    ]
    details = result["details"]
    assert (details["load_seconds_without"], details["load_seconds"]) == (1.5, 1.5)
    assert details["answers"] == [["text", None, "length"]]


@cases("what_cannot_be_loaded_again_is_no_result")
def test_what_cannot_be_loaded_again_is_no_result(
    worker: Worker, way: str, kind: str, said: str
) -> None:
    error = worker.run(way)["error"]

    assert error["class"] == kind
    assert said in error["message"]


def test_another_engine_than_the_plan_s_is_refused_before_a_start(worker: Worker) -> None:
    error = worker.run(engine={"name": "vllm", "version": "0.33.0"})["error"]

    assert "the plan is for vllm 0.33.0, the base image has 0.32.0+cpu" in error["message"]
    assert list(worker.output.iterdir()) == []


def test_ranks_are_written_when_they_are_filled_and_before_kernels_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """vllm#41174: what is saved after processing lacks parameters, and does not load."""
    done: list[Any] = []
    loaders: dict[str, type] = {}

    class Default:
        def __init__(self, config: Any) -> None:
            assert config.load_format == "auto"  # it refuses formats that it does not know

        def load_weights(self, model: Any, config: Any) -> None:
            done.append(("filled", model, config))

    class Sharded:
        @staticmethod
        def save_model(model: Any, path: str, *, max_size: int) -> None:
            done.append(("saved", model, path, max_size))

    def register(name: str) -> Any:
        return lambda loader: loaders.setdefault(name, loader)

    root = "vllm.model_executor.model_loader"
    for name, contents in {
        "vllm": {},
        "vllm.model_executor": {},
        root: {"register_model_loader": register},
        f"{root}.default_loader": {"DefaultModelLoader": Default},
        f"{root}.sharded_state_loader": {"ShardedStateLoader": Sharded},
    }.items():
        module = type(sys)(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("PACKAGER_RANKS_INTO", str(tmp_path))
    monkeypatch.setenv("PACKAGER_RANKS_PART_BYTES", "4096")
    asked = type("LoadConfig", (), {"load_format": "packager_ranks"})()

    load(SAVER).register()
    loaders["packager_ranks"](asked).load_weights("model", "config")

    assert done == [("filled", "model", "config"), ("saved", "model", str(tmp_path), 4096)]
    assert asked.load_format == "packager_ranks"
