"""Where the converters and the quantizer of a TensorRT-LLM version are, below the folder of its examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtspec.versions.row import Row, Span

ScriptName = Literal["convert", "quantize"]
EXAMPLES = (Path("/app/tensorrt_llm/examples"), Path("/app/examples"), Path("/workspace/TensorRT-LLM/examples"))
"""Folders of the examples in images, in the order to try: TensorRT-LLM's release image (its README), Triton's
TensorRT-LLM image (tensorrtllm_backend dockerfile/Dockerfile.triton.trt_llm_backend), a clone in the image's work
folder. The wheel holds none; they must be of the installed version (docs/source/architecture/workflow.md)."""
MODEL_FOLDERS = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen": "qwen", "gemma": "gemma", "phi": "phi",
}  # fmt: skip
"""Family → the folder with its converter: Mistral and Mixtral use Llama's, Qwen 1 - 3 (mixtures too) use qwen."""


@dataclass(frozen=True, kw_only=True)
class Script(Row):
    """`path` is below the examples folder; {model} stands for the family's folder."""

    name: ScriptName
    path: str

    def at(self, examples: Path, family: str) -> Path:
        """The script of a family below an examples folder."""
        return examples / self.path.format(model=MODEL_FOLDERS.get(family, family))


_MOVED = "examples of 0.17.0.dev2024121700 and 1.3.0rc3; release notes"
SCRIPTS = (
    Script(name="convert", path="{model}/convert_checkpoint.py", span=Span("0.17.0", "0.19.0"), source=_MOVED,
           note="moved during the 0.19 / 0.20 cycle: for 0.19 both places are tried", evidence="between"),
    Script(name="convert", path="models/core/{model}/convert_checkpoint.py", span=Span("0.19.0", "1.2.1"),
           source=_MOVED, evidence="between"),
    Script(name="quantize", path="quantization/quantize.py", source=_MOVED, evidence="between"),
)  # fmt: skip


def found(scripts: tuple[Script, ...], name: ScriptName, family: str, examples: Path | None = None) -> Iterator[Path]:
    """Scripts of this name that exist on this machine, below `examples` if given, else below :data:`EXAMPLES`."""
    for root in (examples,) if examples is not None else EXAMPLES:
        for script in scripts:
            path = script.at(root, family)
            if script.name == name and path.is_file():
                yield path
