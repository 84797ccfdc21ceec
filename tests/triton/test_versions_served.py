"""What is written for each TensorRT-LLM version loads in a real Triton and answers, with the LLM backend replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.triton import servedpair
from tests.triton.standinbackend import with_reference
from trtspec.config import RunConfig, load_config
from trtspec.triton.client import SPECULATIVE, TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.triton.plan import plan_for
from trtspec.triton.repository import write_repository
from trtspec.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]
PROMPT = "def read_lines(path: str) -> list[str]:\n"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    """Reference engines of the tiny pair, below the folder that `config` names."""
    root = tmp_path_factory.mktemp("engines")
    config = load_config(tiny_config, [f"output.engines={root}", "engine.compute_dtype=float32"])
    servedpair.engines(config)
    return root


def configured(tiny_config: Path, engines: Path, folder: Path, version: str) -> RunConfig:
    """A configuration for TensorRT engines that finds the reference engines."""
    changes = ["engine.backend=tensorrt", f"engine.tensorrt_llm_version={version}", "hardware.gpu=l4"]
    return load_config(tiny_config, [*changes, f"output.engines={engines}", f"output.model_repo={folder}"])


@pytest.fixture(params=["0.17.0", "0.20.0"])
def client(
    request: pytest.FixtureRequest, engines: Path, tiny_config: Path, tmp_path: Path
) -> Iterator[tuple[str, TritonClient]]:
    """A server of the version's repository, and a client."""
    config = configured(tiny_config, engines, tmp_path, request.param)
    target, draft = config.pair.target.path, config.pair.draft.path
    assert target is not None
    config.repository_dir.mkdir(parents=True)
    write_repository(config.repository_dir, plan_for(config, target, draft))
    with_reference(config.repository_dir)
    log = tmp_path / "triton.log"
    with TritonServer.start(config.repository_dir, config.serving, log, environment={"OMP_NUM_THREADS": "1"}) as server:
        with TritonClient(server.grpc_url) as found:
            yield request.param, found
        server.check()
    assert "Traceback" not in log.read_text()


def test_one_face_towards_clients(client: tuple[str, TritonClient]) -> None:
    version, served = client
    for stream in (False, True):
        for prompt in (PROMPT, "import json\n"):
            alone = served.generate(TARGET_ONLY, GenerateRequest(prompt, 24, stream=stream))
            pair = served.generate(SPECULATIVE, GenerateRequest(prompt, 24, stream=stream, draft_len=4))
            assert pair.text == alone.text, version
            assert (pair.input_tokens, pair.output_tokens) == (alone.input_tokens, alone.output_tokens), version
            assert (pair.mode, alone.output_tokens) == ("speculative", 24)
    sampled = served.generate(SPECULATIVE, GenerateRequest(PROMPT, 8, temperature=0.8, top_p=0.9, seed=3, draft_len=2))
    assert sampled.output_tokens == 8
    assert served.next_logits(served.tokens(PROMPT)).dtype == np.float32
