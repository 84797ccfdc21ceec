"""What an engine records is compared with what was asked for; each difference is one error that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.tensorrt.pairs import checkpoint, formats, pair, record
from trtspec.backends.tensorrt.flags import engine_flags
from trtspec.backends.tensorrt.readback import check_engine
from trtspec.backends.tensorrt.rewrites import predict
from trtspec.backends.tensorrt.subject import of_checkpoint
from trtspec.config import Role
from trtspec.errors import BuildError
from trtspec.versions import version

LATEST = version("1.2.1")
FP8 = formats("fp8", "fp8") | {"parallelism": {"tensor": 2}}


class Engine:
    """An engine folder as it should be, to be spoiled."""

    def __init__(self, folder: Path, role: Role = "target", **changes: Any) -> None:
        config = pair(folder, target=FP8, **changes)
        self.subject = of_checkpoint(checkpoint(config, role), role, LATEST, sm=90)
        self.flags = engine_flags(config, self.subject)
        self.prediction = predict(self.flags, self.subject)
        self.document = record(self.flags, self.subject)
        self.out = folder / "out"
        self.out.mkdir()
        for rank in range(self.subject.ranks):
            (self.out / f"rank{rank}.engine").write_bytes(b"x")

    def check(self) -> None:
        (self.out / "config.json").write_text(json.dumps(self.document))
        check_engine(self.out, self.flags, self.prediction, self.subject)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_what_was_asked_for_passes(tmp_path: Path, role: Role) -> None:
    Engine(tmp_path, role).check()


@pytest.mark.parametrize("spelling", ["PAGED", "paged", "KVCacheType.PAGED"])
def test_other_spellings_of_the_same_pass(tmp_path: Path, spelling: str) -> None:
    engine = Engine(tmp_path)
    built = engine.document["build_config"]
    built |= {"kv_cache_type": spelling, "speculative_decoding_mode": "SpeculativeDecodingMode.DRAFT_TOKENS_EXTERNAL"}
    built["plugin_config"] |= {"gemm_plugin": None, "context_fmha": "enable"}
    engine.document["version"] = "1.2.1.post1"
    engine.check()


WRONG: list[tuple[str, Any, str]] = [
    ("version", "1.1.0", "version is 1.1.0, asked for 1.2.1"),
    ("version", None, "version is None"),
    ("build_config.speculative_decoding_mode", 1, "speculative_decoding_mode is 1, asked for 2"),
    ("build_config.max_draft_len", 0, "max_draft_len is 0, asked for 5"),
    ("build_config.plugin_config.use_paged_context_fmha", False, "weights FP8, KV cache FP8"),
    ("build_config.plugin_config.use_fp8_context_fmha", False, "use_fp8_context_fmha is False"),
    ("build_config.plugin_config.tokens_per_block", 64, "tokens_per_block is 64, asked for 32"),
    ("build_config.plugin_config", None, "use_paged_context_fmha is not recorded"),
    ("build_config.kv_cache_type", "CONTINUOUS", "only a paged cache can be reused"),
    ("build_config.max_seq_len", 1024, r"max_seq_len is 1024, asked for 1024 \(recorded as 1029\)"),
    ("build_config.max_input_len", 512, "max_input_len is 512, asked for 1024"),
    ("build_config.max_num_tokens", 2048, "max_num_tokens is 2048"),
    ("build_config.max_batch_size", 8, "max_batch_size is 8, asked for 4"),
    ("build_config.max_beam_width", 4, "max_beam_width is 4, asked for 1"),
    ("build_config.gather_generation_logits", False, "gather_generation_logits is False"),
    ("build_config.gather_context_logits", True, "gather_context_logits is True"),
    ("pretrained_config.logits_dtype", "float16", "logits_dtype is float16, asked for float32"),
    ("pretrained_config.mapping.tp_size", 1, "tp_size is 1, asked for 2"),
    ("pretrained_config.quantization.quant_algo", None, "quant_algo is not recorded, asked for FP8"),
    ("build_config", [], "max_draft_len"),
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG, ids=[f"{key}={value}" for key, value, _ in WRONG])
def test_each_difference_is_named(tmp_path: Path, key: str, value: Any, message: str) -> None:
    engine = Engine(tmp_path)
    *parents, last = key.split(".")
    block = engine.document
    for parent in parents:
        block = block[parent]
    block[last] = value
    with pytest.raises(BuildError, match=message) as caught:
        engine.check()
    assert "not the one that was asked for" in str(caught.value) or caught.value.fix


def test_own_flags_are_read_back_too(tmp_path: Path) -> None:
    own = {"reduce_fusion": "disable", "opt_num_tokens": 16, "gemm_plugin": "bfloat16"}
    engine = Engine(tmp_path, engine={"tensorrt": {"flags": own}})
    engine.check()
    engine.document["build_config"]["plugin_config"]["gemm_plugin"] = None
    with pytest.raises(BuildError, match="gemm_plugin is False, asked for bfloat16"):
        engine.check()
    engine.document["build_config"]["plugin_config"]["gemm_plugin"] = "bfloat16"
    engine.document["build_config"]["opt_num_tokens"] = 4
    with pytest.raises(BuildError, match="opt_num_tokens is 4, asked for 16"):
        engine.check()


def test_missing_and_empty_ranks(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    (engine.out / "rank1.engine").write_bytes(b"")
    with pytest.raises(BuildError, match=r"empty rank1\.engine"):
        engine.check()
    (engine.out / "rank1.engine").unlink()
    with pytest.raises(BuildError, match=r"no rank1\.engine"):
        engine.check()


@pytest.mark.parametrize("text", [" ", "[]", "{", "\x00\x01"])
def test_a_broken_record(tmp_path: Path, text: str) -> None:
    engine = Engine(tmp_path)
    (engine.out / "config.json").write_text(text)
    with pytest.raises(BuildError, match="record cannot be read"):
        check_engine(engine.out, engine.flags, engine.prediction, engine.subject)
