"""The functions that wait, to be awaited: `record = await aio.build(…)`.

Each runs in a thread of its own, with the same arguments.  A task that is cancelled ends at once;
the work it waited for goes on to its end, as a process's does that nobody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from packager.api import images, measuring, serving

Given = ParamSpec("Given")
Made = TypeVar("Made")


def _awaited(function: Callable[Given, Made]) -> Callable[Given, Coroutine[Any, Any, Made]]:
    @wraps(function)
    async def wait(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        return await asyncio.to_thread(function, *args, **kwargs)

    return wait


build = _awaited(images.build)
push = _awaited(images.push)
run = _awaited(serving.run)
bench = _awaited(measuring.bench)
evaluate = _awaited(measuring.evaluate)
tune = _awaited(measuring.tune)
