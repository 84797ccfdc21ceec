"""Decide what a TensorRT-LLM checkpoint will hold, from config.json and headers alone; every check happens here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.cast import NAMES, STORED
from trtspec.checkpoint.facts import CONFIG, ModelFacts, architecture_of, read_config
from trtspec.checkpoint.families import Family, Part, Rule, family_of
from trtspec.checkpoint.tensors import TensorInfo, TensorSource, same_bytes
from trtspec.checkpoint.writer import Planned
from trtspec.errors import ConfigError, ModelFileError

CONFIG_DTYPES = ("auto", *STORED)


@dataclass(frozen=True)
class Plan:
    """A conversion that was checked and can be carried out: no file has been written yet."""

    facts: ModelFacts
    tensors: tuple[Planned, ...]
    config: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """Bytes of weights to write."""
        return sum(tensor.nbytes for tensor in self.tensors)


def plan_conversion(model_dir: Path, *, dtype: str = "auto", tensor: int = 1, pipeline: int = 1) -> Plan:
    """Read config.json and headers, check all of it, and say what would be written."""
    _check_settings(dtype, tensor, pipeline)
    try:
        return _plan(model_dir, dtype)
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=model_dir) from None


def _plan(model_dir: Path, dtype: str) -> Plan:
    config = read_config(model_dir)
    path = model_dir / CONFIG
    # The architecture first: another family's config.json need not have Llama's keys.
    family = family_of(architecture_of(config, path), path)
    facts = ModelFacts.parse(config, path)
    if facts.quantization is not None:
        raise ModelFileError(
            "weights are quantized already",
            where=path,
            found=facts.quantization,
            expected="16- or 32-bit weights",
            fix="use the unquantized model",
        )
    settings = family.settings(facts)
    source = TensorSource.open(model_dir)
    rules = family.rules(facts)
    _check_names(family, rules, source, facts)
    stored = _stored_type(rules, source, dtype)
    tensors = tuple(_planned(rule, source, stored, facts) for rule in rules)
    return Plan(facts, tensors, _checkpoint_config(facts, NAMES[stored], settings))


def _check_settings(dtype: str, tensor: int, pipeline: int) -> None:
    if dtype not in CONFIG_DTYPES:
        raise ConfigError("unknown dtype", found=dtype, expected=" | ".join(CONFIG_DTYPES))
    for name, value in (("tensor", tensor), ("pipeline", pipeline)):
        if value != 1:
            raise ConfigError(
                f"converting for parallelism.{name} {value} is not supported yet",
                expected="1",
                fix=f"set parallelism.{name} to 1",
            )


def _check_names(family: Family, rules: tuple[Rule, ...], source: TensorSource, facts: ModelFacts) -> None:
    """Every tensor of the source goes somewhere, and every tensor needed is there."""
    needed = {part.name for rule in rules for part in rule.parts}
    missing = sorted(needed - set(source.tensors))
    if missing:
        hint = "tie_word_embeddings is false in config.json" if missing == ["lm_head.weight"] else None
        raise ModelFileError(f"tensor {missing[0]!r} is missing{_more(missing)}", where=source.folder, fix=hint)
    extra = sorted(n for n in source.tensors if n not in needed and not family.ignorable(n))
    if facts.tie_word_embeddings and "lm_head.weight" in extra:
        _check_tied(source, facts)
        extra.remove("lm_head.weight")
    if extra:
        raise ModelFileError(
            f"tensor {extra[0]!r} has no place in a {facts.architecture} of this config.json{_more(extra)}",
            where=source.tensors[extra[0]].path,
            fix="no tensor is dropped in silence: correct config.json or the weights",
        )


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _check_tied(source: TensorSource, facts: ModelFacts) -> None:
    head = source.tensors["lm_head.weight"]
    if not same_bytes(head, source.tensors["model.embed_tokens.weight"]):
        raise ModelFileError(
            "lm_head.weight differs from the embedding, yet tie_word_embeddings is true",
            where=head.path,
            fix=f"set tie_word_embeddings to false in {facts.path.name} if the head is the model's own",
        )


def _stored_type(rules: tuple[Rule, ...], source: TensorSource, dtype: str) -> str:
    """The safetensors type of the result. `auto` keeps the source's, which then must be one for all tensors."""
    found: dict[str, TensorInfo] = {}
    for rule in rules:
        for part in rule.parts:
            found.setdefault(source.tensors[part.name].dtype, source.tensors[part.name])
    for stored, info in found.items():
        if stored not in NAMES:
            raise ModelFileError(f"tensor {info.name!r} has type {stored}", where=info.path, expected=" | ".join(NAMES))
    if dtype != "auto":
        return STORED[dtype]
    if len(found) > 1:
        names = ", ".join(f"{NAMES[stored]} ({info.name})" for stored, info in found.items())
        raise ModelFileError(
            "weights are of several types", where=source.folder, found=names, fix="set the model's dtype"
        )
    return next(iter(found))


def _planned(rule: Rule, source: TensorSource, stored: str, facts: ModelFacts) -> Planned:
    return Planned(rule.name, stored, rule.shape, tuple(_checked(part, source, facts) for part in rule.parts))


def _checked(part: Part, source: TensorSource, facts: ModelFacts) -> TensorInfo:
    info = source.tensors[part.name]
    if info.shape != part.shape:
        raise ModelFileError(
            f"tensor {part.name!r} does not fit {facts.path.name}",
            where=info.path,
            found=f"shape {list(info.shape)}",
            expected=f"{list(part.shape)}",
            fix="config.json and weights are not of one model",
        )
    return info


def _checkpoint_config(facts: ModelFacts, dtype: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "architecture": facts.architecture,
        "dtype": dtype,
        "logits_dtype": "float32",
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.num_hidden_layers,
        "num_attention_heads": facts.num_attention_heads,
        "num_key_value_heads": facts.num_key_value_heads,
        "head_size": facts.head_dim,
        "norm_epsilon": facts.norm_epsilon,
        "max_position_embeddings": facts.max_position_embeddings,
        "qk_layernorm": False,
        "use_parallel_embedding": False,
        "embedding_sharding_dim": 0,
        **settings,
        "mapping": {
            "world_size": 1,
            "tp_size": 1,
            "pp_size": 1,
            "cp_size": 1,
            "gpus_per_node": 8,
            "moe_tp_size": 1,
            "moe_ep_size": 1,
        },
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
