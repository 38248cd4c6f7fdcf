#!/opt/vllm/bin/python3
"""The `vllm` command of this image: vLLM's own, which starts with less work.

vLLM loads the code of a model in a process of its own to ask what it can, and keeps the
answer in its cache for the next start: a third of a start, and a container has no next one.
This image has the answers of every model (`inspect_models.py`); the cache gets links to those
that it lacks.  vLLM compares each with the digest of the model's code and asks anew
where that differs.

Python looks for garbage again and again while modules are loaded, which make a million
objects and no garbage: a third of loading.  It is told not to, until they are there.

Processes that vLLM starts are forked from one that has loaded all this (`forked_workers`).  One
that is spawned imports this program again, under another name.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path

INFOS = "modelinfos"  # as vLLM calls them in its cache
SHIPPED = Path(__file__).resolve().parents[1] / "share" / "vllm"


def main() -> int:
    from vllm.entrypoints.cli.main import main as vllm_main

    result: int | None = vllm_main()
    return result or 0


def cache_of(environment: Mapping[str, str]) -> Path:
    """Return the directory where vLLM keeps what it found out."""
    caches = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(environment.get("VLLM_CACHE_ROOT", f"{caches}/vllm")).expanduser()


def add_model_infos(shipped: Path, cache: Path) -> None:
    """Link the answers that the cache lacks to those of the image; without them vLLM asks.

    A cache may be shared: a link leads nowhere in an image without answers, which vLLM takes
    for none and replaces, and to its own answers in another version of this one.
    """
    with contextlib.suppress(OSError):
        place = cache / INFOS
        place.mkdir(parents=True, exist_ok=True)
        for info in (shipped / INFOS).iterdir():
            with contextlib.suppress(FileExistsError):
                (place / info.name).symlink_to(info)


def load_modules(name: str) -> None:
    """Load what a process with this name of its main program loads in any case."""
    gc.disable()
    if name == "__main__":
        import vllm.entrypoints.cli.serve
    else:
        import vllm.v1.engine.core
        import vllm.v1.worker.cpu_worker  # noqa: F401
    gc.enable()
    gc.freeze()  # they stay; vLLM does the same when all is loaded


def load_for_server() -> None:
    """Load modules, and let the processes of this server have them."""
    import forked_workers

    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.getproctitle()  # finds where titles are, by the environment as it still is
    os.environ.update(forked_workers.AHEAD)
    load_modules("__main__")
    site_packages = Path(forked_workers.__file__).parent
    forked_workers.share_modules(site_packages, lambda: load_modules("__mp_main__"))


if __name__ == "__main__":
    add_model_infos(SHIPPED, cache_of(os.environ))
    if sys.argv[1:2] == ["serve"]:
        load_for_server()
    else:
        load_modules(__name__)
    sys.exit(main())
if __name__ == "__mp_main__":
    load_modules(__name__)
