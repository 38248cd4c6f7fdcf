"""An EAGLE-3 head as the speculators library's own commands train it: the reference.

    python drafts_bare.py data MODEL TEXTS.jsonl HELD_OUT.jsonl OUTPUT TOKENS LAYER...
    python drafts_bare.py train OPTION...    # `speculators train`, on processors

`data` tokenizes, has `speculators prepare-data` make the data set, and computes the hidden
states with transformers; the library itself would ask a vLLM server for them.  Nothing of
packager is in here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def prepare(model: str, train: str, held_out: str, output: str, tokens: str, *layers: str) -> None:
    """Write the data set, the texts to validate with at its end, and the states beside it."""
    place = Path(output)
    place.mkdir(parents=True)
    began = time.perf_counter()
    rows = [row for path in (train, held_out) for row in rows_of(path, model, int(tokens))]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = time.perf_counter()
    command = [str(Path(sys.executable).with_name("speculators")), "prepare-data"]
    command += ["--model", model, "--data", str(place / "rows.jsonl"), "--seq-length", tokens]
    command += ["--output", str(place / "shuffled"), "--num-preprocessing-workers", "1"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    prepared = time.perf_counter()
    compute_states(model, place, rows, [int(layer) for layer in layers])
    print(
        json.dumps(
            {
                "tokenize_s": round(made - began, 2),
                "prepare_s": round(prepared - made, 2),
                "states_s": round(time.perf_counter() - prepared, 2),
            }
        )
    )


def rows_of(path: str, model: str, most: int) -> list[dict[str, list[int]]]:
    """Tokenize conversations; what is learned is what the assistant says up to its end."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    templated = tokenizer.apply_chat_template
    rows = []
    for line in Path(path).read_text().splitlines():
        turns = json.loads(line)["messages"]
        ids: list[int] = []
        said: list[bool] = []
        done = ""
        for number, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            asked = templated(turns[:number], tokenize=False, add_generation_prompt=True)
            whole = templated(turns[: number + 1], tokenize=False)
            for piece, answers in ((asked[len(done) :], False), (whole[len(asked) :], True)):
                found = tokenizer(piece, add_special_tokens=False)["input_ids"]
                ids += found
                said += [answers] * len(found)
            done = whole
        ids, said = ids[:most], said[:most]
        mask = [int(here and after) for here, after in zip(said, [*said[1:], False], strict=True)]
        rows.append({"input_ids": ids, "loss_mask": mask})
    return rows


def compute_states(
    model: str, place: Path, rows: list[dict[str, list[int]]], layers: list[int]
) -> None:
    """Write each text's states, in the order of the rows: `prepare-data` shuffles them."""
    import torch
    from datasets import load_from_disk
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    shuffled = load_from_disk(str(place / "shuffled"))
    where: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(shuffled):
        where.setdefault(tuple(row["input_ids"].tolist()), []).append(number)
    data = shuffled.select([where[tuple(row["input_ids"])].pop() for row in rows])
    data.save_to_disk(str(place / "data"))
    (place / "data" / "hidden_states").mkdir()
    reader = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    last: list[Any] = []
    reader.model.layers[-1].register_forward_hook(lambda _, __, state: last.append(state))
    with torch.inference_mode():
        for number, row in enumerate(data):
            ids = torch.as_tensor(row["input_ids"])
            states = reader.model(ids[None], output_hidden_states=True).hidden_states
            final = last.pop()
            final = final[0] if isinstance(final, tuple) else final
            stacked = torch.stack([*(states[layer][0] for layer in layers), final[0]], 1)
            save_file(
                {"hidden_states": stacked.contiguous(), "token_ids": ids.long()},
                place / "data" / "hidden_states" / f"hs_{number}.safetensors",
            )


def train() -> None:
    """Run the library's trainer, which wants an accelerator in four places."""
    import torch
    import torch._dynamo

    torch.accelerator.synchronize = lambda *_, **__: None
    import speculators.train.checkpointer as checkpointer
    import speculators.train.trainer as trainer
    import speculators.utils.util as util

    trainer.get_local_rank = lambda: "cpu"
    checkpointer.get_current_device = util.get_current_device = lambda: "cpu"
    autocast = torch.autocast
    torch.autocast = lambda device, dtype=None, **named: autocast(
        "cpu" if device == "cuda" else device,
        dtype=torch.bfloat16,
        enabled=dtype in (torch.bfloat16, torch.float16),
        **named,
    )
    torch._dynamo.config.disable = True  # compiling takes longer than the training
    from speculators.train.cli import main
    from speculators.train.config import TrainConfig

    main(TrainConfig.resolve())


if __name__ == "__main__":
    if sys.argv[1] == "data":
        prepare(*sys.argv[2:])
    else:
        sys.argv = ["speculators", *sys.argv[2:]]
        train()
