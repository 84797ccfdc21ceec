"""Write the repository of `backend: pytorch`: one Triton model on the LLM API, and the same options for trtllm-serve.

<repository>/tensorrt_llm/config.pbtxt      complete; the server adds nothing
<repository>/tensorrt_llm/1/model.yaml      arguments of LLM(), and `triton_config`
<repository>/tensorrt_llm/1/*.py            our model on the LLM API
<repository>/llm_options.yaml               for trtllm-serve --extra_llm_api_options
<repository>/README.md                      both ways to serve, as commands
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from trtspec.backends.pytorch.options import llm_options, version_of
from trtspec.config import Role, RunConfig
from trtspec.triton import llmapitables, pbtxt
from trtspec.triton.pbtxt import Model
from trtspec.triton.tables import table

NAME = "tensorrt_llm"
MODEL_YAML = "model.yaml"
SERVE_OPTIONS = "llm_options.yaml"
README = "README.md"
FORMAT = 1
"""Raise it when the same plan must give another repository and neither tables nor sources say so."""
CANCELLATION = 100
"""Milliseconds between two looks for clients that have gone."""
_MODELS = Path(__file__).parent / "models"
_ON_COMMAND_LINE = ("model", "backend")


@dataclass(frozen=True)
class LlmApiPlan:
    """What the repository is made from."""

    version: str
    options: Mapping[str, Any]
    """Arguments of LLM()."""
    final_dir: Path
    """Where the repository will live."""
    host: str
    port: int


def plan_llmapi(config: RunConfig, folders: Mapping[Role, Path]) -> LlmApiPlan:
    """`folders`: the Hugging Face folders that are served. ConfigError, ModelFileError as `llm_options`."""
    absolute = {role: folder.absolute() for role, folder in folders.items()}
    return LlmApiPlan(
        version=str(version_of(config)),
        options=llm_options(config, absolute),
        final_dir=config.repository_dir.absolute(),
        host=config.serving.host,
        port=config.serving.http_port or 8000,
    )


def write_llmapi(out: Path, plan: LlmApiPlan) -> None:
    """Fill the existing empty folder `out`."""
    version = out / NAME / "1"
    version.mkdir(parents=True)
    (out / NAME / pbtxt.FILE).write_text(pbtxt.render(triton_model()), encoding="utf-8")
    for source in sources():
        shutil.copyfile(source, version / source.name)
    (version / MODEL_YAML).write_text(model_yaml(plan), encoding="utf-8")
    (out / SERVE_OPTIONS).write_text(serve_yaml(plan), encoding="utf-8")
    (out / README).write_text(readme(plan), encoding="utf-8")


def key_facts(plan: LlmApiPlan) -> dict[str, object]:
    """Everything besides the models' content that the repository depends on; JSON values."""
    return {
        "format": FORMAT,
        "version": plan.version,
        "options": dict(plan.options),
        "readme": readme(plan),
        "model": asdict(triton_model()),
        "sources": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sources()},
    }


def sources() -> Iterator[Path]:
    """The model's Python files."""
    yield from sorted((_MODELS / "llmapi").glob("*.py"))
    yield _MODELS / "common" / "wire.py"


def triton_model() -> Model:
    """The config.pbtxt. Decoupled stands here: with --disable-auto-complete-config model.yaml cannot set it."""
    return Model(NAME, "python", 0, table(llmapitables.INPUTS), table(llmapitables.OUTPUTS), decoupled=True)


def model_yaml(plan: LlmApiPlan) -> str:
    """1/model.yaml, in the form of TensorRT-LLM's own llmapi model, which reads it too."""
    triton = {
        "max_batch_size": 0,
        "decoupled": True,
        "cancellation_check_period_ms": CANCELLATION,
        "tensorrt_llm": plan.version,
    }
    head = f"# Written by trtspec for TensorRT-LLM {plan.version}. Arguments of LLM(), then Triton's.\n"
    return head + _dump({**plan.options, "triton_config": triton})


def serve_yaml(plan: LlmApiPlan) -> str:
    """The options file of trtllm-serve: all but what its command line says."""
    head = f"# Written by trtspec for TensorRT-LLM {plan.version}: trtllm-serve --extra_llm_api_options.\n"
    return head + _dump({k: v for k, v in plan.options.items() if k not in _ON_COMMAND_LINE})


def serve_command(plan: LlmApiPlan) -> tuple[str, ...]:
    """`trtllm-serve` as an argument list. What has a flag is said there too: its defaults come before the file."""
    given = plan.options
    return (
        "trtllm-serve", str(given["model"]), "--backend", "pytorch",
        "--tp_size", str(given["tensor_parallel_size"]), "--pp_size", str(given["pipeline_parallel_size"]),
        "--max_batch_size", str(given["max_batch_size"]), "--max_num_tokens", str(given["max_num_tokens"]),
        "--max_seq_len", str(given["max_seq_len"]),
        "--kv_cache_free_gpu_memory_fraction", str(given["kv_cache_config"]["free_gpu_memory_fraction"]),
        "--host", plan.host, "--port", str(plan.port),
        "--extra_llm_api_options", str(plan.final_dir / SERVE_OPTIONS),
    )  # fmt: skip


def triton_command(plan: LlmApiPlan) -> tuple[str, ...]:
    """`tritonserver` as an argument list; one process, which starts the ranks itself."""
    return (
        "tritonserver", f"--model-repository={plan.final_dir}", "--disable-auto-complete-config",
        f"--http-address={plan.host}", f"--http-port={plan.port}",
    )  # fmt: skip


def readme(plan: LlmApiPlan) -> str:
    """How to serve it. Says nothing that was not written here."""
    draft_len = plan.options["speculative_config"]["max_draft_len"]
    return f"""# A draft/target pair on the LLM API

Written by trtspec for TensorRT-LLM {plan.version}; drafts {draft_len} tokens a round. Not run by the one who wrote it.

Triton, whose model is `tensorrt_llm`:

```
{_shell(triton_command(plan))}
```

OpenAI-compatible, without Triton:

```
{_shell(serve_command(plan))}
```

Both need the GPUs, TensorRT-LLM {plan.version}, and both model folders under these very paths:

- `{plan.options["model"]}`
- `{_draft(plan)}`
"""


def _draft(plan: LlmApiPlan) -> str:
    block = plan.options["speculative_config"]
    return str(next(value for key, value in block.items() if key.startswith("speculative_model")))


def _shell(words: tuple[str, ...]) -> str:
    """One command over several lines, one option each."""
    text = ""
    for word in words:
        text += (" \\\n    " if word.startswith("--") else " ") + shlex.quote(word)
    return text.strip()


def _dump(document: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120))
