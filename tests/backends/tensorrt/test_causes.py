"""Each known failure is told by a text that was really reported, and none by what a good build prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.backends.tensorrt.causes import causes, diagnose

TEXTS = [
    ("arguments", "trtllm-build: error: unrecognized arguments: --max_output_len 100"),
    ("arguments", "trtllm-build: error: argument --gemm_plugin: invalid choice: 'float64' (choose from 'auto')"),
    ("time-limit", "slurmstepd: error: *** JOB 77 ON node1 CANCELLED AT 2026-11-01T10:00:00 DUE TO TIME LIMIT ***"),
    ("preempted", "slurmstepd: error: *** JOB 77 ON node1 CANCELLED AT 2026-11-01T10:00:00 DUE TO PREEMPTION ***"),
    ("image", "kubernetes: ImagePullBackOff Back-off pulling image"),
    ("timing-cache", "AssertionError: Failed to save timing cache."),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/e/rank0.engine'"),
    ("read-only", "PermissionError: [Errno 13] Permission denied: '/e/config.json'"),
    ("gpu-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB."),
    ("gpu-memory", "[TRT] [E] [resizingAllocator.cpp::allocate::74] Error Code 1: Cuda Runtime (out of memory)"),
    ("host-memory", "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated"),
    ("host-memory", "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0."),
    ("host-memory", "Killed"),
    ("shared-memory", "Bus error (core dumped)"),
    ("version-tag", "stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match."),
    ("version-tag", "[TensorRT-LLM][ERROR] Assertion failed: Failed to deserialize cuda engine."),
    ("scales-missing", "RuntimeError: Required but not provided tensors:{'transformer.layers.0.mlp.fc.weights_scaling"),
    ("scales-missing", "RuntimeError: Provided tensor names are different from those expected by the engine."),
    ("checkpoint-broken", "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
    ("tied-head", "KeyError: 'lm_head.weight'"),
    ("group-size", "AssertionError: in_features 7392 not divisible by group size 128"),
    ("head-split", "AssertionError: num_attention_heads 12 must be divisible by tp_size 8"),
    ("vocabulary-rows", "ValueError: lm_head.weight shape mismatch: (32002, 4096) and (32000, 4096)"),
    ("plugin-dtype", "[TRT] [E] 9: [pluginV2Builder.cpp::reportPluginError::24] Error Code 9: Internal Error "
     "(LLaMAForCausalLM/layers/0/attention/PLUGIN_V2_GPTAttention_0: could not find any supported formats consistent "
     "with input/output data types)"),
    ("no-attention-kernel", "[TensorRT-LLM][WARNING] Fall back to unfused MHA because of unsupported head size"),
    ("not-for-this-gpu", "RuntimeError: SmoothQuant is not supported on SM>=100."),
    ("not-for-this-gpu", "CUDA error: no kernel image is available for execution on the device"),
    ("driver", "RuntimeError: Found no NVIDIA driver on your system."),
    ("driver", "CUDA error 35: CUDA driver version is insufficient for CUDA runtime version"),
    ("nccl", "[TensorRT-LLM][ERROR] Failed: NCCL error /app/tensorrt_llm/cpp/ncclUtils.cpp:45 'unhandled cuda error'"),
    ("world-size", "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (worldConfig.cpp:99)"),
    ("world-size", "Assertion failed: MPI size 1 != TP size 2 * PP size 1"),
    ("mpi", "libmpi.so.40: cannot open shared object file: No such file or directory"),
    ("library", "ImportError: libnvinfer.so.10: cannot open shared object file: No such file or directory"),
    ("library", "ImportError: bindings.so: undefined symbol: _ZN3c106detail14torchCheckFail"),
    ("not-installed", "ModuleNotFoundError: No module named 'tensorrt_llm'"),
    ("architecture", "KeyError: 'Gemma3ForCausalLM'"),
    ("rope", "ValueError: `rope_scaling` must be a dictionary with two fields; rope_type llama3"),
    ("context-logits", "RuntimeError: gather_context_logits is not supported with draft tokens, max_draft_len > 0"),
    ("int8-cache", "RuntimeError: Paged Context FMHA doesn't work with int8 kv cache currently."),
    ("removed", "bash: trtllm-build: command not found"),
    ("engine-none", "[TRT-LLM] [E] Engine building failed, please check the error log."),
    ("crash", "[node1:00996] Signal: Segmentation fault (11)"),
]  # fmt: skip
GOOD = """\
[TensorRT-LLM] TensorRT-LLM version: 1.2.1
[11/16/2024-00:05:45] [TRT-LLM] [W] padding removal and fMHA are both enabled, max_input_len is not required
[11/16/2024-00:05:45] [TRT-LLM] [W] Implicitly setting LLaMAConfig.tie_word_embeddings = True
[11/16/2024-00:05:45] [TRT-LLM] [I] Set group_size to 128.
[11/16/2024-00:05:45] [TRT] [I] [MemUsageChange] Init CUDA: CPU +89, GPU +0, now: CPU 16632, GPU 1187 (MiB)
[11/16/2024-00:05:47] [TRT-LLM] [I] Set nccl_plugin to bfloat16.
[11/16/2024-00:05:47] [TRT-LLM] [I] Increasing max_seq_len (1024) by max_draft_len (5) to account for speculative
[11/16/2024-00:05:47] [TRT] [I] Global timing cache in use. Profiling results in this builder pass will be stored.
[11/16/2024-00:05:50] [TRT-LLM] [I] Timing cache serialized to /e/model.cache
[11/16/2024-00:05:50] [TRT-LLM] [I] Build phase peak memory: 32132.71 MB, children: 0.00 MB
[11/16/2024-00:06:50] [TRT-LLM] [I] Total time of building all engines: 00:00:41
"""


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_reported_texts_are_told(name: str, text: str) -> None:
    found = diagnose([*GOOD.splitlines(), text, "another line"])
    assert found is not None
    assert found.cause.name == name
    assert found.said
    assert "{" not in found.said
    assert found.cause.fix


def test_every_cause_has_a_text_and_a_source() -> None:
    assert {cause.name for cause in causes()} == {name for name, _ in TEXTS}
    assert all(cause.sources for cause in causes())
    assert len({cause.name for cause in causes()}) == len(causes())


def test_a_good_build_is_no_failure() -> None:
    assert diagnose(GOOD.splitlines(), 1) is None


@pytest.mark.parametrize(
    ("code", "name"), [(-9, "host-memory"), (137, "host-memory"), (-11, "crash"), (135, "shared-memory")]
)
def test_signals(code: int, name: str) -> None:
    found = diagnose(["nothing known"], code)
    assert found is not None
    assert found.cause.name == name


def test_the_text_outranks_the_signal() -> None:
    found = diagnose(["OSError: [Errno 28] No space left on device"], -9)
    assert found is not None
    assert found.cause.name == "disk-full"


def test_what_the_log_names_is_said() -> None:
    found = diagnose(["ImportError: libcudart.so.13: cannot open shared object file"])
    assert found is not None
    assert "libcudart.so.13" in found.said


@given(st.lists(st.text(max_size=60), max_size=5), st.integers(-64, 255))
def test_any_log_is_read(lines: list[str], code: int) -> None:
    found = diagnose(lines, code)
    assert found is None or found.said
