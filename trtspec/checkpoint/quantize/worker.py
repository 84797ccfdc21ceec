"""Calibrate a model with nvidia-modelopt; runs by file path in an environment of its own.

    python worker.py job.json          calibrate, and export a Hugging Face checkpoint where asked for
    python worker.py --versions        what this environment has, as one JSON line

It imports only the standard library, torch, transformers, safetensors and modelopt: the environment that has modelopt
need not have trtspec, and the one that runs TensorRT-LLM 1.2.1 cannot have a recent modelopt. It talks in lines:
`progress DONE TOTAL`, `note TEXT`, and `error TEXT` before exit code 3 for what its caller should be told.

The result is what calibration found, not weights: for each linear the largest input of each channel (or of all) and
the vector that multiplies its inputs; for each attention the largest key and value. Weights are quantized from these
by the caller, in the same way for every family and split.
"""

from __future__ import annotations

import copy
import json
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

CONFIGS = {
    "fp8": "FP8_DEFAULT_CFG",
    "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "int8_sq": "INT8_SMOOTHQUANT_CFG",
    "int8_wo": "INT8_WEIGHT_ONLY_CFG",
    "int4_rtn": "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "int4_awq": "INT4_AWQ_CFG",
    "w4a8_awq": "W4A8_AWQ_BETA_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
}
KV_BITS: dict[str, Any] = {"fp8": (4, 3), "int8": 8}
PASSES = {"int4_awq": 2, "w4a8_awq": 2}
PACKAGES = ("nvidia-modelopt", "torch", "transformers", "safetensors", "accelerate", "requests")


class Refused(Exception):
    """Something the caller should be told in one line."""


def main(arguments: list[str]) -> int:
    """Entry point: returns the exit code."""
    if arguments == ["--versions"]:
        print(json.dumps(versions()))
        return 0
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        run(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    except Refused as error:
        say(f"error {error}")
        return 3
    return 0


def versions() -> dict[str, str | None]:
    """Installed version of each package of interest, None where it is absent; nothing is imported."""
    found: dict[str, str | None] = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def say(text: str) -> None:
    """One line to whoever reads the log."""
    print(text.replace("\n", " "), flush=True)


def run(job: dict[str, Any]) -> None:
    """Load, calibrate, write `calibration.safetensors` into job["out"], export into job["hf_out"] where it is given."""
    import modelopt.torch.quantization as mtq
    import torch

    torch.manual_seed(job["seed"])
    model = load(job)
    check_experts(model)
    recipe = recipe_for(mtq, job)
    prompts = [torch.tensor([ids], dtype=torch.long, device=model.device) for ids in job["prompts"]]
    total, done = len(prompts) * PASSES.get(job["format"], 1), 0

    def forward(quantized: Any) -> None:
        nonlocal done
        for ids in prompts:
            quantized(input_ids=ids, use_cache=False)
            done += 1
            say(f"progress {done} {total}")

    with torch.inference_mode(job["format"] not in PASSES), torch.no_grad():
        model = mtq.quantize(model, recipe, forward if prompts else None)
    save(found_in(model), Path(job["out"]) / "calibration.safetensors")
    if job.get("hf_out"):
        export(model, Path(job["hf_out"]))


def load(job: dict[str, Any]) -> Any:
    """The model in evaluation mode, in its own type, on a GPU where there is one."""
    import torch
    from transformers import AutoModelForCausalLM

    wanted: dict[str, Any] = {"dtype": job["dtype"] if job["dtype"] == "auto" else getattr(torch, job["dtype"])}
    if torch.cuda.is_available() and job["device"] != "cpu":
        wanted["device_map"] = "auto"
    model = AutoModelForCausalLM.from_pretrained(job["model"], local_files_only=True, **wanted)
    return model.eval()


def check_experts(model: Any) -> None:
    """transformers 5 keeps a mixture's experts in one tensor; their inputs cannot be told apart by linears."""
    config = getattr(model.config, "text_config", model.config)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts and not any(re.search(r"\.experts\.0\.", name) for name, _ in model.named_modules()):
        name, version = type(model).__name__, metadata.version("transformers")
        raise Refused(f"{name} keeps its experts in one tensor under transformers {version}: use transformers 4.57")


def recipe_for(mtq: Any, job: dict[str, Any]) -> dict[str, Any]:
    """modelopt's configuration of the job's format; `quant_cfg` is a list from 0.44 on and was a mapping before."""
    if job["format"] == "none":
        recipe: dict[str, Any] = {"quant_cfg": [{"quantizer_name": "*", "enable": False}], "algorithm": "max"}
    else:
        recipe = copy.deepcopy(getattr(mtq, CONFIGS[job["format"]]))
    recipe["quant_cfg"] = regrouped(recipe["quant_cfg"], job["group_size"])
    if job["kv_cache"] in KV_BITS:
        kv = {"num_bits": KV_BITS[job["kv_cache"]], "axis": None}
        if isinstance(recipe["quant_cfg"], dict):
            recipe["quant_cfg"]["*[kv]_bmm_quantizer"] = kv | {"enable": True}
        else:
            recipe["quant_cfg"].append({"quantizer_name": "*[kv]_bmm_quantizer", "cfg": kv})
    return recipe


def regrouped(part: Any, group_size: int) -> Any:
    """The same with blocks of 128 weights, modelopt's default for INT4, made `group_size` large."""
    if isinstance(part, dict):
        return {k: group_size if k == -1 and v == 128 else regrouped(v, group_size) for k, v in part.items()}
    if isinstance(part, list):
        return [regrouped(entry, group_size) for entry in part]
    return part


def found_in(model: Any) -> dict[str, Any]:
    """What calibration left in the quantizers, by module name; float32 tensors on the CPU."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        inputs = getattr(module, "input_quantizer", None)
        if inputs is not None and getattr(module, "weight", None) is not None:
            # The largest input of each channel before smoothing, where an algorithm smoothed.
            amax = getattr(inputs, "_amax_for_smoothing", None)
            amax = getattr(inputs, "_amax", None) if amax is None else amax
            put(found, f"{name}.input_amax", amax)
            put(found, f"{name}.prequant", getattr(inputs, "_pre_quant_scale", None))
        for kind in ("k", "v"):
            quantizer = getattr(module, f"{kind}_bmm_quantizer", None)
            if quantizer is not None and quantizer.is_enabled:
                put(found, f"{name}.{kind}_amax", getattr(quantizer, "_amax", None))
    return found


def put(found: dict[str, Any], name: str, value: Any) -> None:
    """`value` as a flat float32 tensor, unless there is none."""
    if value is not None:
        found[name] = value.detach().float().reshape(-1).cpu().contiguous().clone()


def save(found: dict[str, Any], path: Path) -> None:
    """Written beside and renamed; a mixture's unused experts are noted by the caller."""
    from safetensors.torch import save_file

    beside = path.with_name(f".{path.name}")
    save_file(found, beside)
    os.replace(beside, path)


def export(model: Any, out: Path) -> None:
    """modelopt's unified Hugging Face checkpoint, its config.json readable by transformers 4 as well."""
    from modelopt.torch.export import export_hf_checkpoint

    say("note writing the Hugging Face checkpoint")
    export_hf_checkpoint(model, export_dir=out)
    path = out / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(both_spellings(config), indent=2) + "\n", encoding="utf-8")


def both_spellings(config: dict[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` beside the `rope_parameters` of transformers 5.

    transformers 4.57, which TensorRT-LLM 1.2.1 pins, reads only the former and takes 10000 in silence without them.
    """
    result = dict(config)
    if isinstance(config.get("text_config"), dict):
        result["text_config"] = both_spellings(config["text_config"])
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict):
        return result
    if any(isinstance(value, dict) for value in rope.values()):  # Gemma 3: one set for each kind of layer
        local = rope.get("sliding_attention") or {}
        rope = rope.get("full_attention") or {}
        if "rope_theta" in local:
            result.setdefault("rope_local_base_freq", local["rope_theta"])
    if "rope_theta" in rope:
        result.setdefault("rope_theta", rope["rope_theta"])
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
    if scaling.get("rope_type", "default") != "default":
        result.setdefault("rope_scaling", scaling)
    if "partial_rotary_factor" in rope:
        result.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
    return result


if __name__ == "__main__":
    # Python puts a script's folder first; modules there must not hide packages of the same name.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    sys.exit(main(sys.argv[1:]))
