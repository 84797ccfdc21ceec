"""One model's facts for `--json`: what was read, in plain JSON values; null is unknown."""

from __future__ import annotations

from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import RunConfig
from trtspec.pairing.lengths import positions
from trtspec.pairing.lineage import attention, rope, windows
from trtspec.pairing.memory import document
from trtspec.pairing.model import Model
from trtspec.pairing.placement import plan_memory
from trtspec.pairing.totals import active, parameters
from trtspec.pairing.widths import last_id


def model_facts(model: Model) -> dict[str, Any]:
    """Sizes are counts, lengths are tokens."""
    facts, vocabulary = model.facts, model.vocabulary
    return {
        "folder": str(model.folder) if model.here else None,
        "source": "published" if model.published else "files" if facts else None,
        "name": model.origin.name.text if model.origin.name else None,
        "base": model.origin.base.text if model.origin.base else None,
        "parameters": parameters(model),
        "active_parameters": active(model),
        "tokens": len(vocabulary.by_id) if vocabulary else model.published and model.published.tokens,
        "last_id": last_id(model),
        **_configured(facts),
    }


def _configured(facts: ModelFacts | None) -> dict[str, Any]:
    return {
        "architecture": facts and facts.architecture,
        "model_type": facts and facts.model_type,
        "multimodal": facts and facts.multimodal,
        "dtype": facts and facts.dtype,
        "quantization": facts and facts.quantization,
        "vocab_size": facts and facts.vocab_size,
        "positions": facts and positions(facts),
        "layers": facts and facts.num_hidden_layers,
        "hidden_size": facts and facts.hidden_size,
        "intermediate_size": facts and facts.intermediate_size,
        "attention": facts and attention(facts),
        "heads": facts and facts.num_attention_heads,
        "kv_heads": facts and facts.num_key_value_heads,
        "head_dim": facts and facts.head_dim,
        "rope": facts and rope(facts),
        "windows": facts and windows(facts),
        "sliding_window": facts and facts.sliding_window,
        "tied": facts and facts.tie_word_embeddings,
        "experts": facts and facts.moe and {"count": facts.moe.experts, "per_token": facts.moe.top_k},
        "bos_ids": facts and list(facts.bos_ids),
        "eos_ids": facts and list(facts.eos_ids),
    }


def memory_facts(target: Model, draft: Model, config: RunConfig) -> dict[str, Any] | None:
    """The plan of each GPU's memory, bytes and tokens; None without a GPU or where a size is unknown."""
    if target.facts is None or draft.facts is None or config.engine.backend == "reference":
        return None
    plan = plan_memory({"target": target.facts, "draft": draft.facts}, config)
    return None if plan is None else document(plan)
