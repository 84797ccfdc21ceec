"""Added tokens that differ, by what the target does with them; begin tokens; files that contradict each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.pairing.documents import ADDED, CHAT, by_code, codes, findings, write
from tests.pairing.pairs import tokenizer
from tests.pairing.test_segmentation import around
from trtspec.pairing.special import RESERVED

STOPS = {"eos_token_id": 49}


def renamed(names: Mapping[str, str] = MappingProxyType({})) -> str:
    """The usual tokenizer with other names for some added tokens."""
    added = {names.get(token, token): i for token, i in ADDED.items()}
    return tokenizer(added=added | {"<|reserved_1|>": 54})


def pair(tmp_path: Path, target: str, draft: str, **documents: Any) -> list[Any]:
    return findings(write(tmp_path / "t", words=target, **documents), write(tmp_path / "d", words=draft))


@pytest.mark.parametrize(
    ("names", "grade", "severity"),
    [
        ({"<|end|>": "<x>"}, "template", "warning"),
        ({"</s>": "<x>"}, "stop", "warning"),
        ({"<s>": "<x>"}, "unused", "info"),
        ({"<s>": "<|reserved_0|>"}, "reserved", "info"),
        ({"<|end|>": "<|reserved_0|>"}, "template", "warning"),
    ],
)
def test_renamed_tokens_are_graded(tmp_path: Path, names: dict[str, str], grade: str, severity: str) -> None:
    found = pair(tmp_path, renamed(), renamed(names), jinja=CHAT, generation=STOPS)
    finding = by_code(found, "vocab.special-renamed")
    assert (finding.severity, finding.data["grades"]) == (severity, {grade: 1})
    assert "vocab.equal" not in codes(found)
    assert (finding.fix is None) is (severity == "info")


def test_the_worst_renamed_token_is_the_one_shown(tmp_path: Path) -> None:
    draft = renamed({"<s>": "<x>", "<|end|>": "<y>", "</s>": "<z>"})
    finding = by_code(pair(tmp_path, renamed(), draft, jinja=CHAT, generation=STOPS), "vocab.special-renamed")
    assert "1 end an answer, 1 are printed by the chat template, 1 are used by nothing here" in finding.message
    assert "id 49 is '</s>' to the target and '<z>' to the draft" in finding.message


def test_without_template_and_end_ids_nothing_can_be_called_unused(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path, renamed(), renamed({"<s>": "<x>"})), "vocab.special-renamed")
    assert (finding.severity, finding.data["grades"]) == ("warning", {"unknown": 1})


@pytest.mark.parametrize(
    "name",
    ["<|reserved_special_token_7|>", "<unused42>", "<｜place▁holder▁no▁3｜>", "<|placeholder1|>", "<SPECIAL_20>",
     "[control_8]", "<|extra_3|>", "<extra_id_5>", "<|dummy_85|>", "[PAD151700]"],
)  # fmt: skip
def test_names_of_reserved_slots(name: str) -> None:
    assert RESERVED.search(name)


@pytest.mark.parametrize("name", ["<|im_end|>", "<pad>", "<|python_tag|>", "</s>", "[INST]", "<|end_of_text|>"])
def test_names_of_real_tokens(name: str) -> None:
    assert not RESERVED.search(name)


def test_a_missing_token_of_the_template(tmp_path: Path) -> None:
    draft = tokenizer(added={token: i for token, i in ADDED.items() if i < 53})
    folders = write(tmp_path / "t", jinja=CHAT, generation=STOPS), write(tmp_path / "d", words=draft)
    finding = by_code(findings(*folders), "special.missing")
    assert (finding.severity, finding.data["grades"]) == ("warning", {"template": 1})
    assert "id 53 '<|end|>', the draft has no such token" in finding.message
    assert by_code(findings(*folders, {"draft": 64}), "special.missing").severity == "warning"
    unreadable = by_code(findings(*folders, {"draft": 53}), "special.missing")
    assert (unreadable.severity, "ends at row 53" in unreadable.message) == ("error", True)


def test_a_missing_reserved_slot_is_told_by_the_share_alone(tmp_path: Path) -> None:
    said = codes(pair(tmp_path, renamed(), tokenizer(added=ADDED), jinja=CHAT, generation=STOPS))
    assert said["vocab.target-only"] == "warning"
    assert "special.missing" not in said


@pytest.mark.parametrize(("token", "severity"), [("<|end|>", "warning"), ("<s>", "info")])
def test_reflagged_tokens(tmp_path: Path, token: str, severity: str) -> None:
    document = json.loads(tokenizer(added=ADDED))
    for entry in document["added_tokens"]:
        if entry["content"] == token:
            entry |= {"special": False, "rstrip": True}
    found = pair(tmp_path, tokenizer(added=ADDED), json.dumps(document), jinja=CHAT, generation=STOPS)
    finding = by_code(found, "special.reflagged")
    assert (finding.severity, finding.data["count"]) == (severity, 1)
    assert f"{token!r} is special to the target and rstrip to the draft" in finding.message
    assert codes(found)["vocab.equal"] == "info"


def test_an_added_token_that_is_a_base_token_in_the_draft(tmp_path: Path) -> None:
    found = pair(tmp_path, tokenizer(added=ADDED | {"w7": 7}), tokenizer(added=ADDED), jinja=CHAT, generation=STOPS)
    assert "special to the target and a base token to the draft" in by_code(found, "special.reflagged").message


def test_double_begin_token(tmp_path: Path) -> None:
    document = json.loads(tokenizer(added=ADDED)) | {"post_processor": around("<s>", 48)}
    words = json.dumps(document)
    folder = write(tmp_path / "t", words=words, jinja="{{ bos_token }}" + CHAT, config={"bos_token": "<s>"})
    finding = by_code(findings(folder, folder), "special.double-bos")
    assert (finding.severity, "drops the second one" in finding.message) == ("info", True)
    assert by_code(findings(folder, folder, own=False), "special.double-bos").severity == "warning"
    once = write(tmp_path / "once", words=words, jinja=CHAT, config={"bos_token": "<s>"})
    assert "special.double-bos" not in codes(findings(once, once))


def test_added_tokens_that_the_two_files_name_differently(tmp_path: Path) -> None:
    table = {"48": {"content": "<s>"}, "49": {"content": "<eos>"}, "no": {"content": "x"}, "50": 7}
    folder = write(tmp_path / "t", config={"added_tokens_decoder": table})
    finding = by_code(findings(folder, folder), "special.disagree", "target")
    assert (finding.severity, finding.data["count"]) == ("warning", 2)
    assert "id 49 is '<eos>', tokenizer.json says '</s>' (2 such)" in finding.message
    assert by_code(findings(folder, folder), "special.disagree", "draft").severity == "info"
