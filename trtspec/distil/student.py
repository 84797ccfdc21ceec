"""The draft as a transformers model: chosen layers of its target, or a small model of the same vocabulary."""

# The project's mypy does not look into torch or transformers.
# mypy: no-warn-return-any
from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from trtspec.backends.scoring.huggingface import kernel
from trtspec.checkpoint.early_exit import plan_early_exit, write_early_exit
from trtspec.checkpoint.facts import CONFIG, ModelFacts, read_config
from trtspec.distil.recipe import Recipe, Scratch
from trtspec.errors import BuildError, ConfigError, MissingError, ModelFileError

STORED = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float32"}


def require(device: str) -> None:
    """MissingError without torch, transformers or the asked-for GPU."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise MissingError(
                f"distilling needs {package}",
                found=f"no {package}",
                fix="install the `local` extra: pip install 'trtspec[local]', or '.[local]' from a clone",
            )
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise MissingError(
            "no CUDA device that torch can use", found=f"torch {torch.__version__}", fix="choose --device cpu"
        )


def load_target(folder: Path, device: str) -> Any:
    """The target, frozen: float32 on a CPU, its own type on a GPU. ModelFileError when transformers cannot load it."""
    import torch

    model = _load(folder, torch.float32 if device == "cpu" else "auto").to(device).eval()
    return model.requires_grad_(False)


def build_student(target: Path, recipe: Recipe) -> Any:
    """A float32 model to train, on the recipe's device; random parts depend on the seed alone."""
    import torch

    torch.manual_seed(recipe.seed)
    if recipe.scratch is None:
        with tempfile.TemporaryDirectory(prefix="trtspec-student-") as scratch:
            write_early_exit(plan_early_exit(target, recipe.keep_layers), Path(scratch))
            model = _load(Path(scratch), torch.float32)
    else:
        model = _from_nothing(target, recipe.scratch)
    model.config.use_cache = False
    return model.to(recipe.device)


def scratch_config(target: Path, sizes: Scratch) -> dict[str, Any]:
    """config.json of a draft of these sizes with its target's vocabulary, positions and special tokens."""
    whole = read_config(target)
    facts = ModelFacts.parse(whole, target / CONFIG)
    own = {
        "vocab_size": facts.vocab_size,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "tie_word_embeddings": True,
    }
    if sizes.like_target:
        if facts.multimodal or facts.moe is not None:
            raise ConfigError("a draft like this target cannot be made small", fix="leave out --like-target")
        # Lists with one value for each of the target's layers say nothing about other layers.
        kept = {key: value for key, value in whole.items() if key not in ("layer_types", "max_window_layers")}
        return kept | own
    ids = {key: whole[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if whole.get(key) is not None}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **own,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
        # As far as the target reads; no scaling: what it was trained on is what it will see.
        "max_position_embeddings": facts.max_position_embeddings,
        "rope_theta": facts.rope.theta,
        **ids,
    }


def _from_nothing(target: Path, sizes: Scratch) -> Any:
    import json

    from transformers import AutoConfig, AutoModelForCausalLM

    with tempfile.TemporaryDirectory(prefix="trtspec-student-") as scratch:
        (Path(scratch) / CONFIG).write_text(json.dumps(scratch_config(target, sizes)), encoding="utf-8")
        config, attention = AutoConfig.from_pretrained(scratch, trust_remote_code=False), kernel(Path(scratch))
    try:
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False, **attention).float()
    except (ValueError, TypeError, RuntimeError, ZeroDivisionError) as error:
        raise ConfigError(f"no model has these sizes: {error}", where=target / CONFIG) from None


def save_student(model: Any, out: Path, dtype: str) -> None:
    """Weights and config.json of the trained draft into the folder `out`, in `dtype`. BuildError: the disk."""
    import torch

    try:
        model.to(getattr(torch, STORED[dtype]))
        model.config.use_cache = True
        model.save_pretrained(out, safe_serialization=True)
    except OSError as error:
        raise BuildError(f"writing the draft failed: {error.strerror or error}", where=out) from None


def _load(folder: Path, dtype: Any) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, use_safetensors=True, trust_remote_code=False, **kernel(folder)
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelFileError(f"transformers cannot load this model: {first}", where=folder) from None
