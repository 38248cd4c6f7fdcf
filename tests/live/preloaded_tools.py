"""Tools whose workers are forks of a process that has their libraries, which take long to load.

A directory for `PACKAGER_TOOLS`: each environment in it is that of the real one, but for its
Python, which asks the process to run a worker and ends as the worker does.  What is asked to
compute otherwise than the process (other threads, other instructions) is run by the real Python
of the environment, and so is what is no program in a file.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from packager.cli.wiring.settings import Settings
from packager.cli.wiring.techniques import environments_for
from packager.core.share import share_dir
from packager.optimize.steps.protocol import BASE_ENV
from tests.live.processors import AVX2, caps

SERVER = Path(__file__).with_name("preloaded.py")
LIBRARIES = {
    "llmcompressor": (
        *("torch", "transformers", "transformers.models.llama.modeling_llama"),
        *("llmcompressor", "llmcompressor.pipelines.sequential.pipeline"),
        "llmcompressor.pipelines.data_free.pipeline",
        "compressed_tensors.compressors.model_compressors.model_compressor",
    ),
    "draft-heads": (
        *("torch", "transformers", "transformers.models.llama.modeling_llama"),
        *("speculators.models.eagle3", "speculators.train.data"),
    ),
}
THREADS = {"OMP_NUM_THREADS": "1"}  # what steps with small models are told

# -S: nothing of the environment is needed here, and looking for it takes longer than all else.
PYTHON = """\
#!{python} -IS
import json, os, socket, sys
same = all(os.environ.get(name) == value for name, value in {same!r}.items())
if not same or not sys.argv[1:2] or not sys.argv[1].endswith(".py"):
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
asked = dict(command=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ))
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({address!r})
    socket.send_fds(server, [json.dumps(asked).encode()], [1, 2])
    status = int(server.recv(64) or b"70")
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextmanager
def preloaded_tools(place: Path, *tools: str) -> Iterator[dict[str, str]]:
    """Start a process for each tool; yield the variable that makes packager use them."""
    environments = environments_for(Settings())
    with ExitStack() as processes:
        for tool in tools:
            real = environments.place(tool)
            address = place / f"{tool}.sock"
            processes.enter_context(_process(real / "bin/python", address, LIBRARIES[tool]))
            ours = place / "tools" / real.name
            (ours / "bin").mkdir(parents=True)
            shutil.copy(real / "made.json", ours)
            text = PYTHON.format(
                python=Path(sys.executable).resolve(),
                same={**dict.fromkeys(AVX2), **caps(), **THREADS},
                real=str(real / "bin/python"),
                address=str(address),
            )
            (ours / "bin/python").write_text(text)
            (ours / "bin/python").chmod(0o755)
        yield {"PACKAGER_TOOLS": str(place / "tools")}


@contextmanager
def _process(python: Path, address: Path, libraries: tuple[str, ...]) -> Iterator[None]:
    """Load the libraries once, and run workers for whoever connects; ends with the block."""
    helper = str(share_dir("containers") / "tools" / "common")
    env = {**BASE_ENV, **THREADS, **caps(), "PATH": os.environ["PATH"], "PYTHONPATH": helper}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(address))
        listening.listen()
        process = subprocess.Popen(
            [str(python), str(SERVER), str(listening.fileno()), *libraries],
            env=env | {"CUDA_VISIBLE_DEVICES": ""},
            pass_fds=(listening.fileno(),),
            stdin=subprocess.PIPE,
        )
    try:
        yield
    finally:
        process.communicate()
