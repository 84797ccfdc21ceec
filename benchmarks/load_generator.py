"""What the load generator costs, and whether its throughput is true: 64 streams against a model that computes nothing.

The baseline is a loop over the public tritonclient (one client, stream and thread per request in flight) that reads the
two tensors it needs. Both ask the same requests of the same server in turns; CPU is that of this process. Throughput of
a window is compared with the rise of Triton's own counters between two scrapes at the window's edges.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from benchmarks.common import print_table, spread, workspace
from tests.triton.throwaway import GENERATE_INPUTS, GENERATE_OUTPUTS, add_model, serving
from trtspec.config.validation import Validation
from trtspec.measurement.asking import Asker
from trtspec.measurement.endpoints import ENSEMBLE, Endpoint
from trtspec.measurement.load import measure
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.scrape import REQUESTS, risen
from trtspec.measurement.sweep import WARM, Load, sweep
from trtspec.triton import health
from trtspec.triton.client import TritonClient
from trtspec.triton.server import TritonServer

STREAMS = 64
CEILING, AGREEMENT = 1.3, 0.03

NULL = """
import threading, time
import numpy as np
import triton_python_backend_utils as pb

TICK = {tick}
FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    '''Sends every running request one piece a tick, as a model that steps a batch does. Nothing is computed.'''

    def initialize(self, args):
        one = np.array([[1]], np.int32)
        word = np.array([[b" word"]], np.object_)
        self.piece = [pb.Tensor("text_output", word), pb.Tensor("num_input_tokens", one),
                      pb.Tensor("num_output_tokens", one)]
        self.running = []
        self.lock = threading.Lock()
        threading.Thread(target=self.steps, daemon=True).start()

    def execute(self, requests):
        for request in requests:
            count = int(pb.get_input_tensor_by_name(request, "max_tokens").as_numpy().flat[0])
            with self.lock:
                self.running.append([request.get_response_sender(), count])

    def steps(self):
        while True:
            time.sleep(TICK)
            with self.lock:
                running = list(self.running)
            for state in running:
                state[1] -= 1
                state[0].send(pb.InferenceResponse(self.piece))
                if not state[1]:
                    state[0].send(flags=FINAL)
            with self.lock:
                self.running = [state for state in self.running if state[1] > 0]
"""


@dataclass(frozen=True)
class Cost:
    """CPU seconds of this process, and tokens that came."""

    cpu: float
    tokens: int

    @property
    def per_token(self) -> float:
        """Microseconds."""
        return 1e6 * self.cpu / self.tokens


def timed(work: Callable[[], int]) -> Cost:
    before = time.process_time()
    tokens = work()
    return Cost(time.process_time() - before, tokens)


class Bare:
    """What anybody would write with tritonclient: a client per request in flight, its stream open all the time."""

    def __init__(self, url: str, streams: int) -> None:
        from tritonclient.grpc import InferenceServerClient

        self._clients = [InferenceServerClient(url) for _ in range(streams)]
        self._answers: list[SimpleQueue[Any]] = [SimpleQueue() for _ in self._clients]
        for client, queue in zip(self._clients, self._answers, strict=True):
            client.start_stream(callback=lambda result, error, queue=queue: queue.put((result, error)))

    def __call__(self, prompts: Sequence[Prompt]) -> int:
        work, tokens, lock = iter(prompts), [0] * len(self._clients), threading.Lock()

        def drain(number: int) -> None:
            while True:
                with lock:
                    prompt = next(work, None)
                if prompt is None:
                    return
                tokens[number] += self._ask(number, prompt)

        threads = [threading.Thread(target=drain, args=(i,)) for i in range(len(self._clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(tokens)

    def _ask(self, number: int, prompt: Prompt) -> int:
        from tritonclient.grpc import InferInput

        given = {
            "text_input": np.array([[prompt.text.encode()]], np.object_),
            "max_tokens": np.array([[prompt.max_tokens]], np.int32),
            "stream": np.array([[True]]),
        }
        kinds = {"text_input": "BYTES", "max_tokens": "INT32", "stream": "BOOL"}
        inputs = [InferInput(name, list(array.shape), kinds[name]) for name, array in given.items()]
        for tensor, array in zip(inputs, given.values(), strict=True):
            tensor.set_data_from_numpy(array)
        self._clients[number].async_stream_infer(ENSEMBLE, inputs, enable_empty_final_response=True)
        text, tokens = b"", 0
        while True:
            result, error = self._answers[number].get()
            if error is not None:
                raise error
            response = result.get_response()
            if response.outputs:
                text += result.as_numpy("text_output").flat[0]
                tokens += int(result.as_numpy("num_output_tokens").flat[0])
            if response.parameters["triton_final_response"].bool_param:
                assert text
                return tokens

    def close(self) -> None:
        for client in self._clients:
            client.stop_stream()
            client.close()


def endpoint(url: str) -> Endpoint:
    return Endpoint(lambda: TritonClient(url), ENSEMBLE)


def ours(url: str, prompts: Sequence[Prompt]) -> int:
    """The measurement itself, one mode of it."""
    found = measure(
        lambda: TritonClient(url),
        prompts,
        Validation(concurrency=STREAMS, warmup=0),
        1,
        endpoints={"target-only": endpoint(url)},
    )
    assert all(a.usable for a in found.answers)
    return sum(a.output_tokens for a in found.answers)


def agreement(server: TritonServer, prompts: Sequence[Prompt], seconds: float) -> tuple[float, float]:
    """(requests a second by a window of ours, by Triton's counters between scrapes at its edges)."""
    host, _, port = server.metrics_url.removeprefix("http://").removesuffix("/metrics").partition(":")
    seen: list[tuple[float, Any]] = []

    def watch() -> None:
        time.sleep(WARM * seconds)
        for pause in (seconds, 0.0):
            seen.append((time.perf_counter(), health.metrics(host, int(port))))
            time.sleep(pause)

    asker = Asker(Validation(window=seconds))
    thread = threading.Thread(target=watch)
    thread.start()
    (window,) = sweep(asker, {"target-only": endpoint(server.grpc_url)}, prompts, [Load(concurrency=STREAMS)])
    thread.join()
    (start, before), (end, after) = seen
    theirs = risen(before, after, REQUESTS, model=ENSEMBLE) or 0.0
    return window.finished / window.seconds, theirs / (end - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--requests", type=int, default=512, help="requests of one repetition")
    parser.add_argument("--tokens", type=int, default=32, help="pieces of an answer, on average")
    parser.add_argument("--tick", type=float, default=0.02, help="seconds between two pieces")
    parser.add_argument("--window", type=float, default=10.0, help="seconds of a window")
    given = parser.parse_args()
    # Of many lengths: equal ones would begin and end together, and any two counts of them would agree.
    lengths = [given.tokens // 2 + 7 * i % given.tokens for i in range(given.requests)]
    prompts = [Prompt(str(i), "null", f"prompt {i}", n) for i, n in enumerate(lengths)]
    with workspace() as folder:
        run(given, prompts, folder)


def run(given: argparse.Namespace, prompts: Sequence[Prompt], folder: Path) -> None:
    repository = folder / "models"
    add_model(repository, ENSEMBLE, NULL.format(tick=given.tick), GENERATE_INPUTS, GENERATE_OUTPUTS)
    with TritonServer.start(repository, serving(), folder / "triton.log") as server:
        url = server.grpc_url
        bare = Bare(url, STREAMS)
        bare(prompts[:STREAMS])
        ours(url, prompts[:STREAMS])
        pairs = [(timed(lambda: bare(prompts)), timed(lambda: ours(url, prompts))) for _ in range(given.repeat)]
        bare.close()
        windows = [agreement(server, prompts, given.window) for _ in range(given.repeat)]
    ratios = [mine.per_token / base.per_token for base, mine in pairs]
    apart = [abs(mine / theirs - 1.0) for mine, theirs in windows]
    rows = [
        (
            f"CPU per token, {STREAMS} streams: {statistics.median(m.per_token for _, m in pairs):.0f} µs",
            f"tritonclient loop: {statistics.median(b.per_token for b, _ in pairs):.0f} µs",
            spread(ratios),
            f"≤ {CEILING}",
        ),
        (
            f"requests/s of a window of {given.window:g} s: {statistics.median(m for m, _ in windows):.1f}",
            f"Triton's counters: {statistics.median(t for _, t in windows):.1f}",
            f"apart {100 * statistics.median(apart):.1f} % (at most {100 * max(apart):.1f} %)",
            f"≤ {100 * AGREEMENT:g} %",
        ),
    ]
    print_table("The load generator", ("what", "baseline", "ratio", "ceiling"), rows)


if __name__ == "__main__":
    main()
