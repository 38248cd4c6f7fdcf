"""Compiled files for images whose own program starts the server.

A program of ours comes before the image's entrypoint: it compares the files, copies them to where
the engine looks for them, and becomes that entrypoint.
"""

from __future__ import annotations

from dataclasses import replace

from packager.core.plan import Plan
from packager.core.serving import SERVING_DIR, RenderedFile, ServingConfig
from packager.core.share import share_dir
from packager.engines.compile_caches import find_caches

PROGRAM = "with_compiled.py"
MODULES = (PROGRAM, "compiled_cache.py")  # from containers/serving/vllm


def with_compiled(config: ServingConfig, plan: Plan) -> ServingConfig:
    """Return the configuration with what makes compiled files ready; the same without any."""
    caches = find_caches(plan.container) if plan.compiler else None
    if caches is None or not caches.entrypoint:
        return config
    return replace(
        config,
        files=(*config.files, *_files()),
        env={**config.env, **caches.rendered()},
        entrypoint=("python3", f"{SERVING_DIR}/{PROGRAM}", *caches.entrypoint),
        cmd=caches.cmd,
    )


def _files() -> tuple[RenderedFile, ...]:
    shipped = share_dir("containers") / "serving" / "vllm"
    return tuple(
        RenderedFile(path=f"{SERVING_DIR}/{name}", data=(shipped / name).read_bytes())
        for name in MODULES
    )
