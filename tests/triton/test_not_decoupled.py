"""The pipeline in front of LLM models of either kind, decoupled or not, in a real Triton."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from tests.triton.modelfolder import EOS, ids_of, small_repository
from tests.triton.throwaway import serving
from trtspec.triton import pbtxt
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.slow]

TRUTH = "the quick 😀 fox"
SAYS = f"""
import numpy as np
import triton_python_backend_utils as pb

TRUTH = {[*ids_of(TRUTH), EOS]}

class TritonPythonModel:
    def initialize(self, args):
        self.draft = "draft" in args["model_name"]
        self.decoupled = pb.using_decoupled_model_transaction_policy(__import__("json").loads(args["model_config"]))

    def execute(self, requests):
        answers = [self.answer(request) for request in requests]
        if not self.decoupled:
            return answers
        for request, answer in zip(requests, answers):
            request.get_response_sender().send(answer, flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answer(self, request):
        given = {{t.name(): t.as_numpy().reshape(-1).tolist() for t in request.inputs()}}
        start = given["input_lengths"][0] - 2
        new = TRUTH[start : start + given["request_output_len"][0]]
        if self.draft:
            new = [9 if (start + i) % 5 == 4 else token for i, token in enumerate(new)]
        for i, token in enumerate(given.get("draft_input_ids", [])):
            if i < len(new) and new[i] != token:
                new = new[: i + 1]
        new = new[: new.index({EOS})] if {EOS} in new else new
        return pb.InferenceResponse([
            pb.Tensor("output_ids", np.array([[new]], dtype=np.int32)),
            pb.Tensor("sequence_length", np.array([[len(new)]], dtype=np.int32)),
        ])
"""


@pytest.mark.parametrize("decoupled", [True, False])
def test_the_answer_is_the_same(tmp_path: Path, decoupled: bool) -> None:
    repository = small_repository(tmp_path)
    for name in ("tensorrt_llm", "tensorrt_llm_draft"):
        path = repository / name / pbtxt.FILE
        config = pbtxt.read(path)
        config.model_transaction_policy.decoupled = decoupled
        path.write_text(text_format.MessageToString(config), encoding="utf-8")
        (repository / name / "1" / "model.py").write_text(SAYS)
    # The ensemble hands a decoupled model's answers on; in front of the other kind it would have to be of that kind.
    with (
        TritonServer.start(repository, serving(stop_timeout=4.0), tmp_path / "triton.log") as server,
        TritonClient(server.grpc_url) as client,
    ):
        for k in (0, 1, 4):
            for stream in (False, True):
                found = client.generate("tensorrt_llm_bls", GenerateRequest("p", 50, draft_len=k, stream=stream))
                assert (found.text, found.finish_reason) == (TRUTH, "end_id")
                assert found.mode == ("speculative" if k else "target-only:requested")
                assert (found.accepted > 0) is (k > 0)
