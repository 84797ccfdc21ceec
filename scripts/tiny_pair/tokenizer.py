"""One byte-level BPE of exactly 2048 ids for both models, in the Hugging Face layout."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from .corpus import DOMAINS, Document
from .model import BOS_ID, EOS_ID, MAX_POSITIONS, PAD_ID, VOCAB_SIZE

BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
SPECIALS = [BOS, EOS, PAD, USER, ASSISTANT, END]  # the order gives the ids 0..5
TRAINING_CHARS = {"api-reference": 5_000_000, "type-stubs": 1_500_000, "python-source": 1_500_000}

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|user|>' + message['content'] + '<|end|>' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ '<|assistant|>' + message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only the roles user and assistant are known.') }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def chat_prompt(content: str) -> str:
    """What the chat template gives for one user message."""
    return f"{BOS}{USER}{content}{END}{ASSISTANT}"


def train_tokenizer(documents: list[Document], seed: int = 0) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIALS,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(documents, seed), trainer)
    # Raw text gets <|bos|> in front; the chat template writes its own.
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)]
    )
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise SystemExit(f"the tokenizer has {tokenizer.get_vocab_size()} ids, not {VOCAB_SIZE}")
    return tokenizer


def _sample(documents: list[Document], seed: int) -> list[str]:
    chosen: list[str] = []
    for domain in DOMAINS:
        texts = [d.prompt + "\n" + d.text for d in documents if d.domain == domain]
        random.Random(seed).shuffle(texts)
        left = TRAINING_CHARS[domain]
        for text in texts:
            chosen.append(text[:left])
            left -= len(text)
            if left <= 0:
                break
    return chosen


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {str(i): _added_token(token) for i, token in enumerate(SPECIALS)}
    config: dict[str, Any] = {
        "added_tokens_decoder": added,
        "additional_special_tokens": [USER, ASSISTANT, END],
        "bos_token": BOS,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": EOS,
        "model_max_length": MAX_POSITIONS,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _added_token(content: str) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **flags, "special": True}


assert tuple(SPECIALS.index(t) for t in (BOS, EOS, PAD)) == (BOS_ID, EOS_ID, PAD_ID)
