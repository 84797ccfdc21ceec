"""What a speculative round through Triton costs beyond the same round inside one process.

In one run, alternating: two bare calls of a model that does nothing, made by a BLS model as the pipeline makes its
own; the same two calls with a verify call's tensors and a pause of half a round before each; a round of the reference
engine's own speculation, both engines in this process; and a round through Triton. A round's time is that of a whole
request divided by its rounds, so what a request costs besides is counted as well.

Bare calls one after another keep every process awake and its code in the CPU's caches. Between two calls of a real
round another process computes for a millisecond or two: the second figure says what the same calls cost then.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import serving_pair as served
from benchmarks.common import arguments, print_table, spread, workspace
from trtspec.backends.reference import Request, open_pair
from trtspec.backends.reference.speculation import SpeculativePair
from trtspec.config import RunConfig
from trtspec.triton.client import GenerateRequest, TritonClient

LIMIT = 3.0
BARE, PAUSED = "two bare calls", "two bare calls in a round's rhythm"
INSIDE, THROUGH = "a round in one process", "a round through Triton"
CALLS = 100
NULL = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            tensors = [pb.Tensor("output_ids", np.zeros((1, 1, 5), dtype=np.int32)),
                       pb.Tensor("sequence_length", np.full((1, 1), 5, dtype=np.int32))]
            sender.send(pb.InferenceResponse(tensors), flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CALLS_NULL = """
import time
import numpy as np
import triton_python_backend_utils as pb
from calls import ServedModels, Spent

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender, spent = request.get_response_sender(), Spent()
            count, pause, more = pb.get_input_tensor_by_name(request, "how").as_numpy().flat
            models, tensors = ServedModels(spent), {"input_ids": np.zeros((1, 160), dtype=np.int32)}
            tensors |= {f"more_{i}": np.ones((1, 1), dtype=np.int32) for i in range(more)}
            times = []
            for _ in range(count):
                took = 0.0
                for _ in range(2):
                    time.sleep(pause / 1e6)
                    began = time.perf_counter()
                    models.decoupled("null", "null", tensors, ["output_ids", "sequence_length"])
                    took += time.perf_counter() - began
                times.append(took)
            spent.is_cancelled(sender)
            sender.send(pb.InferenceResponse([pb.Tensor("seconds", np.array([times], dtype=np.float64))]),
                        flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
PBTXT = """
backend: "python"
max_batch_size: 8
model_transaction_policy {{ decoupled: true }}
input [ {given} ]
output [ {outputs} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
INTS = '{{ name: "{}" data_type: TYPE_INT32 dims: [ {} ] {}}}'
TENSORS = 10
"""Of a verify call, besides input_ids."""


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(count=12, repeat=5, tokens=96)
    parser.add_argument("--draft-len", type=int, default=4)
    parser.add_argument("--padded", action="store_true", help="widen the target")
    parser.add_argument("--fused", action="store_true", help="measure the fused pipeline, too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    texts = served.prompts(args.prompts, args.pair[0], args.count)
    with workspace() as folder:
        for layout in ("bls", "fused") if args.fused else ("bls",):
            choice = [] if layout == "bls" else ["serving.pipeline=fused"]
            config = served.build(folder / layout, padded=args.padded, overrides=choice)
            report(layout, measured(config, texts, args.tokens, args.draft_len, args.repeat))


def measured(
    config: RunConfig, texts: Sequence[str], tokens: int, draft_len: int, repeat: int
) -> dict[str, list[float]]:
    """Seconds of each kind: the median of each repetition."""
    add_null(served.write(config, {"version": 1, "default": {"draft_len": draft_len}}))
    found: dict[str, list[float]] = {kind: [] for kind in (BARE, PAUSED, INSIDE, THROUGH)}
    engines = [config.engine_dir(role) for role in ("target", "draft")]
    with (
        open_pair(*engines, draft_len=draft_len, threads=1) as pair,
        served.serve(config) as server,
        TritonClient(server.grpc_url) as client,
    ):
        ids = [client.tokens(text) for text in texts]
        ends = frozenset(config_ends(config))
        half = statistics.median(rounds_inside(pair, ids, tokens, ends)) / 2
        cases: dict[str, Callable[[], list[float]]] = {
            BARE: lambda: null_pairs(client),
            PAUSED: lambda: null_pairs(client, half, TENSORS),
            INSIDE: lambda: rounds_inside(pair, ids, tokens, ends),
            THROUGH: lambda: rounds_through(client, texts, tokens, draft_len),
        }
        for work in cases.values():
            work()
        for _ in range(repeat):
            for kind, work in cases.items():
                found[kind].append(statistics.median(work()))
    return found


def config_ends(config: RunConfig) -> tuple[int, ...]:
    """End ids of the target."""
    from trtspec.checkpoint.facts import ModelFacts
    from trtspec.triton.plan import special_ids

    target = config.pair.target.path
    assert target is not None
    return special_ids(target, ModelFacts.read(target))[0]


def rounds_inside(
    pair: SpeculativePair, prompts: Sequence[tuple[int, ...]], tokens: int, ends: frozenset[int]
) -> list[float]:
    """Seconds per round of each prompt, both engines in this process."""
    found = []
    for ids in prompts:
        began = time.perf_counter()
        result = pair.generate(Request("inside", ids, tokens, end_ids=ends))
        seconds = time.perf_counter() - began
        assert result.histogram is not None
        found.append(seconds / int(result.histogram.sum()))
    return found


def rounds_through(client: TritonClient, texts: Sequence[str], tokens: int, draft_len: int) -> list[float]:
    """Seconds per round of each prompt, through Triton."""
    answers = [client.generate(served.BLS, GenerateRequest(text, tokens, draft_len=draft_len)) for text in texts]
    return [answer.seconds / answer.rounds for answer in answers]


def null_pairs(client: TritonClient, pause: float = 0.0, more: int = 0) -> list[float]:
    """Seconds of each pair of calls of a model that does nothing."""
    how = {"how": np.array([[CALLS, int(1e6 * pause), more]], np.int32)}
    with client._connection.exchange("calls_null", how, "null", 60.0) as exchange:
        found: list[float] = next(iter(list(exchange)))["seconds"].reshape(-1).tolist()
    return found


def add_null(repository: Path) -> None:
    """A model that does nothing, and one that calls it as the pipeline calls its models."""
    outputs = ", ".join((INTS.format("output_ids", "-1, -1", ""), INTS.format("sequence_length", "-1", "")))
    seconds = '{ name: "seconds" data_type: TYPE_FP64 dims: [ -1 ] }'
    taken = [
        INTS.format("input_ids", -1, ""),
        *(INTS.format(f"more_{i}", 1, "optional: true ") for i in range(TENSORS)),
    ]
    models = (
        ("null", NULL, ", ".join(taken), outputs),
        ("calls_null", CALLS_NULL, INTS.format("how", 3, ""), seconds),
    )
    for name, source, given, answers in models:
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(source)
        (version.parent / "config.pbtxt").write_text(PBTXT.format(given=given, outputs=answers))
    for name in ("calls.py", "wire.py"):
        found = repository / served.BLS / "1" / name
        (repository / "calls_null" / "1" / name).write_bytes(found.read_bytes())


def report(layout: str, found: dict[str, list[float]]) -> None:
    """The table of one layout."""
    over = [through - inside for through, inside in zip(found[THROUGH], found[INSIDE], strict=True)]
    rows = [[kind, _ms(figures), ""] for kind, figures in found.items()]
    rows.append(["overhead: its difference from a round in one process", _ms(over), ""])
    for kind, limit in ((BARE, f"≤ {LIMIT:g}"), (PAUSED, "-")):
        ratios = [o / b for o, b in zip(over, found[kind], strict=True)]
        rows.append([f"overhead ÷ {kind}", spread(ratios), limit])
    print_table(f"Rounds, pipeline {layout}", ["what", "milliseconds, or ratio: median (range)", "limit"], rows)


def _ms(values: Sequence[float]) -> str:
    return spread([1000 * value for value in values])


if __name__ == "__main__":
    main()
