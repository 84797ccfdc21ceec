"""The fused pipeline on a real Triton: both reference engines inside tensorrt_llm_bls, with the same answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.triton import servedpair
from trtspec.triton import pbtxt
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.generation import Generation
from trtspec.triton.lint import lint

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

BLS, ALONE = "tensorrt_llm_bls", "ensemble"
PROMPTS = ("def read_lines(path: str) -> list[str]:\n", "class Queue:\n    def put(self", "😀 naïve café", "x")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    """Its repository."""
    return servedpair.build(tiny_config, tmp_path_factory.mktemp("fused"), "serving.pipeline=fused")


@pytest.fixture(scope="module")
def client(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonClient]:
    """A client of its server."""
    log = tmp_path_factory.mktemp("log") / "triton.log"
    with servedpair.serve(built, log) as server, TritonClient(server.grpc_url) as found:
        yield found


def _ask(client: TritonClient, prompt: str, model: str = BLS, **how: object) -> Generation:
    return client.generate(model, GenerateRequest(prompt, **({"max_tokens": 32} | how)))  # type: ignore[arg-type]


def test_it_has_no_draft_model_and_lint_accepts_that(built: Path) -> None:
    assert not (built / "tensorrt_llm_draft").exists()
    assert (built / "tensorrt_llm").is_dir()
    assert lint(built) == ()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_greedy_answers_are_the_targets_own(client: TritonClient, k: int, stream: bool) -> None:
    for prompt in PROMPTS:
        alone, pair = _ask(client, prompt, ALONE), _ask(client, prompt, draft_len=k, stream=stream)
        assert (pair.text, pair.output_tokens) == (alone.text, alone.output_tokens)
        assert (pair.mode, pair.rounds > 0) == ("speculative", True)


def test_without_drafts_it_is_the_target_alone(client: TritonClient) -> None:
    for prompt in PROMPTS:
        answer = _ask(client, prompt, draft_len=0, max_tokens=70)
        assert (answer.text, answer.mode) == (_ask(client, prompt, ALONE, max_tokens=70).text, "target-only:requested")


def test_many_at_once_do_not_change_each_other(client: TritonClient) -> None:
    alone = {prompt: _ask(client, prompt, ALONE).text for prompt in PROMPTS}
    asked = [(prompt, k) for k in (1, 2, 4, 8) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(lambda one: _ask(client, one[0], draft_len=one[1]).text, asked))
    assert found == [alone[prompt] for prompt, _ in asked]


def test_sampling_by_logits_works(client: TritonClient) -> None:
    how = {"temperature": 0.8, "seed": 7, "use_draft_logits": True, "draft_len": 4}
    first, again = (_ask(client, PROMPTS[0], **how) for _ in range(2))
    assert first.text == again.text
    assert first.rounds > 0


def test_a_client_that_leaves_frees_its_place(client: TritonClient) -> None:
    requests = [GenerateRequest(PROMPTS[0], 400, draft_len=k, stream=True, ignore_eos=True) for k in (0, 4)]
    for request in requests:
        with client.open(BLS, request) as exchange:
            assert next(iter(exchange))
    assert _ask(client, PROMPTS[0], draft_len=4).text == _ask(client, PROMPTS[0], ALONE).text


@pytest.fixture(scope="module")
def short_draft(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonClient]:
    """The same pair with a draft engine that takes short sequences only, so that it fails in the middle of answers."""
    root = tmp_path_factory.mktemp("short")
    repository = root / "repository"
    shutil.copytree(built, repository)
    path = repository / BLS / pbtxt.FILE
    engine = Path(pbtxt.parameters(pbtxt.read(path))["draft_engine_path"])
    shutil.copytree(engine, root / "engine")
    config = json.loads((root / "engine/config.json").read_text())
    config["build_config"] |= {"max_input_len": 39, "max_seq_len": 40}
    (root / "engine/config.json").write_text(json.dumps(config))
    path.write_text(path.read_text().replace(str(engine), str(root / "engine")))
    with servedpair.serve(repository, root / "triton.log") as server, TritonClient(server.grpc_url) as found:
        yield found


def test_when_the_draft_engine_fails_the_target_goes_on_alone(short_draft: TritonClient) -> None:
    how = {"max_tokens": 60, "ignore_eos": True}
    answer = _ask(short_draft, PROMPTS[0], draft_len=4, **how)
    assert (answer.mode, answer.rounds > 0) == ("target-only:draft-failed", True)
    assert answer.text == _ask(short_draft, PROMPTS[0], ALONE, **how).text
