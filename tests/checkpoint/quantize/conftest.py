"""Small random models, and nvidia-modelopt's own checkpoints of them: the oracle of what is written and read here."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

MODELOPT = {
    "none": None,
    "fp8": "FP8_DEFAULT_CFG",
    "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "int8_sq": "INT8_SMOOTHQUANT_CFG",
    "int4_rtn": "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "int4_awq": "INT4_AWQ_CFG",
    "w4a8_awq": "W4A8_AWQ_BETA_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
}
LLAMA = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1001, "max_position_embeddings": 512,
    "rope_theta": 500000.0,
}  # fmt: skip
Oracle = Callable[..., Path]


def token_prompts(count: int = 3, length: int = 24, vocabulary: int = 1000) -> list[list[int]]:
    """Random prompts as token ids."""
    rng = random.Random(5)
    return [[rng.randrange(vocabulary) for _ in range(length)] for _ in range(count)]


def hf_model(folder: Path, config: Any, dtype: str = "bfloat16", seed: int = 0, spread: float = 1.0) -> Path:
    """A model of `config` with random weights, saved as transformers saves one."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, torch_dtype=getattr(torch, dtype)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "norm" in name:  # norms of one would hide a lost +1 or a swapped pair
            parameter.data.add_(torch.randn_like(parameter) * 0.1 * spread)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bfloat16 Llama with 4 KV heads and a vocabulary that no split divides."""
    transformers = pytest.importorskip("transformers")
    return hf_model(tmp_path_factory.mktemp("llama"), transformers.LlamaConfig(**LLAMA))


@pytest.fixture(scope="session")
def oracle(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """oracle(format, kv="auto", tp=1, pp=1): the folder of modelopt's TensorRT-LLM export of `llama`."""
    pytest.importorskip("modelopt.torch.quantization")

    @cache
    def exported(weights: str, kv: str = "auto", tp: int = 1, pp: int = 1) -> Path:
        out = tmp_path_factory.mktemp(f"modelopt-{weights}-{kv}-{tp}x{pp}")
        export(llama, out, weights, kv, tp, pp)
        return out

    return exported


def export(model_dir: Path, out: Path, weights: str, kv: str, tp: int, pp: int, decoder: str = "llama") -> None:
    """Quantize with modelopt and write its TensorRT-LLM checkpoint, in this process."""
    import modelopt.torch.quantization as mtq
    import torch
    from modelopt.torch.export import export_tensorrt_llm_checkpoint
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, torch_dtype="auto").eval()
    name = MODELOPT[weights]
    if name is not None:
        recipe = copy.deepcopy(getattr(mtq, name))
        recipe["quant_cfg"] += mtq.FP8_KV_CFG["quant_cfg"] if kv == "fp8" else []
        prompts = [torch.tensor([ids]) for ids in token_prompts(vocabulary=model.config.vocab_size - 1)]
        model = mtq.quantize(model, recipe, lambda m: [m(ids) for ids in prompts])
    with torch.inference_mode():
        export_tensorrt_llm_checkpoint(
            model, decoder, model.dtype, export_dir=out, inference_tensor_parallel=tp, inference_pipeline_parallel=pp
        )


@pytest.fixture(scope="session")
def calibrations(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """calibrations(format, kv="fp8"): a calibration folder of `llama` on the oracle's prompts, made by the worker."""
    pytest.importorskip("modelopt.torch.quantization")

    @cache
    def calibrated(weights: str, kv: str = "fp8") -> Path:
        out = tmp_path_factory.mktemp(f"calibration-{weights}-{kv}")
        calibrate_here(llama, out, weights, kv)
        return out

    return calibrated


def calibrate_here(model_dir: Path, out: Path, weights: str, kv: str = "auto", **changes: Any) -> None:
    """The worker's own `run`, in this process: importing modelopt again takes longer than the calibration."""
    from trtspec.checkpoint.quantize import worker
    from trtspec.checkpoint.quantize.calibration import write_about

    job = {
        "model": str(model_dir), "format": weights, "kv_cache": kv, "group_size": 128, "prompts": token_prompts(),
        "seed": 0, "out": str(out), "hf_out": None, "dtype": "auto", "device": "auto",
    }  # fmt: skip
    worker.run(job | changes)
    write_about(out, method="modelopt")


def write_quantized(
    model_dir: Path, out: Path, weights: str, kv: str = "auto", tp: int = 1, pp: int = 1, group: int = 128,
    calibration: Path | None = None, dtype: str = "auto",
) -> Path:  # fmt: skip
    """Our own checkpoint."""
    from trtspec.checkpoint.convert import write_checkpoint
    from trtspec.checkpoint.plan import plan_conversion
    from trtspec.checkpoint.quantize.calibration import Calibration
    from trtspec.checkpoint.quantize.plan import quantized

    found = None if calibration is None else Calibration.open(calibration)
    plan = quantized(plan_conversion(model_dir, dtype=dtype, tensor=tp, pipeline=pp), weights, kv, group, found)
    out.mkdir(parents=True, exist_ok=True)
    write_checkpoint(plan, out, durable=False)
    return out
