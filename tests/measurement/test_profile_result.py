"""The profile's document: figures that agree with each other, and a file that is read as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.measurement.profiles import GREEDY, SAMPLED, config, toy_profile
from trtspec.analysis.simulation import Trace, histogram
from trtspec.errors import EvidenceError
from trtspec.measurement.profile_report import print_profile
from trtspec.measurement.profile_result import (
    profile_path,
    profile_schema,
    profiles_of,
    read_profile,
    rule_of,
    write_profile,
)
from trtspec.measurement.profile_store import Unfinished, profile_key
from trtspec.measurement.reading import RULES, Reading, Setting, TokenPrompt
from trtspec.pairing.measured import file_hashes


def test_every_figure_follows_from_the_histogram() -> None:
    document = toy_profile(SAMPLED)
    for row in (*document.domains, document.overall):
        assert set(row.rules) == set(RULES)
        for rule, every in row.rules.items():
            assert [at.k for at in every] == [1, 2, 3, 4]
            for at in every:
                counted = at.rounds
                assert counted.k == at.k
                assert at.alpha is not None
                assert at.alpha.point == pytest.approx(counted.alpha())
                assert at.alpha.low <= at.alpha.point <= at.alpha.high  # type: ignore[operator]
                assert at.acceptance_length is not None
                assert at.acceptance_length.point == pytest.approx(counted.acceptance_length())
                assert at.per_position == tuple(counted.per_position())
                assert (at.alpha_expected is None) == (rule == "tokens")
    assert sum(d.tokens for d in document.domains) == document.overall.tokens
    assert [d.prompts for d in document.domains] == [6, 6]


def test_prompts_can_be_replayed() -> None:
    document = toy_profile()
    traces = [Trace(p.outcomes["tokens"], p.max_tokens) for p in document.prompts]
    found = document.at(3)
    assert found is not None
    counted = histogram(traces, 3)
    assert (counted.tested, counted.accepted, counted.rounds) == (
        found.rounds.tested, found.rounds.accepted, found.rounds.rounds,
    )  # fmt: skip


def test_figures_by_k_rule_and_domain() -> None:
    document = toy_profile()
    assert document.at(9) == document.at(4)
    assert document.at(0) is None
    assert document.at(2, "logits") is None
    assert document.at(2, domain="absent") is None
    assert document.alpha(2, domain="a") == document.domains[0].rules["tokens"][1].alpha
    assert document.alpha(2, domain="a") != document.alpha(2, domain="b")


def test_it_belongs_to_the_files_that_were_measured() -> None:
    document = toy_profile()
    assert document.belongs_to({"config.json": "t"}, {"config.json": "d"})
    assert not document.belongs_to({"config.json": "d"}, {"config.json": "t"})
    assert not document.belongs_to({"config.json": "t"}, {"config.json": "d", "model.safetensors": "x"})


def test_written_and_read_again(tmp_path: Path) -> None:
    settings = config(output={"reports": tmp_path})
    assert profiles_of(settings) == []
    greedy, sampled = toy_profile(), toy_profile(SAMPLED)
    write_profile(profile_path(settings), greedy)
    write_profile(settings.report_dir / "profiles" / "other.json", sampled)
    assert profiles_of(settings) == [greedy, sampled]
    assert json.loads(profile_path(settings).read_text())["version"] == 1
    assert "ProfileDocument" in str(profile_schema()["title"])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a profile"), (b"{}", "pair: Field required"), (b"\xff", "not a profile"), (b"[1]", "not a profile")],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=message):
        read_profile(path)
    with pytest.raises(EvidenceError, match="cannot read"):
        read_profile(tmp_path / "absent.json")


def test_the_rule_follows_from_what_is_served() -> None:
    warm = {"temperature": 0.7}
    reference, other = {"backend": "reference"}, {"backend": "tensorrt"}
    assert rule_of(config(speculation={"acceptance": "logits"})) == "tokens"
    assert rule_of(config(validation=warm, engine=reference)) == "tokens-independent"
    assert rule_of(config(validation=warm | {"top_k": 1}, engine=other)) == "tokens"
    assert rule_of(config(validation=warm, engine=other)) == "tokens-independent"
    assert rule_of(config(validation=warm, engine=other, speculation={"acceptance": "logits"})) == "logits"


def test_the_report_says_what_it_shows() -> None:
    out = Console(width=130, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_profile(out, toy_profile(SAMPLED), 4, "tokens-independent")
    text = out.export_text()
    for word in ("temperature 0.9", "top-p 0.95", "float32 on toy", "tokens-independent *", "rejection rule", "4*"):
        assert word in text
    for line in text.splitlines():
        assert len(line) <= 130


def test_a_key_is_that_of_models_prompts_and_settings() -> None:
    hashes = {"target": {"a": "1"}, "draft": {"a": "2"}}
    prompts = [TokenPrompt("p", "d", (1, 2), 8)]
    base = ([hashes], prompts, Setting(4), [{"dtype": "float32"}])
    changed = [
        ([{"target": {"a": "1"}, "draft": {"a": "3"}}], *base[1:]),
        ([hashes, hashes], *base[1:]),
        ([hashes], [TokenPrompt("p", "d", (1, 3), 8)], *base[2:]),
        ([hashes], [TokenPrompt("p", "d", (1, 2), 9)], *base[2:]),
        ([hashes], prompts, Setting(5), base[3]),
        ([hashes], prompts, Setting(4, SAMPLED), base[3]),
        (*base[:3], [{"dtype": "bfloat16"}]),
    ]
    keys = {profile_key(*each) for each in [base, *changed]}  # type: ignore[arg-type]
    assert len(keys) == 1 + len(changed)
    assert profile_key(*base) == profile_key(*base)  # type: ignore[arg-type]


def test_unfinished_readings_are_kept_and_read(tmp_path: Path) -> None:
    reading = Reading("p", "d", 2, 3, 4, False, {"tokens": Trace("+-.", 4, (1,))}, {"logits": (0.5,)}, {})
    store = Unfinished(tmp_path, "a" * 64)
    assert store.read() == {}
    store.keep([reading])
    store.keep([Reading("q", "d", 2, 3, 4, True, {}, {}, {})])
    again = Unfinished(tmp_path, "a" * 64).read()
    assert list(again) == [("d", "p"), ("d", "q")]
    assert again["d", "p"] == reading
    assert Unfinished(tmp_path, "b" * 64).read() == {}
    store.path.write_text("{half", encoding="utf-8")
    assert Unfinished(tmp_path, "a" * 64).read() == {}
    store.forget()
    store.forget()
    assert list(tmp_path.iterdir()) == []


def test_files_that_identify_a_model(tmp_path: Path) -> None:
    from trtspec.hashing import HashMemo

    for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md"):
        (tmp_path / name).write_text(name)
    assert set(file_hashes(tmp_path, HashMemo(tmp_path / "memo"))) == {"config.json", "model.safetensors"}


def test_greedy_profiles_are_reproducible() -> None:
    one, other = toy_profile(GREEDY), toy_profile(GREEDY)
    assert one.key == other.key
    assert one.model_dump(exclude={"created"}) == other.model_dump(exclude={"created"})
