"""How far greedy answers are from what plain weights would have answered: in the tool environment.

    PYTHON plain_answers.py QUESTIONS > GAPS

A question is a JSON line with `place`, a checkpoint without quantization; `prompts` and `answers`,
lists of tokens.  The line comes back with `gaps`: for each token that was answered, how far its
logit is below the largest one, as a part of the logits' standard deviation.  0 is the same choice.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1")

import torch
import transformers


def main() -> int:
    transformers.logging.set_verbosity_error()
    for line in Path(sys.argv[1]).read_text().splitlines():
        question = json.loads(line)
        kind = transformers.AutoModelForCausalLM
        model = kind.from_pretrained(question["place"], dtype=torch.float32).eval()
        gaps = []
        for prompt, answer in zip(question["prompts"], question["answers"], strict=True):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
            for at, token in enumerate(answer, start=len(prompt) - 1):
                row = logits[at]
                gaps.append(float((row.max() - row[token]) / row.std()))
        sys.stdout.write(json.dumps({**question, "gaps": gaps}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
