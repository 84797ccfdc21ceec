"""The table of formats."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import get_args

import pytest

from trtspec.checkpoint.formats import EXCLUDED, FORMATS, KV_ALGOS, format_of, quantization_block
from trtspec.config.quantization import CALIBRATED, GROUPED, SEARCHED, KvCache, Weights


def test_the_configuration_has_the_same_names() -> None:
    assert set(get_args(Weights)) == set(FORMATS)
    assert set(get_args(KvCache)) == set(KV_ALGOS)
    assert set(CALIBRATED) == {f.name for f in FORMATS.values() if f.calibration != "none"}
    assert set(GROUPED) == {f.name for f in FORMATS.values() if f.packs_rows}
    assert set(SEARCHED) < set(CALIBRATED)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_again_from_what_it_writes(name: str) -> None:
    found = format_of(quantization_block(FORMATS[name]))
    assert found is not None
    assert found.name == name


def test_what_is_not_in_the_table_has_no_format() -> None:
    assert format_of({"quant_algo": "W4A8_QSERVE_PER_GROUP"}) is None


@pytest.mark.parametrize("name", FORMATS)
def test_a_static_activation_scale_needs_calibration(name: str) -> None:
    fmt = FORMATS[name]
    stored = "activation_scaling_factor" in fmt.names
    assert stored == (fmt.activation.endswith("static") or fmt.activation == "nvfp4-block")
    assert not stored or fmt.calibration != "none"
    assert fmt.prequant == ("prequant_scaling_factor" in fmt.names)


def test_excluded_modules_are_matched_as_upstream_matches_them() -> None:
    for module in ("lm_head", "transformer.layers.0.mlp.router", "transformer.vocab_embedding"):
        assert any(fnmatchcase(module, pattern) for pattern in EXCLUDED)
    assert not any(fnmatchcase("transformer.layers.0.mlp.fc", pattern) for pattern in EXCLUDED)


def test_only_grouped_formats_say_a_group_size() -> None:
    assert quantization_block(FORMATS["int4_awq"], "fp8", 64)["group_size"] == 64
    assert quantization_block(FORMATS["int4_awq"], "fp8", 64)["kv_cache_quant_algo"] == "FP8"
    assert "group_size" not in quantization_block(FORMATS["fp8"])
    assert quantization_block(FORMATS["none"]) == {"quant_algo": None, "kv_cache_quant_algo": None}
