"""The training of the two example models, tiny-llama and tiny-llama-draft.

    python -m venv venv && venv/bin/pip install -r train-requirements.txt
    venv/bin/python train.py --out ..

Needs torch==2.13.0 and transformers==5.17.0 (`train-requirements.txt`) and two CPU cores: the
committed weights took 40 minutes of cores that were busy with other work; idle ones should need
about a quarter of that.  Progress goes to stderr; the last line on stdout is a JSON object with
the figures, which also go into each model's `README.md`.

The committed weights are files under test: training never runs in a build or a test.  A rerun
gives models of the same quality but not of the same bytes, since the corpus is the running
interpreter's own library and floating-point sums depend on the processor.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import string
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from corpus import read_corpora
from measure import agreement, answer, describe, score_held_out
from saved_files import save_model
from tokenizer import CONTEXT, VOCAB_SIZE, encode, train_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS_PER_STEP = 2048
SHORT_CONTEXT = 256  # attention over the full context costs twice as much per token
CHAT_SHARE = 0.5  # of the rows; chats are far fewer bytes than sources and would hardly show

QUESTIONS = (
    "What does copyfile in the shutil module do?",
    "What is Thread in the threading module?",
    "What does loads in the json module do?",
    "What does fnmatch in the fnmatch module do?",
    "Briefly: What does median in the statistics module do?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One model's shape and the share of the budget it gets."""

    name: str
    summary: str
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    learning_rate: float  # of AdamW; Muon's does not depend on the width
    full_context_from: float  # share of the budget after which rows fill the context
    seconds_share: float
    shard_size: str


# Every weight matrix has both sides divisible by 128, the group size of 4-bit formats.
MODEL = Recipe(
    name="tiny-llama",
    summary="a Llama of four layers that answers questions about Python in the style of docstrings",
    hidden_size=256,
    intermediate_size=768,
    layers=4,
    heads=4,
    kv_heads=2,
    learning_rate=3e-3,
    full_context_from=0.9,
    seconds_share=1.0,
    shard_size="3MB",  # three shards or more, so that sharded loading is exercised
)
DRAFT = Recipe(
    name="tiny-llama-draft",
    summary="the draft of tiny-llama for speculative decoding: one layer, the same tokenizer",
    hidden_size=128,
    intermediate_size=384,
    layers=1,
    heads=2,
    kv_heads=2,
    learning_rate=5e-3,
    full_context_from=0.5,  # one layer learns far positions slowly: 0.9 leaves them unusable
    seconds_share=0.25,
    shard_size="5GB",
)


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to train: seconds where given, for a machine too slow or too busy for the steps."""

    steps: int
    seconds: float | None

    def progress(self, step: int, elapsed_s: float) -> float:
        return elapsed_s / self.seconds if self.seconds else step / self.steps


def main() -> None:
    args = parse_arguments()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    train_corpus, held_out = read_corpora()
    tokenizer = train_tokenizer(train_corpus)
    streams = [shuffle_together(documents) for documents in encode(train_corpus, tokenizer)]
    say(f"{len(streams[0])} tokens of sources, {len(streams[1])} of chats")

    figures: dict[str, dict[str, Any]] = {}
    for recipe in (MODEL, DRAFT):
        budget = Budget(args.steps, args.seconds and args.seconds * recipe.seconds_share)
        model = LlamaForCausalLM(make_config(recipe))
        started = time.monotonic()
        steps = train(model, recipe, budget, streams)
        figures[recipe.name] = {
            "parameters": model.num_parameters(),
            "steps": steps,
            "seconds": round(time.monotonic() - started),
        }
        save_model(model, tokenizer, args.out / recipe.name, recipe.shard_size)

    model, draft = (load_saved(args.out / recipe.name) for recipe in (MODEL, DRAFT))
    model_scores, draft_scores = (score_held_out(m, tokenizer, held_out) for m in (model, draft))
    figures[MODEL.name] |= describe(model_scores)
    figures[DRAFT.name] |= describe(draft_scores)
    agreed = agreement(model_scores["chats"], draft_scores["chats"])
    for recipe, saved in ((MODEL, model), (DRAFT, draft)):
        figures[recipe.name] |= {"draft_agreement": round(agreed, 3)}
        answers = {question: answer(saved, tokenizer, question) for question in QUESTIONS}
        write_card(args.out / recipe.name, recipe, figures[recipe.name], answers)
        say(f"{recipe.name}: {json.dumps(answers, indent=2)}")
    print(json.dumps(figures))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train tiny-llama and tiny-llama-draft.")
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder that gets one folder per model"
    )
    parser.add_argument("--seed", type=int, default=0)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, default=2400, help="for each model (%(default)s)")
    length.add_argument(
        "--seconds", type=float, help="for tiny-llama instead; the draft gets a quarter of it"
    )
    return parser.parse_args()


def shuffle_together(documents: list[list[int]]) -> torch.Tensor:
    random.shuffle(documents)
    return torch.tensor([token for document in documents for token in document])


def make_config(recipe: Recipe) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def train(
    model: LlamaForCausalLM, recipe: Recipe, budget: Budget, streams: list[torch.Tensor]
) -> int:
    """Train in place and return the number of steps taken."""
    optimizers = make_optimizers(model, recipe.learning_rate)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    peaks = [group["lr"] for group in groups]
    started, step = time.monotonic(), 0
    while (progress := budget.progress(step, time.monotonic() - started)) < 1:
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * learning_rate_factor(step, progress)
        in_full = progress >= recipe.full_context_from
        batch = draw_batch(streams, CONTEXT if in_full else SHORT_CONTEXT)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if step % 50 == 0:
            speed = step * TOKENS_PER_STEP / (time.monotonic() - started)
            say(f"{recipe.name} {progress:4.0%} step {step} loss {loss:.3f} {speed:.0f} tokens/s")
    return step


def make_optimizers(
    model: LlamaForCausalLM, learning_rate: float
) -> tuple[torch.optim.Optimizer, ...]:
    """Give the layers' matrices to Muon, which needs far fewer tokens, and the rest to AdamW."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        (matrices if "layers" in name and parameter.ndim == 2 else others).append(parameter)
    return (
        torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01),
    )


def learning_rate_factor(step: int, progress: float) -> float:
    """Warm up over 20 steps, then fall in a line over the second half of the budget."""
    return min(1.0, (step + 1) / 20) * min(1.0, 2 * (1 - progress) + 0.02)


def draw_batch(streams: list[torch.Tensor], length: int) -> torch.Tensor:
    sources, chats = streams
    rows = []
    for _ in range(TOKENS_PER_STEP // length):
        stream = chats if random.random() < CHAT_SHARE else sources
        start = random.randrange(len(stream) - length)
        rows.append(stream[start : start + length])
    return torch.stack(rows)


def load_saved(folder: Path) -> LlamaForCausalLM:
    """Load what was saved: figures are of the bf16 files, not of the weights in memory."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def write_card(
    folder: Path, recipe: Recipe, figures: dict[str, Any], answers: dict[str, str]
) -> None:
    template = string.Template(Path(__file__).with_name("card.template.md").read_text())
    quoted = (f"**{q}**\n\n```text\n{a.strip()}\n```\n" for q, a in answers.items())
    card = template.substitute(
        asdict(recipe),
        **figures,
        answers="\n".join(quoted),
        python=platform.python_version(),
        vocab_size=VOCAB_SIZE,
        context=CONTEXT,
    )
    (folder / "README.md").write_text(card)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
