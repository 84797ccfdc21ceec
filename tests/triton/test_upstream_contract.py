"""What TensorRT-LLM's own Triton clients send and expect, on the generated repository with a real Triton.

Those clients are `end_to_end_grpc_client`, `e2e_grpc_speculative_decoding_client`, `speculative_decoding_test`,
`benchmark_core_model`, `inflight_batcher_llm_client` and the metrics checks of its CI. Here is what they rely on,
sent with the same library. Most call `infer`, which Triton allows only for models that are not decoupled.
"""

from __future__ import annotations

import queue
import re
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.triton.servedpair import build, serve
from trtspec.triton.lint import lint
from trtspec.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

BLS, ALONE, TARGET, DRAFT = "tensorrt_llm_bls", "ensemble", "tensorrt_llm", "tensorrt_llm_draft"
PROMPTS = ("def read_lines(path: str) -> list[str]:\n", "class Queue:\n    def put(self", "x")
WORD = " ->"
PERF = (
    *("kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks", "arrival_time_ns"),
    *("first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns", "acceptance_rate"),
    *("total_accepted_draft_tokens", "total_draft_tokens"),
)
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upstream")


@pytest.fixture(scope="module")
def answering(folder: Path, tiny_config: Path) -> Iterator[TritonServer]:
    """A server with upstream's habits: models answer once, answers begin with their prompt and end with stop words."""
    habits = ("decoupled=false", "exclude_input_in_output=false", "include_stop_words=true", "dynamic_batching=false")
    repository = build(tiny_config, folder, *(f"serving.{habit}" for habit in habits))
    assert lint(repository) == ()
    with serve(repository, folder / "answering.log") as server:
        yield server


@pytest.fixture(scope="module")
def client(answering: TritonServer) -> Iterator[grpc.InferenceServerClient]:
    with grpc.InferenceServerClient(answering.grpc_url) as found:
        yield found


def i32(*values: int) -> np.ndarray[Any, Any]:
    return np.array([values], np.int32)


def words(*values: str) -> np.ndarray[Any, Any]:
    return np.array([values], dtype=object)


def tensors(module: Any, arrays: Arrays) -> list[Any]:
    made = []
    for name, array in arrays.items():
        made.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        made[-1].set_data_from_numpy(array)
    return made


def infer(client: Any, model: str, arrays: Arrays, module: Any = grpc, **more: Any) -> Any:
    return client.infer(model, tensors(module, arrays), **more)


def streamed(
    client: grpc.InferenceServerClient, model: str, arrays: Arrays, outputs: tuple[str, ...] = ("text_output",)
) -> list[Any]:
    """What `async_stream_infer` and `stop_stream` bring; as those clients do, one stream a request."""
    came: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: came.put(error or result))
    wanted = [grpc.InferRequestedOutput(name) for name in outputs] or None
    client.async_stream_infer(model, tensors(grpc, arrays), outputs=wanted, request_id="1")
    client.stop_stream()
    return list(came.queue)


def end_to_end(prompt: str, max_tokens: int, **more: np.ndarray[Any, Any]) -> Arrays:
    """The inputs that `end_to_end_grpc_client` sends when `speculative_decoding_test` calls it."""
    return {
        "text_input": words(prompt),
        "max_tokens": i32(max_tokens),
        "stream": np.array([[False]]),
        "beam_width": i32(1),
        "temperature": np.array([[1.0]], np.float32),
        "embedding_bias_words": np.array([[]], dtype=object),
        "embedding_bias_weights": np.array([[]], np.float32),
        "exclude_input_in_output": np.array([[False]]),
        **more,
    }


def alone(client: grpc.InferenceServerClient, prompt: str, max_tokens: int, exclude: bool = False) -> str:
    inputs = end_to_end(prompt, max_tokens, exclude_input_in_output=np.array([[exclude]]))
    (result,) = streamed(client, ALONE, inputs)
    return str(result.as_numpy("text_output")[0].decode())


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_bls_says_what_the_ensemble_says(client: grpc.InferenceServerClient, prompt: str, exclude: bool) -> None:
    """`speculative_decoding_test --execute-bls-speculative-decoding`, with and without --exclude-input-in-output."""
    inputs = end_to_end(prompt, 20, exclude_input_in_output=np.array([[exclude]]))
    drafting = {"num_draft_tokens": i32(5), "use_draft_logits": np.array([[False]])}
    asked = {"return_perf_metrics": np.array([[True]])}
    (result,) = streamed(client, BLS, inputs | drafting | asked, ("text_output", *PERF))
    text = result.as_numpy("text_output")[0].decode()
    assert text == alone(client, prompt, 20, exclude)
    assert text.startswith(prompt) is not exclude
    figures = {name: result.as_numpy(name) for name in PERF}
    assert {name: array.shape for name, array in figures.items()} == dict.fromkeys(PERF, (1, 1))
    drafted, accepted = (int(figures[f"total_{what}_tokens"][0][0]) for what in ("draft", "accepted_draft"))
    assert drafted > 0
    assert figures["acceptance_rate"][0][0] == pytest.approx(accepted / drafted)


@pytest.mark.parametrize("model", [ALONE, BLS])
def test_a_plain_request_has_all_figures_too(client: grpc.InferenceServerClient, model: str) -> None:
    """CI expects ten tensors and no acceptance of a request without drafts."""
    plain = {"num_draft_tokens": i32(0)} if model == BLS else {}
    inputs = end_to_end(PROMPTS[0], 8, return_perf_metrics=np.array([[True]]), **plain)
    (result,) = streamed(client, model, inputs, ("text_output", *PERF))
    figures = {name: result.as_numpy(name)[0][0] for name in PERF}
    assert str(figures["acceptance_rate"]) == "0.0"
    assert (figures["total_accepted_draft_tokens"], figures["total_draft_tokens"]) == (0, 0)
    assert all(figures[name] > 0 for name in PERF if name.endswith("_time_ns"))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_loop_in_a_client(client: grpc.InferenceServerClient, prompt: str) -> None:
    """`e2e_grpc_speculative_decoding_client`: the rounds are made by the client, call by call."""
    given = infer(client, "preprocessing", {"QUERY": words(prompt), "REQUEST_OUTPUT_LEN": i32(20)})
    ids = start = np.squeeze(given.as_numpy("INPUT_ID"), axis=0)
    rest = {
        "bad_words_list": given.as_numpy("BAD_WORDS_IDS"),
        "stop_words_list": given.as_numpy("STOP_WORDS_IDS"),
        "beam_width": i32(1),
        "temperature": np.array([[1.0]], np.float32),
        "end_id": given.as_numpy("OUT_END_ID"),
        "pad_id": given.as_numpy("OUT_PAD_ID"),
    }

    def call(model: str, new: int, drafts: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        inputs = {"input_ids": ids[None], "input_lengths": i32(len(ids)), "request_output_len": i32(new)} | rest
        more = {} if drafts is None else {"draft_input_ids": drafts[None]}
        result = infer(client, model, inputs | more, request_id="1")
        assert result.as_numpy("sequence_length").shape == (1, 1)
        output: np.ndarray[Any, Any] = np.squeeze(result.as_numpy("output_ids"), axis=(0, 1))
        return output[: result.as_numpy("sequence_length")[0, 0]]

    while len(ids) < len(start) + 20:
        room = min(5, len(start) + 20 - len(ids) - 1)
        drafts = call(DRAFT, room)[len(ids) :] if room else None
        before = ids
        ids = call(TARGET, 1 if drafts is None else len(drafts) + 1, drafts)
        assert len(before) < len(ids) <= len(before) + room + 1
    done = infer(client, "postprocessing", {"TOKENS_BATCH": ids[None, None], "SEQUENCE_LENGTH": i32(len(ids))})
    assert done.as_numpy("OUTPUT")[0].decode() == alone(client, prompt, 20)


def core(ids: tuple[int, ...], new: int) -> Arrays:
    inputs = {"input_ids": i32(*ids), "input_lengths": i32(len(ids)), "request_output_len": i32(new)}
    return inputs | {"pad_id": i32(0), "end_id": i32(1)}


def test_the_benchmark_reads_lengths_out_of_the_first_output(answering: TritonServer) -> None:
    """`benchmark_core_model`: many at once, told apart by the id that comes back."""
    with grpc.InferenceServerClient(answering.grpc_url) as client:
        came: queue.Queue[Any] = queue.Queue()
        for i in range(12):
            inputs = tensors(grpc, core((5, 6, 7), 4 + i))
            client.async_infer(
                TARGET, inputs, partial(lambda result, error: came.put((result, error))), request_id=str(i)
            )
        answers = [came.get(timeout=60) for _ in range(12)]
    assert [error for _, error in answers if error] == []
    found = {int(r.get_response(as_json=True)["id"]): r.get_response(as_json=True)["outputs"][0] for r, _ in answers}
    assert {output["name"] for output in found.values()} == {"output_ids"}
    lengths = {i: int(output["shape"][2]) - 3 for i, output in found.items()}
    assert sorted(lengths) == list(range(12))
    assert all(0 < lengths[i] <= 4 + i for i in lengths)
    with http.InferenceServerClient(answering.http_url) as plain:
        result = infer(plain, TARGET, core((5, 6, 7), 4), http, request_id="9")
    assert (result.get_response()["id"], result.as_numpy("output_ids").shape[:2]) == ("9", (1, 1))


def test_exactly_the_outputs_that_were_asked_for(client: grpc.InferenceServerClient) -> None:
    """`inflight_batcher_llm_client --requested-outputs`, with its fixed top_k 1 and top_p 0."""
    more = {"runtime_top_k": i32(1), "runtime_top_p": np.array([[0.0]], np.float32), "streaming": np.array([[False]])}
    names = ("output_ids", "sequence_length", "output_log_probs", "cum_log_probs")
    result = infer(
        client,
        TARGET,
        core((5, 6, 7), 6) | more | {"return_log_probs": np.array([[True]])},
        outputs=[grpc.InferRequestedOutput(name) for name in names],
        parameters={"Streaming": False},
    )
    assert [output.name for output in result.get_response().outputs] == list(names)
    new = int(result.as_numpy("sequence_length")[0][0]) - 3
    assert result.as_numpy("output_log_probs").shape == (1, 1, new)


STOP: Arrays = {"input_ids": i32(0), "input_lengths": i32(0), "request_output_len": i32(0), "stop": np.array([[True]])}


def test_a_stop_request_is_answered_and_ends_the_other(client: grpc.InferenceServerClient) -> None:
    """`inflight_batcher_llm_client --stop-after-ms`: the stop brings no tokens, the other those that it has by then."""
    with ThreadPoolExecutor() as pool:
        longest = core((5, 6, 7), 1000) | {"end_id": i32(-1)}
        running = pool.submit(infer, client, TARGET, longest, request_id="stopped")
        time.sleep(0.3)
        assert infer(client, TARGET, STOP, request_id="stopped").as_numpy("output_ids") is None
        ids = running.result(60).as_numpy("output_ids")[0, 0].tolist()
    assert ids[:3] == [5, 6, 7]
    assert len(ids) < 1003


def test_the_bls_puts_the_prompt_in_front(client: grpc.InferenceServerClient) -> None:
    """`end_to_end_test --test-bls` compares with the ensemble and never says what is to be excluded."""
    inputs = {
        "text_input": words("class Queue:"),
        "max_tokens": i32(9),
        "bad_words": words(""),
        "stop_words": words(""),
    }
    texts = [infer(client, model, inputs).as_numpy("text_output")[0].decode() for model in (ALONE, BLS)]
    assert texts[0] == texts[1]
    assert texts[0].startswith("class Queue:")


@pytest.mark.parametrize("draft", [5, 0])
def test_the_answer_ends_with_the_stop_word(client: grpc.InferenceServerClient, draft: int) -> None:
    """`speculative_decoding_test --stop-words`, with a word whose tokens are those of the text."""
    plain = alone(client, PROMPTS[0], 30, exclude=True)
    assert 0 < plain.find(WORD) < len(plain) - len(WORD)
    stop = {"stop_words": words(WORD, "?!"), "exclude_input_in_output": np.array([[True]])}
    inputs = end_to_end(PROMPTS[0], 30, **stop)
    (target,) = streamed(client, ALONE, inputs)
    (both,) = streamed(client, BLS, inputs | {"num_draft_tokens": i32(draft)})
    expected = plain[: plain.find(WORD) + len(WORD)]
    assert [r.as_numpy("text_output")[0].decode() for r in (target, both)] == [expected] * 2


@pytest.mark.parametrize("draft", [5, 0])
def test_a_stop_word_is_found_by_characters(client: grpc.InferenceServerClient, draft: int) -> None:
    """Upstream's BLS cuts the text at the first stop word, whatever tokens it is part of; its ensemble does not."""
    plain = alone(client, PROMPTS[0], 30, exclude=True)
    within = plain[5:9]
    stop = {"stop_words": words("?!", within), "exclude_input_in_output": np.array([[True]])}
    (found,) = streamed(client, BLS, end_to_end(PROMPTS[0], 30, **stop) | {"num_draft_tokens": i32(draft)})
    assert found.as_numpy("text_output")[0].decode() == plain[: plain.find(within) + len(within)]


def lengths(server: TritonServer, kind: str) -> dict[str, int]:
    """Counts by upper bound, found as CI's check finds them: with exactly these labels, in this order."""
    with urllib.request.urlopen(server.metrics_url) as page:
        text = page.read().decode()
    labels = rf'model="tensorrt_llm",response_metric_type="total_{kind}_tokens",version="1",le="([^"]+)"'
    return {end: int(n) for end, n in re.findall(rf"nv_llm_{kind}_token_len_bucket{{{labels}}} (\d+)", text)}


def test_lengths_of_requests_are_counted(answering: TritonServer, client: grpc.InferenceServerClient) -> None:
    """By the target, as soon as the answer is there; rounds of the pipeline are no requests."""
    kinds = ("input", "output")
    infer(client, TARGET, core((5, 6, 7), 1))  # the series are there from the first answer on, at the latest
    before = [lengths(answering, kind) for kind in kinds]
    assert [list(found) for found in before] == [["10", "50", "100", "500", "1000", "+Inf"]] * 2
    infer(client, TARGET, core((5, 6, 7), 12) | {"end_id": i32(-1)})
    infer(client, TARGET, core((5,) * 60, 3) | {"end_id": i32(-1), "draft_input_ids": i32(5, 6)})
    infer(client, DRAFT, core((5,) * 60, 3) | {"end_id": i32(-1)})
    grown = [[lengths(answering, k)[end] - n for end, n in b.items()] for k, b in zip(kinds, before, strict=True)]
    assert grown == [[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]


def test_the_engine_says_how_busy_it_is(answering: TritonServer) -> None:
    """Under the names of TensorRT-LLM's backend, where the reference engine knows the figure."""
    page = answering.metrics()
    found = {
        dict(labels)["request_type"]: value
        for labels, value in page["nv_trt_llm_request_metrics"].items()
        if ("model", TARGET) in labels
    }
    assert set(found) == {"active", "max", "scheduled", "waiting"}
    assert found["max"] == 8
    assert page["nv_trt_llm_general_metrics"]


def test_every_model_of_the_ensemble_counts_alike(answering: TritonServer) -> None:
    """What CI's base metrics check compares; executions, too, of the models that it does not expect to batch."""
    models = (ALONE, "preprocessing", TARGET, "postprocessing")

    def counts(name: str) -> list[float]:
        found = answering.metrics()[name]
        return [sum(v for labels, v in found.items() if ("model", model) in labels) for model in models]

    kinds = ("request_success", "request_failure", "count", "exec_count")
    names = [f"nv_inference_{kind}" for kind in kinds]
    before = {name: counts(name) for name in names}
    inputs = {"text_input": words("x"), "max_tokens": i32(3), "bad_words": words(""), "stop_words": words("")}
    with http.InferenceServerClient(answering.http_url, concurrency=4) as client:
        waiting = [client.async_infer(ALONE, tensors(http, inputs), request_id=str(i)) for i in range(8)]
        assert all(w.get_result().as_numpy("text_output").shape == (1,) for w in waiting)
    grown = {name: [b - a for a, b in zip(before[name], counts(name), strict=True)] for name in names}
    assert grown[names[3]][0::2] == [8.0, 8.0]
    assert [grown[name] for name in names[:3]] == [[8.0] * 4, [0.0] * 4, [8.0] * 4]


@pytest.mark.parametrize("model", [ALONE, BLS])
def test_a_stream_from_models_that_answer_once_is_refused(client: grpc.InferenceServerClient, model: str) -> None:
    inputs = end_to_end("x", 5, stream=np.array([[True]]))
    (error,) = streamed(client, model, inputs)
    assert isinstance(error, InferenceServerException)
    assert "one response" in str(error)
    assert alone(client, "x", 5)
