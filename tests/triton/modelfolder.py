"""Small repositories on disk, and their Python models loaded the way Triton loads them: from their own folder."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tests.triton import fakepb
from trtspec.config import ROLES, Role
from trtspec.config.parameters import ModelParameters
from trtspec.triton import pbtxt, pipeline
from trtspec.triton.devices import Devices
from trtspec.triton.parameters import Planned, llm_parameters
from trtspec.triton.plan import RepositoryPlan
from trtspec.triton.repository import write_repository
from trtspec.versions import TrtLlm, version

BOS, EOS, PAD, EOT = 0, 1, 2, 3
SPECIAL = ("<bos>", "<eos>", "<pad>", "<eot>")


COMPILED = tempfile.TemporaryDirectory(prefix="trtspec-compiled-")


def byte_tokenizer() -> Tokenizer:
    """One token per byte (id 4 + its rank), four special ones, and BOS before every text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    return tokenizer


def ids_of(text: str) -> list[int]:
    """Ids of a text, one per byte."""
    ids: list[int] = byte_tokenizer().encode(text, add_special_tokens=False).ids
    return ids


def small_plan(folder: Path, **changes: Any) -> RepositoryPlan:
    """A plan with the byte tokenizer in `folder`/tokenizer and engine folders that hold only limits."""
    words = folder / "tokenizer"
    words.mkdir(parents=True, exist_ok=True)
    byte_tokenizer().save(str(words / "tokenizer.json"))
    tensorrt = changes.get("backend") == "tensorrt"
    engines = {role: made_engine(folder / role, role, reference=not tensorrt) for role in ROLES}
    given: dict[str, Any] = {
        "name": "small",
        "backend": "reference",
        "engine_dirs": engines,
        "tokenizer_dir": words,
        "final_dir": folder / "repository",
        "max_batch_size": 8,
        "max_input_len": 64,
        "max_seq_len": 128,
        "max_draft_len": 8,
        "draft_len": 4,
        "vocab_size": 260,
        "end_ids": (EOS, EOT),
        "pad_id": PAD,
    }
    if tensorrt:
        given |= tensorrt_fields(engines, version(changes.pop("version", "1.2.1")))
    return RepositoryPlan(**(given | changes))


def made_engine(engine: Path, role: Role, *, reference: bool = False, **changes: Any) -> Path:
    """An engine folder with the record of TensorRT-LLM 1.2.1 (or our own) and rank files of a byte.

    `changes` replace keys of build_config; those with a dot keys of `plugin.` or `model.`.
    """
    engine.mkdir(exist_ok=True)
    target = role == "target"
    build: dict[str, Any] = {
        "max_batch_size": 8, "max_input_len": 128, "max_seq_len": 136 if target else 128, "max_beam_width": 1,
        "max_num_tokens": 1024, "max_draft_len": 8 if target else 0, "speculative_decoding_mode": 2 if target else 1,
        "kv_cache_type": "CONTINUOUS" if reference else "PAGED", "gather_context_logits": False,
        "gather_generation_logits": True, "plugin_config": {"use_paged_context_fmha": True, "tokens_per_block": 32},
    }  # fmt: skip
    model: dict[str, Any] = {
        "vocab_size": 260, "logits_dtype": "float32", "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_size": 16, "hidden_size": 32, "mapping": {"tp_size": 1, "pp_size": 1},
        "quantization": {},
    }  # fmt: skip
    for name, value in changes.items():
        place, _, key = name.rpartition(".")
        {"": build, "plugin": build["plugin_config"], "model": model}[place][key] = value
    document = {"version": "1.2.1", "pretrained_config": model, "build_config": build}
    if reference:
        document["reference"] = {}
    (engine / "config.json").write_text(json.dumps(document))
    ranks = model["mapping"]["tp_size"] * model["mapping"].get("pp_size", 1)
    for rank in range(ranks):
        (engine / f"rank{rank}.{'safetensors' if reference else 'engine'}").write_bytes(b"x")
    return engine


def tensorrt_fields(engines: dict[Role, Path], llm: TrtLlm) -> dict[str, Any]:
    """What a plan for TensorRT engines has besides: both on GPU 0, with room for eight sequences each."""
    placed = Devices("orchestrator", True, 1, {"target": (0,), "draft": (0,)}, "as tests want it")
    parameters = {
        role: llm_parameters(role, Planned(engines[role], 0.4, 1280, (0,)), ModelParameters(), llm) for role in ROLES
    }
    memory = {"gpu": "h100-80gb", "bytes": 80 << 30, "placement": "shared", "tokens": 1280}
    return {"version": llm, "devices": placed, "parameters": parameters, "memory": memory}


def small_repository(folder: Path, **changes: Any) -> Path:
    """Write the repository of `small_plan`."""
    plan = small_plan(folder, **changes)
    plan.final_dir.mkdir()
    write_repository(plan.final_dir, plan)
    return plan.final_dir


def load(model: Path, handler: fakepb.Handler | None = None) -> dict[str, types.ModuleType]:
    """Modules of a model folder by name, plus `pb`, with a fresh fake backend."""
    version = model / "1"
    names = [file.stem for file in version.glob("*.py")]
    fake = fakepb.module(handler or (lambda *_: iter(())))
    kept = {name: sys.modules.pop(name) for name in [*names, fake.__name__] if name in sys.modules}
    sys.modules[fake.__name__] = fake
    sys.path.insert(0, str(version))
    # Compiled once and not for each of hundreds of loads; kept out of the folder, which tests compare.
    compiled = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = COMPILED.name, False
    try:
        loaded = {name: importlib.import_module(name) for name in names}
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = compiled
        sys.path.remove(str(version))
        for name in [*names, fake.__name__]:
            sys.modules.pop(name, None)
        sys.modules.update(kept)
    return loaded | {"pb": fake}


def arguments(model: Path) -> dict[str, str]:
    """What Triton passes to initialize()."""
    return {"model_config": _as_json((model / pbtxt.FILE).read_text(encoding="utf-8"))}


@functools.lru_cache(maxsize=64)
def _as_json(text: str) -> str:
    config = json_format.MessageToDict(pbtxt.parse(text, pbtxt.FILE), preserving_proto_field_name=True)
    for value in config.get("parameters", {}).values():
        value.setdefault("string_value", "")
    config.setdefault("parameters", {})
    return json.dumps(config)


def started(model: Path, handler: fakepb.Handler | None = None) -> tuple[Any, dict[str, types.ModuleType]]:
    """The model object after initialize(), and its modules."""
    modules = load(model, handler)
    served = modules["model"].TritonPythonModel()
    served.initialize(arguments(model))
    return served, modules


__all__ = ["BOS", "EOS", "EOT", "PAD", "arguments", "ids_of", "load", "pipeline", "small_plan", "small_repository"]
