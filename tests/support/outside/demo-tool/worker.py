"""Does what its parameter says: mostly, fail in one of the ways in which tools fail."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from packager_worker import BadInput, Rejected, run


def copy(spec, report):
    for index, source in enumerate(sorted(spec.inputs["model"].rglob("*"))):
        if source.is_file():
            target = spec.output / source.relative_to(spec.inputs["model"])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            report.progress(f"copied {source.name}", index + 1)
    config = json.loads((spec.output / "config.json").read_text())
    config["demo"] = spec.parameters.get("seed", 0)
    (spec.output / "config.json").write_text(json.dumps(config))
    return {"copied": True}


def rounded(spec, report):
    """Take the last 4 bits of each bfloat16 weight away, without any library."""
    copy(spec, report)
    kept = bytes(byte & 0xF0 for byte in range(256))
    for shard in sorted(spec.output.glob("*.safetensors")):
        data = bytearray(shard.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        for name, told in json.loads(data[8:start]).items():
            if name.endswith("_proj.weight") and told["dtype"] == "BF16":
                begin, end = (start + at for at in told["data_offsets"])
                data[begin:end:2] = data[begin:end:2].translate(kept)
        shard.write_bytes(data)
        report.progress(f"rounded {shard.name}")


def environment(spec, report):
    (spec.output / "env.json").write_text(json.dumps(dict(os.environ)))
    (spec.output / "cwd.txt").write_text(str(Path.cwd()))


def orphan(spec, report):
    """Start a daemon in a session of its own, say its pid, and wait."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    Path(spec.parameters["pids"]).write_text(f"{os.getpid()} {child.pid}")
    report.progress("waiting")
    time.sleep(600)


def memory(spec, report):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return {"size": len(bytearray(1 << 34))}


def eat(spec, report):
    """Use memory until somebody minds."""
    eaten = []
    while True:
        eaten.append(b"x" * (1 << 20))


def count_up(spec, report):
    """Go on by one step each time, and fail until all are done."""
    count = Path("count")
    done = (count.read_text() if count.exists() else "") + "x"
    count.write_text(done)
    if len(done) < spec.parameters["until"]:
        raise RuntimeError("the power went off")
    (spec.output / "count").write_text(done)


def half_a_result(spec, report):
    spec.result.write_text('{"protocol": 1, "fil')
    os._exit(0)


def babble(spec, report):
    for _ in range(1000):
        os.write(report._descriptor, b"loading checkpoint shards\n")
    time.sleep(600)


def one_stray_line(spec, report):
    os.write(report._descriptor, b"a library said this\n")
    return copy(spec, report)


def endless_line(spec, report):
    for _ in range(400):
        os.write(report._descriptor, b"x" * 65536)
    time.sleep(600)


def full_disk(spec, report):
    (spec.output / "half").write_bytes(b"x")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def link(spec, report):
    (spec.output / "config.json").symlink_to("/etc/hostname")


def broken_model(spec, report):
    copy(spec, report)
    for shard in spec.output.glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:100])


def crash(spec, report):
    sys.stderr.write("about to fail\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def refuse(spec, report):
    raise Rejected("the model has 7 heads, 8 are needed", "use another model")


def missing(spec, report):
    raise BadInput("config.json names no architecture")


def status(spec, report):
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os._exit(3)


def hang(spec, report):
    report.progress("started")
    time.sleep(600)


def counted(spec, report):
    """Note the beginning and the end of a run that takes its time."""
    with Path(spec.parameters["ran"]).open("a") as ran:
        ran.write("begun\n")
    time.sleep(float(spec.parameters["seconds"]))
    done = copy(spec, report)
    with Path(spec.parameters["ran"]).open("a") as ran:
        ran.write("ended\n")
    return done


def slow(spec, report):
    with Path(spec.parameters["ran"]).open("a") as ran:
        ran.write("x")
    time.sleep(float(spec.parameters.get("seconds") or 1.0))
    return copy(spec, report)


WORK = {
    name: work
    for name, work in list(globals().items())
    if callable(work) and getattr(work, "__module__", "") == "__main__"
}


def work(spec, report):
    return WORK[spec.parameters["do"]](spec, report)


run(work)
