"""Small model repositories that import nothing heavy: a real Triton serves one within about a second."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from trtspec.config.serving import Serving

PRIVATE: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}

IDLE = """
class TritonPythonModel:
    pass
"""

CRASHES_AT_LOAD = """
import a_package_that_does_not_exist
"""

REFUSES_TO_LOAD = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("the engine folder /nowhere is empty")
"""

LOADS_SLOWLY = """
import time
class TritonPythonModel:
    def initialize(self, args):
        time.sleep(60)
"""

IS_PAUSED_ONCE = """
import os, signal, subprocess, time
import triton_python_backend_utils as pb
class TritonPythonModel:
    def initialize(self, args):
        mark = os.path.join(args["model_repository"], "paused")
        if not os.path.exists(mark):
            open(mark, "w").close()
            subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            ALSO
"""

KILLS_ITS_SERVER = """
import os, signal
class TritonPythonModel:
    def execute(self, requests):
        os.kill(os.getppid(), signal.SIGKILL)
"""

TELLS_ITS_WORLD = """
import json, os, sys
import numpy as np
import trtspec
class TritonPythonModel:
    def initialize(self, args):
        world = {"numpy": np.__version__, "trtspec": os.path.realpath(trtspec.__file__), "pid": os.getpid(),
                 "threads": os.environ.get("OMP_NUM_THREADS"), "bytecode": not sys.dont_write_bytecode}
        print("WORLD", json.dumps(world), flush=True)
"""

WORDS = [("text_input", "STRING", [1])]
TEXT = [("text_output", "STRING", [-1])]
Tensor = tuple[str, str, list[int]]


def serving(**changes: Any) -> Serving:
    """Private free ports and short patience, unless stated otherwise."""
    return Serving(**{**PRIVATE, "start_timeout": 60.0, "stop_timeout": 15.0, **changes})


def add_model(
    repository: Path,
    name: str,
    source: str,
    inputs: list[Tensor] = WORDS,
    outputs: list[Tensor] = TEXT,
    required: tuple[str, ...] = ("text_input",),
    decoupled: bool = True,
) -> Path:
    """Write one Python model with a batch dimension of at most 4; returns the repository."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(textwrap.dedent(source))
    lines = [
        'backend: "python"',
        "max_batch_size: 4",
        f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}",
    ]
    lines += [_tensor("input", t, "" if t[0] in required else " optional: true") for t in inputs]
    lines += [_tensor("output", t, "") for t in outputs]
    lines += ["instance_group [ { count: 1 kind: KIND_CPU } ]"]
    (folder.parent / "config.pbtxt").write_text("\n".join(lines) + "\n")
    return repository


def _tensor(kind: str, tensor: Tensor, more: str) -> str:
    name, data_type, dims = tensor
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_{data_type} dims: {dims}{more} }} ]'


GENERATES = """
import json, os, threading, time
import numpy as np
import triton_python_backend_utils as pb

def text(*words):
    return np.array([w.encode() for w in words], dtype=np.object_)

def one(value, kind=np.int32):
    return np.array([[value]], dtype=kind)

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request, self.inputs(request))).start()

    def inputs(self, request):
        return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}

    def answer(self, request, given):
        sender = request.get_response_sender()
        verb, _, rest = given["text_input"].reshape(-1)[0].decode().partition(" ")
        try:
            getattr(self, verb)(request, sender, given, rest)
        except Exception as error:
            sender.send(pb.InferenceResponse(error=pb.TritonError(str(error))))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def send(self, sender, words, tokens, **more):
        tensors = [pb.Tensor("text_output", words), pb.Tensor("num_input_tokens", one(7)),
                   pb.Tensor("num_output_tokens", one(tokens))]
        sender.send(pb.InferenceResponse(tensors + [pb.Tensor(name, array) for name, array in more.items()]))

    def say(self, request, sender, given, rest):
        words = rest.encode().split(b"|")[: int(given["max_tokens"].flat[0])]
        if not given["stream"].flat[0]:
            return self.send(sender, np.array([b"".join(words)], dtype=np.object_), len(words))
        self.send(sender, text(""), 0)
        for word in words:
            time.sleep(0.05)
            self.send(sender, np.array([word], dtype=np.object_), 1)

    def speculate(self, request, sender, given, rest):
        k = int(given["num_draft_tokens"].flat[0])
        histogram = np.zeros((1, 2, k + 1, k + 1), dtype=np.int32)
        histogram[0, 0, k, k] = 2
        histogram[0, 1, k, 1] = 1
        self.send(sender, text("done"), 2 * (k + 1) + 1, spec_histogram=histogram, spec_tested=one(2 * k + 1),
                  spec_rounds=one(3), total_accepted_draft_tokens=one(2 * k + 1), total_draft_tokens=one(3 * k),
                  spec_mode=text("speculative"), finish_reason=text("length"))

    def inputs_are(self, request, sender, given, rest):
        plain = lambda value: value.decode() if isinstance(value, bytes) else value
        shown = {name: [str(array.dtype), list(array.shape), [plain(value) for value in array.ravel().tolist()]]
                 for name, array in given.items()}
        self.send(sender, text(json.dumps({"id": request.request_id(), **shown})), 1)

    def fail(self, request, sender, given, rest):
        raise ValueError("the prompt is too long")

    def mute(self, request, sender, given, rest):
        pass

    def poor(self, request, sender, given, rest):
        sender.send(pb.InferenceResponse([pb.Tensor("text_output", text("x"))]))

    def hang(self, request, sender, given, rest):
        open(rest + ".began", "w").close()
        for _ in range(300):
            if request.is_cancelled():
                return open(rest, "w").close()
            time.sleep(0.05)

    def die(self, request, sender, given, rest):
        os._exit(1)
"""

TARGET = """
import numpy as np
import triton_python_backend_utils as pb

def given(request, name):
    return pb.get_input_tensor_by_name(request, name)

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb.InferenceResponse(self.answer(request)))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answer(self, request):
        ids = given(request, "input_ids").as_numpy()[0].tolist()
        assert given(request, "input_lengths").as_numpy().tolist() == [[len(ids)]]
        assert given(request, "runtime_top_k").as_numpy().tolist() == [[1]]
        if given(request, "return_generation_logits"):
            assert given(request, "end_id") is None
            logits = np.zeros((1, 1, 1, 10), dtype=np.float32)
            logits[..., sum(ids) % 10] = 1.0
            return [pb.Tensor("generation_logits", logits)]
        assert given(request, "exclude_input_in_output").as_numpy().item()
        end = given(request, "end_id").as_numpy().item()
        count = given(request, "request_output_len").as_numpy().item()
        new = [i for i in range(ids[-1] + 1, ids[-1] + 1 + count) if i < end]
        length = np.array([[len(new)]], dtype=np.int32)
        padded = np.array([[new + [end, end]]], dtype=np.int32)
        return [pb.Tensor("output_ids", padded), pb.Tensor("sequence_length", length)]
"""

PREPROCESSES = """
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        ids = list(pb.get_input_tensor_by_name(request, "QUERY").as_numpy()[0, 0])
        tensors = {"INPUT_ID": ids + [0, 0], "REQUEST_INPUT_LEN": [len(ids)], "OUT_END_ID": [122]}
        return pb.InferenceResponse([pb.Tensor(n, np.array([v], dtype=np.int32)) for n, v in tensors.items()])
"""

POSTPROCESSES = """
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        ids = pb.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
        length = pb.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy()
        assert ids.ndim == 3 and length.shape == (1, 1)
        words = np.array([bytes(ids[0, 0, : length.item()].tolist())], dtype=np.object_)
        return pb.InferenceResponse([pb.Tensor("OUTPUT", words)])
"""

GENERATE_INPUTS: list[Tensor] = [
    ("text_input", "STRING", [1]),
    ("max_tokens", "INT32", [1]),
    ("stream", "BOOL", [1]),
    ("exclude_input_in_output", "BOOL", [1]),
    ("stop_words", "STRING", [-1]),
    ("temperature", "FP32", [1]),
    ("top_k", "INT32", [1]),
    ("top_p", "FP32", [1]),
    ("seed", "UINT64", [1]),
    ("return_perf_metrics", "BOOL", [1]),
    ("return_num_input_tokens", "BOOL", [1]),
    ("return_num_output_tokens", "BOOL", [1]),
]
SPECULATIVE_INPUTS: list[Tensor] = [
    ("num_draft_tokens", "INT32", [1]),
    ("use_draft_logits", "BOOL", [1]),
    ("task", "STRING", [1]),
]
GENERATE_OUTPUTS: list[Tensor] = [
    ("text_output", "STRING", [-1]),
    ("num_input_tokens", "INT32", [1]),
    ("num_output_tokens", "INT32", [1]),
]
SPECULATIVE_OUTPUTS: list[Tensor] = [
    ("spec_histogram", "INT32", [2, -1, -1]),
    ("spec_tested", "INT32", [1]),
    ("spec_rounds", "INT32", [1]),
    ("total_accepted_draft_tokens", "INT32", [1]),
    ("total_draft_tokens", "INT32", [1]),
    ("spec_mode", "STRING", [1]),
    ("finish_reason", "STRING", [1]),
]


def add_a_pair(repository: Path) -> Path:
    """Models with the names and tensors of a generated repository, which compute nothing; returns the repository."""
    required = ("text_input", "max_tokens")
    add_model(repository, "ensemble", GENERATES, GENERATE_INPUTS, GENERATE_OUTPUTS, required)
    inputs, outputs = GENERATE_INPUTS + SPECULATIVE_INPUTS, GENERATE_OUTPUTS + SPECULATIVE_OUTPUTS
    add_model(repository, "tensorrt_llm_bls", GENERATES, inputs, outputs, required)
    numbers = ["input_lengths", "request_output_len", "runtime_top_k", "end_id", "pad_id"]
    flags = ["streaming", "exclude_input_in_output", "return_generation_logits"]
    target: list[Tensor] = [("input_ids", "INT32", [-1])]
    target += [(name, "INT32", [1]) for name in numbers] + [(name, "BOOL", [1]) for name in flags]
    answers: list[Tensor] = [("output_ids", "INT32", [-1, -1]), ("sequence_length", "INT32", [-1])]
    answers += [("generation_logits", "FP32", [-1, -1, -1])]
    add_model(repository, "tensorrt_llm", TARGET, target, answers, ("input_ids",))
    query: list[Tensor] = [("QUERY", "STRING", [1]), ("REQUEST_OUTPUT_LEN", "INT32", [1])]
    tokens: list[Tensor] = [(name, "INT32", [-1]) for name in ("INPUT_ID", "REQUEST_INPUT_LEN", "OUT_END_ID")]
    add_model(repository, "preprocessing", PREPROCESSES, query, tokens, ("QUERY",), decoupled=False)
    batch: list[Tensor] = [("TOKENS_BATCH", "INT32", [-1, -1]), ("SEQUENCE_LENGTH", "INT32", [-1])]
    words: list[Tensor] = [("OUTPUT", "STRING", [-1])]
    return add_model(repository, "postprocessing", POSTPROCESSES, batch, words, (), decoupled=False)
