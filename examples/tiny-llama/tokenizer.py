"""The tokenizer that both models share, and the chat template that is part of it."""

from __future__ import annotations

from corpus import Corpus
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE, CONTEXT = 2048, 1024
BOS, EOS, PAD = "<s>", "</s>", "<pad>"
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def train_tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE: no text is out of vocabulary, so perplexity is always defined.

    Only the chat template writes `<s>`; a tokenizer that added it as well would give it twice
    to every tool that tokenizes rendered chats.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[PAD, BOS, EOS, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((source.text for source in corpus.sources), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens=ROLES,
        model_max_length=CONTEXT,
        chat_template=CHAT_TEMPLATE,
    )


def encode(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> tuple[list[list[int]], ...]:
    """Give the token ids of each source, and of each chat."""
    sources = [BOS + source.text + EOS for source in corpus.sources]
    chats = [tokenizer.apply_chat_template(list(c), tokenize=False) for c in corpus.chats]
    backend = tokenizer.backend_tokenizer  # does not warn about documents beyond the context
    return tuple([e.ids for e in backend.encode_batch(texts)] for texts in (sources, chats))
