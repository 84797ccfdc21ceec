"""The builder of `backend: pytorch`: nothing is compiled. A folder says which weights the LLM API will read."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

from trtspec.backends.base import planned_limits
from trtspec.backends.pytorch.options import installed, require_possible, version_of
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.tensors import TensorSource
from trtspec.config import Role, RunConfig
from trtspec.errors import MissingError
from trtspec.versions import CONTAINER, choose

MODEL = "model.json"
FORMAT = 1


class PyTorchBuilder:
    """Writes `model.json`; needs neither a GPU nor TensorRT-LLM."""

    name = "pytorch"

    def require(self, config: RunConfig) -> None:
        """ConfigError for what no machine could serve; a bare machine is enough to write files."""
        require_possible(config)

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """The version and the limits the LLM API is given."""
        version = str(version_of(config))
        return {"backend": self.name, "format": FORMAT, **planned_limits(config, role), "tensorrt_llm": version}

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:
        """`checkpoint` is a Hugging Face folder here. ModelFileError: a shard is absent or a header broken."""
        facts, source = ModelFacts.read(checkpoint), TensorSource.open(checkpoint)
        document = {
            "format": FORMAT,
            "role": role,
            "model": str(checkpoint.absolute()),
            "tensorrt_llm": str(version_of(config)),
            "architecture": facts.architecture,
            "vocab_size": facts.vocab_size,
            "positions": facts.max_position_embeddings,
            "quantization": stored_quantization(checkpoint),
            "files": [path.name for path in source.files],
            "bytes": sum(path.stat().st_size for path in source.files),
        }
        (out / MODEL).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def stored_quantization(folder: Path) -> dict[str, object] | None:
    """How a Hugging Face folder says that it is quantized: modelopt's own file, else the block of config.json."""
    own = folder / "hf_quant_config.json"
    if own.is_file():
        found: dict[str, object] = json.loads(own.read_text(encoding="utf-8")).get("quantization") or {}
        return found
    block: dict[str, object] | None = json.loads((folder / "config.json").read_text("utf-8")).get("quantization_config")
    return block


def require_runtime(config: RunConfig) -> None:
    """MissingError, naming all that is missing, where the LLM API cannot run; nothing is imported."""
    missing = []
    if importlib.util.find_spec("tensorrt_llm") is None:
        missing.append("no tensorrt_llm package")
    if shutil.which("nvidia-smi") is None:
        missing.append("no NVIDIA driver (nvidia-smi)")
    version = version_of(config)
    if missing:
        image = version.image or CONTAINER
        raise MissingError(
            "the LLM API cannot run here", found=", ".join(missing), expected=f"TensorRT-LLM {version} and a GPU",
            fix=f"serve the same folders in {image} on a machine with GPUs; docs/gpu-host.md shows how",
        )  # fmt: skip
    choose(config.engine.tensorrt_llm_version, installed(), "pytorch")
