"""Ask every model of vLLM what it can, with the interpreter of the image; keep the answers.

    python3 inspect_models.py DIR

They are written as vLLM itself writes them below its cache, here DIR, each with the digest of
the code that answered.  vLLM asks one model in a process of its own; here one process asks all,
in the time of one.  A model whose code cannot be loaded, because a package is not in the
image, has no answer: it cannot be served either.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

FEWEST = 100  # a version that is asked otherwise must not pass for one without models


def main(cache: Path) -> int:
    os.environ["VLLM_CACHE_ROOT"] = str(cache)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from vllm.model_executor.models import registry

    logging.disable(logging.ERROR)
    registry._run_in_subprocess = lambda ask: ask()
    for model in registry.ModelRegistry.models.values():
        try:
            model.inspect_model_cls()
        except Exception as error:
            print(f"{model.class_name}: {error}")
    answers = list((cache / "modelinfos").glob("*.json"))
    for answer in answers:
        answer.chmod(0o644)  # whoever the container's user is
    print(f"{len(answers)} models answered")
    return 0 if len(answers) >= FEWEST else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
