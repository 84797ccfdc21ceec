"""Releases, what each depends on, and the containers that carry it.

Dependencies are those that the package declares on PyPI (0.17.0.post1 declares none there). Containers are those of
Triton's own compatibility matrix; where the backend's Dockerfile says otherwise, the note tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtspec.versions.row import MATRIX, METADATA, NOTES, Row, Span

IMAGE = "nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3"
NEWEST_SEEN = "1.4.0rc4"
LAST_WITH_ENGINES = "1.3.0rc20"
FIRST_LLM_API = "1.0.0"


@dataclass(frozen=True, kw_only=True)
class Container:
    """One image. `tensorrt_llm` as published; a pre-release or a build of NVIDIA's own is not in the table."""

    tag: str
    tensorrt_llm: str
    tensorrt: str
    torch: str
    cuda: str
    driver: str
    """The driver that the image was released with: newer ones work, older ones only where CUDA says so."""
    note: str = ""
    source: str = MATRIX

    @property
    def image(self) -> str:
        """Its full name at NGC."""
        return IMAGE.format(tag=self.tag)


@dataclass(frozen=True, kw_only=True)
class Release(Row):
    """One release, or a line of candidates that are alike to us."""

    name: str
    engines: bool
    """Whether we build engines of it."""
    llm_api: bool
    """Whether its LLM API speculates with a draft model, not experimentally."""
    tensorrt: str | None
    """Version prefix, such as 10.14; None where it needs no TensorRT or that is not known."""
    modelopt: str | None
    requires: Mapping[str, str] = field(default_factory=dict)
    """Package → the versions that the package's metadata asks for."""
    features: tuple[str, ...] = ()


def _container(tag: str, llm: str, trt: str, torch: str, cuda: str, driver: str, note: str = "") -> Container:
    return Container(tag=tag, tensorrt_llm=llm, tensorrt=trt, torch=torch, cuda=cuda, driver=driver, note=note)


_25_11 = "the backend's r25.11 Dockerfile names 1.2.0rc2"
_26_03 = "the backend's r26.03 Dockerfile names 1.2.0rc8"
CONTAINERS = (
    _container("25.01", "0.17.0", "10.8.0.43", "2.6.0a0", "12.8.0", "570.86"),
    _container("25.02", "0.17.0.post1", "10.8.0.43", "2.6.0a0", "12.8.0", "570.86"),
    _container("25.03", "0.18.0", "10.9.0.34", "2.7.0a0", "12.8.1", "570.124"),
    _container("25.04", "0.18.2", "10.9.0.34", "2.7.0a0", "12.8.1", "570.124"),
    _container("25.05", "0.19.0", "10.9.0.34", "2.7.0a0", "12.8.1", "570.124"),
    _container("25.06", "0.20.0", "10.10.0.31", "2.7.0a0", "12.9.0", "575.51"),
    _container("25.07", "0.20.0", "10.10.0.31", "2.7.0a0", "12.9.0", "575.51"),
    _container("25.08", "0.21.0", "10.11.0.33", "2.8.0a0", "12.9.0", "575.51"),
    _container("25.09", "1.0.0", "10.11.0.33", "2.8.0a0", "12.9.1", "575.57"),
    _container("25.10", "1.0.0", "10.11.0.33", "2.8.0a0", "12.9.1", "575.57"),
    _container("25.11", "1.0.3.2510", "10.13.3.9", "2.9.0a0", "13.0.2", "580.95", _25_11),
    _container("25.12", "1.1.0", "10.13.3.9", "2.9.0a0", "13.0.2", "580.95"),
    _container("26.01", "1.1.0", "10.13.3.9", "2.9.0a0", "13.0.2", "580.95"),
    _container("26.02", "1.1.0", "10.13.3.9", "2.9.0a0", "13.0.2", "580.95"),
    _container("26.03", "1.2.0", "10.14.1.48", "2.10.0a0", "13.1.0", "590.44", _26_03),
    _container("26.04", "1.2.1", "10.14.1.48", "2.10.0a0", "13.1.0", "590.44"),
    _container("26.05", "1.2.1", "10.14.1.48", "2.10.0a0", "13.1.0", "590.44"),
    _container("26.06", "1.2.1", "10.14.1.48", "2.10.0a0", "13.1.0", "590.44"),
    _container("26.07", "1.2.1", "10.14.1.48", "2.10.0a0", "13.1.0", "590.44"),
)
_TORCH_26 = ">=2.6.0,<=2.7.0a0"
_TORCH_29 = ">=2.9.1,<=2.10.0a0"


def _release(
    name: str, tensorrt: str, modelopt: str, transformers: str | None, torch: str | None, *features: str
) -> Release:
    """A final release with engines. `tensorrt` is the package's ~= requirement where there is one."""
    requires = {"numpy": "<2", "tensorrt": f"~={tensorrt}", "nvidia-modelopt": f"~={modelopt}.0"}
    requires |= {"transformers": transformers or "", "torch": torch or ""}
    declared = transformers is not None
    return Release(
        name=name, engines=True, llm_api=not name.startswith("0."), tensorrt=".".join(tensorrt.split(".")[:2]),
        modelopt=modelopt, requires=requires if declared else {}, features=features, span=Span(name, name),
        source=f"{METADATA.format(name=name)}; {NOTES}" if declared else f"{NOTES}; {MATRIX}",
    )  # fmt: skip


RELEASES = (
    _release("0.17.0", "10.8.0", "0.23", None, None, "KV-cache reuse turned on with paged-context FMHA",
             "first with B200"),
    _release("0.18.0", "10.9.0", "0.25", ">=4.47.0,<4.48.0", _TORCH_26, "features of 0.17"),
    _release("0.18.1", "10.9.0", "0.25", "==4.48.3", _TORCH_26, "features of 0.17"),
    _release("0.18.2", "10.9.0", "0.25", "==4.48.3", _TORCH_26, "features of 0.17"),
    _release("0.19.0", "10.9.0", "0.27", "==4.51.0", _TORCH_26, "performance metrics in Triton",
             "quantize.py --quantize_lm_head"),
    _release("0.20.0", "10.10.0", "0.29", "~=4.51.1", ">=2.7.0a0,<=2.7.0",
             "Triton backend moved into TensorRT-LLM (triton_backend/)", "converters under examples/models/core"),
    _release("0.21.0", "10.11.0", "0.31", "~=4.51.1", ">=2.7.1,<=2.8.0a0"),
    _release("1.0.0", "10.11.0", "0.33", "==4.53.1", ">=2.7.1,<=2.8.0a0", "LLM API on PyTorch stable and default",
             "engines of Qwen3"),
    _release("1.1.0", "10.13.3", "0.37", "==4.56.0", ">=2.9.0a0,<=2.9.0"),
    _release("1.2.0", "10.14.1", "0.37", "==4.57.3", _TORCH_29, "documents call the engine flow legacy"),
    _release("1.2.1", "10.14.1", "0.37", "==4.57.3", _TORCH_29, "last final release with engines (2026-04-20)"),
)  # fmt: skip
"""Final releases with engines."""
CANDIDATES = (
    Release(name="1.3.0rc1 - rc20", engines=False, llm_api=True, tensorrt="10.14", modelopt="0.37",
            span=Span("1.3.0rc1", LAST_WITH_ENGINES), source="requirements.txt of 1.3.0rc3; release notes of 1.3.0rc20",
            evidence="inferred",
            note="these candidates still build engines, but 1.2.1 is the last final release that does"),
    Release(name="1.3.0rc21 and newer", engines=False, llm_api=True, tensorrt=None, modelopt=None,
            span=Span("1.3.0rc21", None),
            source="TensorRT-LLM pull requests 15763, 15767, 15907, 15918, 16369; release notes of 1.3.0rc20",
            note=f"no trtllm-build, no converters, no engine backend in Triton; newest seen: {NEWEST_SEEN}"),
)  # fmt: skip
"""Lines without engines for us."""
EVENTS = (
    ("0.16", "no V100; --use_embedding_sharing and --enable_xqa gone", NOTES),
    ("0.18", "no Windows", NOTES),
    ("0.20", "Triton templates move to TensorRT-LLM/triton_backend", "tensorrtllm_backend c4a49e8"),
    ("1.0", "llmapi with TensorRT in Triton gone; tensorrt_llm._tensorrt_engine.LLM is the engine class", NOTES),
    ("modelopt 0.37", "llm_ptq no longer writes TensorRT-LLM checkpoints", "ModelOpt changelog, 2025-10-08"),
    ("1.3.0rc", "trtllm-build, refit and convert_checkpoint.py print deprecation warnings", "pull request 11723"),
    ("1.3.0rc20", "the last candidate with the TensorRT backend (2026-06-30)", "release notes of 1.3.0rc20"),
    ("1.3.0rc21", "trtllm-build, converters, the engine backend and the tensorrt dependency are gone",
     "pull requests 15763, 15767, 15907, 15918, 16369"),
    ("modelopt 0.48", "export of TensorRT-LLM checkpoints deprecated; removal announced for 0.49",
     "Model-Optimizer pull requests 297, 410, 2436"),
)  # fmt: skip
"""(since, what, source): what was deprecated or removed."""
