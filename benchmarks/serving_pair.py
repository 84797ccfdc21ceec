"""A pair behind a real Triton, for the benchmarks of serving: engines, repository, server, and timed requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import PADDED_INTERMEDIATE, ROOT, pad_ffn
from trtspec.backends.base import builder_for
from trtspec.checkpoint.convert import convert
from trtspec.config import ROLES, RunConfig, load_config
from trtspec.config.validation import Dataset
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.prompts import load_prompts
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.generation import Generation
from trtspec.triton.repository import POLICY_FILE, plan_for, write_repository
from trtspec.triton.server import TritonServer

BLS, ALONE = "tensorrt_llm_bls", "ensemble"
CONFIG = ROOT / "configs/tiny.yaml"


def build(folder: Path, *, padded: bool = False, overrides: Sequence[str] = ()) -> RunConfig:
    """Both engines of the shipped tiny pair below `folder`, in bfloat16; `padded`: with the widened target."""
    private = [f"serving.{name}_port=0" for name in ("http", "grpc", "metrics")]
    outputs = [f"output.engines={folder}/engines", f"output.model_repo={folder}/repository"]
    config = load_config(CONFIG, [*outputs, *private, "engine.compute_dtype=bfloat16", *overrides])
    for role in ROLES:
        source = config.pair[role].path
        assert source is not None
        for made in (config.checkpoint_dir(role), config.engine_dir(role)):
            made.mkdir(parents=True)
        convert(source, config.checkpoint_dir(role))
        if padded and role == "target":
            pad_ffn(config.checkpoint_dir(role), PADDED_INTERMEDIATE)
        builder_for(config).build(config, role, config.checkpoint_dir(role), config.engine_dir(role))
    return config


def write(config: RunConfig, policy: dict[str, Any] | None = None) -> Path:
    """The repository of a built pair, with this policy instead of the default one."""
    target = config.pair.target.path
    assert target is not None
    config.repository_dir.mkdir(parents=True)
    write_repository(config.repository_dir, plan_for(config, target))
    if policy is not None:
        (config.repository_dir / POLICY_FILE).write_text(json.dumps(policy))
    return config.repository_dir


@contextmanager
def serve(config: RunConfig) -> Iterator[TritonServer]:
    """The server of a written repository."""
    log = config.repository_dir.parent / "triton.log"
    with TritonServer.start(config.repository_dir, config.serving, log) as server:
        yield server


def prompts(folder: Path, model: Path, count: int, longest: int = 800) -> list[str]:
    """`count` prompts of at most so many characters, taken in turn from every domain."""
    chat = ChatTemplate.read(model)
    domains = [
        [p.text for p in load_prompts(Dataset(path=file, domain=file.stem), chat, 0, 64) if len(p.text) <= longest]
        for file in sorted(folder.glob("*.jsonl"))
    ]
    found = [text for together in zip(*domains, strict=False) for text in together]
    if len(found) < count:
        raise SystemExit(f"only {len(found)} prompts of at most {longest} characters in {folder}; asked for {count}")
    return found[:count]


@dataclass(frozen=True)
class Load:
    """What a number of requests came to."""

    seconds: float
    answers: tuple[Generation, ...]

    @property
    def tokens(self) -> int:
        """New tokens of all answers."""
        return sum(answer.output_tokens for answer in self.answers)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def load(client: TritonClient, model: str, requests: Sequence[GenerateRequest], streams: int) -> Load:
    """Answer all requests, so many at once."""
    began = time.perf_counter()
    if streams == 1:
        answers = tuple(client.generate(model, request) for request in requests)
    else:
        with ThreadPoolExecutor(streams) as pool:
            answers = tuple(pool.map(lambda request: client.generate(model, request), requests))
    return Load(time.perf_counter() - began, answers)
