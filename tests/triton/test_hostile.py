"""Random inputs of every declared type, to every model of a real repository: each is answered, in one line, or refused.

An error text holds no path, no traceback and nothing of what was sent; nothing that was sent gets into the log.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from google.protobuf import json_format
from tritonclient.utils import np_to_triton_dtype

from tests.triton import servedpair
from tests.triton.throwaway import serving
from trtspec.triton import pbtxt
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

SECRET = "XYZZY /etc/passwd"
CORE = {"text_input", "max_tokens", "input_ids", "input_lengths", "request_output_len", "QUERY", "REQUEST_OUTPUT_LEN"}
TEXTS = (SECRET.encode(), b"", b"\xff\xfe", b"x" * 3000, "😀".encode(), b"a\x00b", b"Traceback", b"hello")
REALS = (0.0, 1.0, -1.0, np.nan, np.inf, 1e30, 0.5)
TYPES: dict[str, type] = {
    "TYPE_INT32": np.int32, "TYPE_INT64": np.int64, "TYPE_UINT64": np.uint64, "TYPE_UINT8": np.uint8,
    "TYPE_FP32": np.float32, "TYPE_FP16": np.float16, "TYPE_BOOL": np.bool_, "TYPE_STRING": np.object_,
}  # fmt: skip
MODELS = ("preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_draft", "tensorrt_llm_bls", "ensemble")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    return servedpair.build(tiny_config, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    log = tmp_path_factory.mktemp("log") / "triton.log"
    private = serving(stop_timeout=6.0, start_timeout=180.0)
    with TritonServer.start(repository, private, log, environment={"OMP_NUM_THREADS": "1"}) as found:
        yield found
        found.check()
    text = log.read_text()
    assert "Traceback (most" not in text
    assert SECRET.split()[0] not in text


def some(kind: str, shape: list[int], dice: random.Random) -> np.ndarray[Any, Any]:
    """An array of that type whose values are the worst that there are."""
    if kind == "TYPE_STRING":
        values: list[Any] = [dice.choice(TEXTS) for _ in range(int(np.prod(shape)))]
        return np.array(values, dtype=np.object_).reshape(shape)
    dtype = TYPES[kind]
    if kind == "TYPE_BOOL":
        choices: tuple[Any, ...] = (True, False)
    elif kind.startswith("TYPE_FP"):
        choices = REALS if kind == "TYPE_FP32" else REALS[:5]
    else:
        choices = (0, 1, 2, 3, 5, 9, np.iinfo(dtype).max, np.iinfo(dtype).min)
    return np.array([dice.choice(choices) for _ in range(int(np.prod(shape)))], dtype=dtype).reshape(shape)


def inputs(model: Path, dice: random.Random) -> dict[str, np.ndarray[Any, Any]]:
    """Most of what a model needs, and a few of its other inputs."""
    config = json_format.MessageToDict(pbtxt.read(model / pbtxt.FILE), preserving_proto_field_name=True)
    batch, found = dice.choice((1, 1, 1, 2, 3)), {}
    for tensor in config["input"]:
        core = tensor["name"] in CORE
        if dice.random() < (0.95 if core or not tensor.get("optional") else 0.06):
            shape = [batch, *(dice.choice((0, 1, 2, 7)) if int(dim) < 0 else int(dim) for dim in tensor["dims"])]
            plain = core and tensor["data_type"] == "TYPE_INT32" and dice.random() < 0.8
            found[tensor["name"]] = (
                np.full(shape, 4, dtype=np.int32) if plain else some(tensor["data_type"], shape, dice)
            )
    return found


def ask(server: TritonServer, model: str, tensors: dict[str, np.ndarray[Any, Any]]) -> str | None:
    """The error's text, or None for an answer; queue.Empty where neither comes."""
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    asked = []
    for name, array in tensors.items():
        asked.append(tritonclient.grpc.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        asked[-1].set_data_from_numpy(array)
    client = tritonclient.grpc.InferenceServerClient(server.grpc_url)
    client.start_stream(lambda result, error: heard.put((result, error)))
    try:
        client.async_stream_infer(model, asked, enable_empty_final_response=True)
        while True:
            result, error = heard.get(timeout=30)
            if error is not None:
                return str(error.message())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return None
    finally:
        client.stop_stream(cancel_requests=True)
        client.close()


@pytest.mark.parametrize("model", MODELS)
def test_whatever_comes_is_answered_or_refused_in_one_line(server: TritonServer, repository: Path, model: str) -> None:
    dice = random.Random(model)
    said = [ask(server, model, inputs(repository / model, dice)) for _ in range(40)]
    for text in filter(None, said):
        assert "\n" not in text, text
        assert "/" not in text, text
        assert not any(
            word in text for word in ("Traceback", "internal error", "unexpected shape", SECRET.split()[0])
        ), text
    assert any(said)
    with TritonClient(server.grpc_url) as client:
        found = client.generate("tensorrt_llm_bls", GenerateRequest("def f(", 8, draft_len=4))
        # Not one of those requests has made the draft look ill.
        assert (found.output_tokens, found.mode) == (8, "speculative")
