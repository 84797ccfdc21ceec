"""The BLS and postprocessing with older versions' LLM models, which name inputs otherwise and lack outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.triton import fakepb
from tests.triton.fakepb import Tensors
from tests.triton.modelfolder import EOS, ids_of, small_repository, started


def asked(tmp_path: Path, version: str) -> list[tuple[Tensors, tuple[str, ...]]]:
    """Tensors and wanted outputs of the target's calls, for a request that uses every renamed input."""
    calls: list[tuple[Tensors, tuple[str, ...]]] = []

    def handler(model: str, request_id: str, tensors: Tensors) -> Iterator[Tensors | Exception]:
        if model == "preprocessing":
            ids = np.array([ids_of("ab")], dtype=np.int32)
            empty = np.zeros((1, 2, 0), dtype=np.int32)
            yield {"INPUT_ID": ids, "REQUEST_INPUT_LEN": np.array([[2]], dtype=np.int32), "STOP_WORDS_IDS": empty,
                   "BAD_WORDS_IDS": empty, "EMBEDDING_BIAS": np.zeros((1, 0), dtype=np.float32),
                   "OUT_END_ID": np.array([[EOS]], dtype=np.int32), "OUT_PAD_ID": np.array([[2]], dtype=np.int32),
                  }  # fmt: skip
            return
        calls.append((tensors, tuple(sorted(tensors))))
        count = int(tensors["request_output_len"].flat[0])
        tokens = np.array([[[70] * count]], dtype=np.int32)
        yield {"output_ids": tokens, "sequence_length": np.array([[count]], dtype=np.int32)}

    repository = small_repository(tmp_path, backend="tensorrt", version=version)
    served, _ = started(repository / "tensorrt_llm_bls", handler)
    given = {
        "text_input": np.array([[b"ab"]], dtype=np.object_), "max_tokens": np.array([[4]], dtype=np.int32),
        "num_draft_tokens": np.array([[2]], dtype=np.int32), "min_tokens": np.array([[3]], dtype=np.int32),
        "seed": np.array([[5]], dtype=np.uint64), "return_perf_metrics": np.array([[True]]),
    }  # fmt: skip
    sender = fakepb.Sender()
    served.execute([fakepb.Request(given, sender, "r")])
    served.finalize()
    (answer,) = sender.sent
    assert not answer.has_error(), answer.error().message()
    return calls


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.18.2", {"min_length", "random_seed", "return_kv_cache_reuse_stats"}),
        ("0.19.0", {"min_length", "random_seed", "return_perf_metrics"}),
        ("1.2.1", {"min_tokens", "seed", "return_perf_metrics"}),
    ],
)
def test_the_bls_speaks_its_versions_names(tmp_path: Path, version: str, names: set[str]) -> None:
    calls = asked(tmp_path, version)
    said = {name for tensors, _ in calls for name in tensors}
    every = {"min_length", "random_seed", "return_kv_cache_reuse_stats", "min_tokens", "seed", "return_perf_metrics"}
    assert said & every == names


@pytest.mark.parametrize(("version", "counted"), [("1.1.0", True), ("1.2.1", False)])
def test_postprocessing_counts_where_the_backend_does_not(tmp_path: Path, version: str, counted: bool) -> None:
    repository = small_repository(tmp_path, backend="tensorrt", version=version)
    served, _ = started(repository / "postprocessing")
    tokens = np.array([[ids_of("abcd")]], dtype=np.int32)
    given: dict[str, Any] = {"TOKENS_BATCH": tokens, "SEQUENCE_LENGTH": np.array([[3]], dtype=np.int32)}
    (answer,) = served.execute([fakepb.Request(given, fakepb.Sender(), "r")])
    found = {tensor.name(): tensor.as_numpy() for tensor in answer.output_tensors()}
    assert found["OUTPUT"].tolist() == [b"abc"]
    assert ("NUM_OUTPUT_TOKENS" in found) is counted
    if counted:
        assert found["NUM_OUTPUT_TOKENS"].tolist() == [[3]]
