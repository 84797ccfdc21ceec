"""Our model on the LLM API, on a stand-in for TensorRT-LLM: nothing here ran on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import eventually
from tests.triton import fakepb, llmapirepo, standinllm
from tests.triton.llmapirepo import request
from tests.triton.throwaway import serving
from trtspec.triton.server import TritonServer

TEXT = "one two three four five six seven"


class Served:
    """The model, and requests to it until their last answer."""

    def __init__(self, model: Any, llm: standinllm.LLM) -> None:
        self.model, self.llm = model, llm

    def ask(self, text: str = TEXT, **tensors: Any) -> fakepb.Sender:
        asked = request(text_input=text, **tensors)
        self.model.execute([asked])
        eventually(lambda: asked.sender.finals == 1)
        return asked.sender

    def tensors(self, text: str = TEXT, **tensors: Any) -> dict[str, Any]:
        [sent] = self.ask(text, **tensors).sent
        assert not sent.has_error(), sent.error().message()  # type: ignore[union-attr]
        return sent.tensors()

    def error(self, text: str = TEXT, **tensors: Any) -> fakepb.TritonError:
        error = self.ask(text, **tensors).sent[-1].error()
        assert error is not None
        return error


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    model, _, llm = llmapirepo.started(llmapirepo.written(tmp_path), monkeypatch)
    yield Served(model, llm)
    model.finalize()
    assert llm.closed


def test_the_llm_gets_the_options_of_model_yaml(served: Served) -> None:
    assert served.llm.options["speculative_config"]["max_draft_len"] == 4
    assert "triton_config" not in served.llm.options


def test_an_answer_is_text_and_nothing_that_was_not_asked_for(served: Served) -> None:
    found = served.tensors()
    assert list(found) == ["text_output"]
    assert found["text_output"].tolist() == [TEXT.encode()]


def test_sampling_parameters_are_passed_on(served: Served) -> None:
    served.ask(
        sampling_param_max_tokens=2, sampling_param_temperature=0.5, sampling_param_seed=7,
        sampling_param_stop=["a", "b"], sampling_param_add_special_tokens=False,
    )  # fmt: skip
    assert served.llm.asked[-1].given == {
        "max_tokens": 2, "temperature": 0.5, "seed": 7, "stop": ["a", "b"], "add_special_tokens": False
    }  # fmt: skip


def test_acceptance_totals_are_numbers(served: Served) -> None:
    found = served.tensors(sampling_param_return_perf_metrics=True)
    assert found["total_accepted_draft_tokens"].tolist() == [4]  # 7 tokens in 3 rounds
    assert found["total_draft_tokens"].tolist() == [12]
    assert found["acceptance_rate"].tolist() == pytest.approx([4 / 12])
    assert str(found["acceptance_rate"].dtype) == "float32"
    assert found["spec_rounds"].tolist() == [3]
    assert found["spec_source"].tolist() == [b"metrics"]
    assert found["num_output_tokens"].tolist() == [7]
    assert found["kv_cache_hit_rate"].tolist() == [0.25]
    assert found["arrival_time_ns"].tolist() == [5_000_000_000]


def test_metrics_of_zero_are_replaced_by_the_iterations_and_said_to_be(served: Served) -> None:
    found = served.tensors(f"zeros {TEXT}", sampling_param_return_perf_metrics=True)
    assert found["total_accepted_draft_tokens"].tolist() == [5]  # 8 tokens in 3 rounds
    assert found["total_draft_tokens"].tolist() == [12]
    assert found["spec_source"].tolist() == [b"iterations"]


def test_several_answers(served: Served) -> None:
    found = served.tensors(
        sampling_param_n=3, sampling_param_temperature=1.0, return_finish_reason=True, return_cumulative_logprob=True,
        sampling_param_return_perf_metrics=True,
    )  # fmt: skip
    assert found["text_output"].tolist() == [TEXT.encode()] * 3
    assert found["finish_reason"].tolist() == [b"stop"] * 3
    assert found["cumulative_logprob"].tolist() == [-1.5] * 3
    assert found["total_accepted_draft_tokens"].tolist() == [12]
    assert "spec_rounds" not in found  # one count for three answers says nothing


def test_a_stream_carries_new_text_only(served: Served) -> None:
    sent = served.ask(streaming=True, return_finish_reason=True).sent
    parts = [response.tensors()["text_output"].tolist()[0].decode() for response in sent]
    assert len(parts) == 3
    assert "".join(parts) == TEXT
    assert ["finish_reason" in response.tensors() for response in sent] == [False, False, True]


def test_an_incomplete_character_waits_for_its_bytes(served: Served) -> None:
    sent = served.ask("a b c\ufffd d e f", streaming=True).sent
    parts = [response.tensors()["text_output"].tolist()[0].decode() for response in sent]
    assert parts == ["a b c", "\ufffd d e f"]


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"text_input": ["a", "b"]}, "2 prompts"),
        ({"sampling_param_max_tokens": 0}, "at least 1"),
        ({"sampling_param_top_p": 1.5}, "between 0 and 1"),
        ({"sampling_param_n": 2, "sampling_param_best_of": 1}, "best_of is below"),
        ({"sampling_param_temperature": [0.1, 0.2]}, "2 values"),
    ],
)
def test_what_cannot_be_served_is_one_line(served: Served, tensors: dict[str, Any], says: str) -> None:
    asked = request(**({"text_input": "a"} | tensors))
    served.model.execute([asked])
    eventually(lambda: asked.sender.finals == 1)
    [error] = [response.error() for response in asked.sender.sent]
    assert error is not None
    assert says in error.message()
    assert error.code() == "INVALID_ARG"
    assert served.llm.asked == []


def test_a_refusal_of_the_llm_api_is_one_line(served: Served) -> None:
    assert served.error(sampling_param_n=2).message() == "Greedy decoding allows n=1 only."
    assert served.error("this breaks").message() == "CUDA out of memory"
    assert served.tensors()["text_output"].tolist() == [TEXT.encode()]


def test_a_stop_request_ends_the_request_of_its_id(served: Served) -> None:
    running = request("mine", text_input="slow " * 300)
    other = request("other", text_input="slow word")
    served.model.execute([running, other])
    eventually(lambda: len(served.llm.asked) == 2)
    stop = request("mine", stop=True, text_input="")
    served.model.execute([stop])
    eventually(lambda: running.sender.finals == 1 and other.sender.finals == 1)
    assert stop.sender.finals == 1
    assert stop.sender.sent == []
    assert running.sender.sent[-1].error().code() == "CANCELLED"  # type: ignore[union-attr]
    assert not other.sender.sent[-1].has_error()


def test_a_stop_request_without_an_id_is_refused(served: Served) -> None:
    stop = request("", stop=True, text_input="")
    served.model.execute([stop])
    assert "needs the request id" in stop.sender.sent[0].error().message()  # type: ignore[union-attr]


def test_a_client_that_has_gone_is_noticed(served: Served) -> None:
    gone = request(sender=fakepb.Sender(gone_after=1), text_input="slow " * 300, streaming=True)
    served.model.execute([gone])
    eventually(lambda: gone.sender.finals == 1)
    assert len(gone.sender.sent) < 50
    assert gone.sender.sent[-1].error().code() == "CANCELLED"  # type: ignore[union-attr]


def test_finalize_ends_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, llm = llmapirepo.started(llmapirepo.written(tmp_path), monkeypatch)
    running = request(text_input="slow " * 300)
    model.execute([running])
    eventually(lambda: len(llm.asked) == 1)
    model.finalize()
    assert running.sender.finals == 1
    assert llm.closed


def test_several_mpi_ranks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = llmapirepo.written(tmp_path)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="trtllm-serve"):
        llmapirepo.started(repository, monkeypatch)


def test_what_mpirun_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_MCA_btl", "self")
    model, _, _ = llmapirepo.started(llmapirepo.written(tmp_path), monkeypatch)
    model.finalize()
    assert "OMPI_COMM_WORLD_RANK" not in os.environ
    assert os.environ.get("OMPI_MCA_" + "btl") == "self"  # a setting, not a trace of a job


def test_another_options_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("{model: elsewhere, triton_config: {cancellation_check_period_ms: 10}}")
    monkeypatch.setenv("LLM_CONFIG_PATH", str(other))
    model, _, llm = llmapirepo.started(llmapirepo.written(tmp_path), monkeypatch)
    model.finalize()
    assert llm.options == {"model": "elsewhere"}
    other.write_text("[]")
    with pytest.raises(RuntimeError, match="holds no LLM"):
        llmapirepo.started(llmapirepo.written(tmp_path / "again"), monkeypatch)


@pytest.mark.triton
def test_the_stand_in_behind_a_real_triton(tmp_path: Path) -> None:
    """config.pbtxt is complete, streams go through, and a request without options is answered."""
    import json
    import urllib.request

    repository = llmapirepo.with_standin(llmapirepo.written(tmp_path))
    with TritonServer.start(repository, serving(), tmp_path / "triton.log") as server:

        def post(path: str, **body: Any) -> str:
            url = f"http://{server.http_url}/v2/models/tensorrt_llm/{path}"
            data = json.dumps(body).encode()
            with urllib.request.urlopen(urllib.request.Request(url, data), timeout=20) as answer:
                text: str = answer.read().decode()
                return text

        found = json.loads(post("generate", text_input=TEXT, sampling_param_return_perf_metrics=True))
        assert found["text_output"] == TEXT
        assert (found["total_accepted_draft_tokens"], found["total_draft_tokens"]) == (4, 12)
        assert found["acceptance_rate"] == pytest.approx(4 / 12)
        lines = post("generate_stream", text_input=TEXT, streaming=True).splitlines()
        parts = [json.loads(line.removeprefix("data: "))["text_output"] for line in lines if line]
        assert "".join(parts) == TEXT
        assert len(parts) == 3
