"""End ids from four files and the template: what generation stops on, and who disagrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pairing.documents import CHAT, by_code, codes, findings, read, write
from trtspec.pairing.findings import Finding
from trtspec.pairing.stops import SpecialIds, turn_end


def pair(tmp_path: Path, target: dict[str, Any], draft: dict[str, Any] | None = None) -> list[Finding]:
    one = write(tmp_path / "t", **target)
    return findings(one, one if draft is None else write(tmp_path / "d", **draft))


def test_generation_config_speaks_before_config(tmp_path: Path) -> None:
    found = pair(tmp_path, {"generation": {"eos_token_id": [49, 53]}, "model": {"eos_token_id": 49}})
    finding = by_code(found, "stops.set")
    assert finding.data == {"ids": [49, 53], "source": "generation_config.json"}
    assert finding.message == "generation stops on 49 '</s>', 53 '<|end|>' (generation_config.json)"
    found = pair(tmp_path / "2", {"generation": {}, "model": {"eos_token_id": 49}})
    assert by_code(found, "stops.set").data["source"] == "config.json"


def test_the_text_part_of_a_multimodal_config(tmp_path: Path) -> None:
    found = pair(tmp_path, {"model": {"text_config": {"eos_token_id": [49]}}})
    assert by_code(found, "stops.set").data["ids"] == [49]


def test_no_file_of_the_build_names_an_end_id(tmp_path: Path) -> None:
    found = pair(tmp_path, {"model": {"vocab_size": 54}, "config": {"eos_token": "</s>"}, "jinja": CHAT})
    finding = by_code(found, "stops.none")
    assert finding.severity == "warning"
    assert finding.fix == "set eos_token_id in generation_config.json to [49, 53]"


def test_only_a_tokenizer_is_here(tmp_path: Path) -> None:
    assert codes(pair(tmp_path / "1", {}))["stops.not-measured"] == "info"
    found = pair(tmp_path / "2", {"config": {"eos_token": {"content": "</s>"}}})
    assert by_code(found, "stops.set").data == {"ids": [49], "source": "tokenizer_config.json"}


def test_a_turn_that_ends_with_another_token(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path / "1", {"generation": {"eos_token_id": 49}, "jinja": CHAT}), "stops.turn-end")
    assert (finding.severity, finding.data) == ("warning", {"id": 53, "stops": [49]})
    both = pair(tmp_path / "2", {"generation": {"eos_token_id": [49, 53]}, "jinja": CHAT})
    assert "stops.turn-end" not in codes(both)


def test_turn_end_is_read_from_the_rendered_text(tmp_path: Path) -> None:
    words, _ = read(write(tmp_path / "t", jinja=CHAT), write(tmp_path / "d", jinja="{{ messages[0].content }}"))
    assert turn_end(words) == 53
    trailing = write(tmp_path / "x", jinja=CHAT.replace("<|end|>", "\n\nw1"))
    assert turn_end(read(trailing, trailing)[0]) is None


@pytest.mark.parametrize(("theirs", "severity"), [([53], "warning"), ([49, 53], "info"), ([49], None), (None, None)])
def test_draft_and_target(tmp_path: Path, theirs: list[int] | None, severity: str | None) -> None:
    draft = {} if theirs is None else {"generation": {"eos_token_id": theirs}}
    assert codes(pair(tmp_path, {"generation": {"eos_token_id": 49}}, draft)).get("stops.differ") == severity


def test_files_that_disagree(tmp_path: Path) -> None:
    documents = {"generation": {"eos_token_id": 49, "bos_token_id": 48}, "config": {"eos_token": "<|end|>"},
                 "special_map": {"bos_token": "<|user|>"}}  # fmt: skip
    found = pair(tmp_path, documents)
    said = {(f.subject, f.data["kind"]): f.severity for f in found if f.code == "special.disagree"}
    assert said == {("target", "bos"): "info", ("target", "eos"): "warning", ("draft", "bos"): "info",
                    ("draft", "eos"): "info"}  # fmt: skip
    message = next(f.message for f in found if f.severity == "warning")
    assert "49 '</s>' in generation_config.json; 53 '<|end|>' in tokenizer_config.json" in message


def test_a_list_agrees_with_each_part_of_it(tmp_path: Path) -> None:
    # config.json's 53 and the tokenizer's </s> are each in the list, and only the list counts.
    parts = {"model": {"eos_token_id": 53}, "config": {"eos_token": "</s>"}}
    assert "special.disagree" not in codes(pair(tmp_path / "1", {"generation": {"eos_token_id": [49, 53]}, **parts}))
    assert "special.disagree" in codes(pair(tmp_path / "2", parts))


def test_tokens_and_ids_that_do_not_exist(tmp_path: Path) -> None:
    found = pair(tmp_path, {"config": {"pad_token": "<pad>"}, "generation": {"eos_token_id": 60}})
    assert by_code(found, "special.unknown", "target").data["token"] == "<pad>"
    assert by_code(found, "stops.unknown-id", "target").severity == "warning"
    one = tmp_path / "t"
    beyond = [f for f in findings(one, one, {"target": 54, "draft": 54}) if f.code == "stops.unknown-id"]
    assert {f.subject: f.severity for f in beyond} == {"target": "error", "draft": "warning"}


@pytest.mark.parametrize("value", ["49", -1, 1.5, True, [49, None], {"a": 1}])
def test_values_that_are_no_ids(tmp_path: Path, value: Any) -> None:
    found = pair(tmp_path, {"generation": {"eos_token_id": value}})
    assert by_code(found, "stops.broken", "target").severity == "error"


def test_pad_that_is_an_end_token_is_only_said(tmp_path: Path) -> None:
    found = pair(tmp_path, {"generation": {"eos_token_id": 49, "pad_token_id": 49}})
    assert by_code(found, "special.pad").severity == "info"


def test_ids_are_gathered_from_all_files(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "t", generation={"eos_token_id": [49]}, model={"bos_token_id": 48}, config={"eos_token": "</s>"},
        special_map={"pad_token": {"content": "<|end|>"}},
    )  # fmt: skip
    ids = SpecialIds.of(read(folder, folder)[0])
    assert ids.said == {
        "bos": {"config.json": (48,)},
        "eos": {"generation_config.json": (49,), "tokenizer_config.json": (49,)},
        "pad": {"special_tokens_map.json": (53,)},
    }
