"""The decision matrix: known acceptance ranks, unknown never pretends to, and every rejection has its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.pairing.pairs import run_config, tokenizer, write_pair
from trtspec.analysis.speedup import break_even_alpha
from trtspec.config import RunConfig
from trtspec.config.load import config_of
from trtspec.errors import ConfigError, MissingError
from trtspec.pairing.measured import Acceptance, Basis
from trtspec.pairing.selection import RANGE, Judged, Selection, judge, known_by, plain_row, rank, target_alone
from trtspec.pairing.selection_plot import require_plot, write_plot
from trtspec.pairing.selection_report import document, print_selection

TARGET = "meta-llama/Llama-3.3-70B-Instruct"
DRAFTS = {
    "1B": "meta-llama/Llama-3.2-1B-Instruct",
    "3B": "meta-llama/Llama-3.2-3B-Instruct",
    "8B": "meta-llama/Llama-3.1-8B-Instruct",
    "qwen": "Qwen/Qwen2.5-0.5B-Instruct",
    "nobody": "someone/unheard-of-model",
}


def hub_config(draft: str, *overrides: str) -> RunConfig:
    pair = {"target": {"hub": TARGET, "parallelism": {"tensor": 4}}, "draft": {"hub": draft}}
    given = {"name": "t", "pair": pair, "engine": {"backend": "tensorrt"}, "hardware": {"gpu": "h100-80gb", "count": 8}}
    return config_of(given, overrides, environ={})


@pytest.fixture(scope="module")
def judged() -> dict[str, Judged]:
    """Well-known models without a file of theirs."""
    return {n: judge(n, (Path("hub") / TARGET, Path("hub") / d), hub_config(d)) for n, d in DRAFTS.items()}


def given(candidate: Judged, alpha: float) -> Judged:
    return known_by(candidate, Basis((Acceptance(alpha),), "given", known=True))


def selection(judged: dict[str, Judged], **alphas: float) -> Selection:
    found = [given(c, alphas[n]) if n in alphas else c for n, c in judged.items()]
    config = hub_config(DRAFTS["1B"])
    return Selection(config, rank(found), plain_row(config, Path("hub") / TARGET, found))


def names(found: Selection) -> list[str]:
    return [c.name for c in found.candidates]


def shown(found: Selection, width: int = 110) -> str:
    out = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_selection(out, found)
    return out.export_text()


def test_nothing_is_assumed_of_an_unknown_acceptance(judged: dict[str, Judged]) -> None:
    found = selection(judged)
    assert [c.name for c in found.of("unmeasured")] == ["1B", "3B", "8B"]  # by what it takes to break even
    assert found.best is None
    assert all(c.basis == RANGE and c.speedup == 1.0 for c in found.of("unmeasured"))
    text = shown(found)
    assert "Undecided: no acceptance is known" in text
    assert "? > " in text
    assert document(found)["best"] is None


def test_a_known_acceptance_ranks_by_what_it_gains(judged: dict[str, Judged]) -> None:
    found = selection(judged, **{"1B": 0.6, "3B": 0.85})
    assert names(found)[:3] == ["3B", "1B", "8B"]
    assert found.best is not None
    assert found.best.name == "3B"
    rows = document(found)["candidates"]
    assert [row["rank"] for row in rows] == [1, 2, None, None, None]
    assert rows[0]["predicted"]["speedup"][0] > rows[1]["predicted"]["speedup"][0] > 1.0


def test_what_does_not_gain_stands_below_the_target_alone(judged: dict[str, Judged]) -> None:
    found = selection(judged, **{"1B": 0.7, "8B": 0.05})
    lines = shown(found).splitlines()
    place = {n: next(i for i, line in enumerate(lines) if n in line) for n in ("1B", "no speculation", "8B")}
    assert place["1B"] < place["no speculation"] < place["8B"]
    alone = selection(judged, **{"1B": 0.01, "3B": 0.01, "8B": 0.01})
    assert alone.best is None
    assert "serve the target without speculation" in shown(alone)


def test_on_a_narrow_terminal_what_decides_stays_whole(judged: dict[str, Judged]) -> None:
    found = selection(judged, **{"1B": 0.6})
    narrow, wide = shown(found, 80), shown(found, 120)
    assert "speed-up" in narrow
    assert "ms/token" in wide
    assert "ms/token" not in narrow
    row = next(line for line in narrow.splitlines() if line.startswith("1 "))
    assert "1B" in row
    assert row.rstrip().endswith("×")


def test_each_rejected_candidate_has_its_reason_and_a_fix(judged: dict[str, Judged]) -> None:
    found = selection(judged)
    rejected = {c.name: c for c in found.of("rejected")}
    assert set(rejected) == {"qwen", "nobody"}
    assert rejected["qwen"].errors[0].code == "vocab.published"
    assert rejected["nobody"].errors[0].code == "tokenizer.missing"
    for row in document(found)["candidates"]:
        assert (row["status"] == "rejected") == bool(row["rejected_by"])
        assert all(reason["fix"] for reason in row["rejected_by"])
    assert "choose a draft that was trained with the target's tokenizer" in shown(found)


def test_figures_agree_with_each_other(judged: dict[str, Judged]) -> None:
    for name in ("1B", "3B", "8B"):
        load = judged[name].load
        assert load is not None
        assert load.plain_ms_per_token is not None
        assert load.plain_tokens_per_second is not None
        for gain, ms, rate in zip(load.speedup, load.ms_per_token, load.tokens_per_second, strict=True):
            assert ms == pytest.approx(load.plain_ms_per_token / gain)
            assert rate == pytest.approx(load.plain_tokens_per_second * gain)
    ratios = [judged[n].ratio for n in ("1B", "3B", "8B")]
    assert [round(r) for r in ratios if r] == [57, 22, 9]


def test_measured_positions_count_and_not_alpha_alone(judged: dict[str, Judged]) -> None:
    clustered = Basis((Acceptance(0.7, (0.5, 0.45, 0.42, 0.4)),), "measured", known=True)
    measured = known_by(judged["1B"], clustered, (0.65, 0.75))
    assert measured.economics is not None
    tokens = measured.economics["tokens"][0]
    assert tokens[3] == pytest.approx(1 + 0.5 + 0.45 + 0.42 + 0.4)
    assert measured.economics["speedup"][0][3] == pytest.approx(tokens[3] / measured.economics["round_steps"][3])
    assert given(judged["1B"], 0.7).economics["tokens"][0][3] == pytest.approx(2.7731)  # type: ignore[index]
    plain = plain_row(measured.config, Path("x"), [measured])
    assert "[0.65, 0.75]" in shown(Selection(measured.config, (measured,), plain))


def test_the_target_alone_has_more_room(judged: dict[str, Judged]) -> None:
    config = hub_config(DRAFTS["1B"])
    plan = target_alone(config, Path("hub") / TARGET)
    assert plan is not None
    memory = judged["1B"].verdict.facts["memory"]
    assert plan.tokens > memory["cache_tokens"]
    assert plain_row(config, Path("hub") / TARGET, [])["sequences"] == plan.largest_batch
    assert target_alone(hub_config(DRAFTS["1B"], "engine.backend=reference"), Path("hub") / TARGET) is None


def test_the_report_fits_the_width_of_a_log(judged: dict[str, Judged]) -> None:
    text = shown(selection(judged, **{"1B": 0.7}))
    assert max(map(len, text.splitlines())) <= 110
    for heading in ("ids", "lineage", "size", "fit", "speed-up", "ms/token", "tokens/s"):
        assert heading in next(line for line in text.splitlines() if line.startswith("   draft"))
    row = next(line for line in text.splitlines() if line.startswith("1"))
    assert "57×" in row
    assert text.count("vocab.published: both have") == 1  # one line for all that share it
    json.dumps(document(selection(judged)))


def local(folder: Path, **draft: Any) -> Judged:
    write_pair(folder, draft=draft)
    return judge("d", (folder / "target", folder / "draft"), run_config(folder))


def test_folders_on_this_machine(tmp_path: Path) -> None:
    """Without a GPU only ratios are known: no memory, no times, and the break-even of the formula."""
    candidate = local(tmp_path)
    assert candidate.status == "unmeasured"
    assert (candidate.mark(["vocab."]), candidate.mark(["memory.x"])) == ("good", "unknown")
    assert candidate.load is not None
    assert candidate.economics is not None
    assert candidate.load.ms_per_token == ()
    c = candidate.economics["cost_ratio"]
    assert candidate.load.break_even == pytest.approx(break_even_alpha(4, c))
    found = Selection(candidate.config, (candidate,), plain_row(candidate.config, tmp_path / "target", [candidate]))
    assert found.plain["sequences"] is None
    text = shown(found)
    assert "only ratios are known" in text
    assert "tokens/s" not in text


def test_clashing_ids_are_rejected_with_both_strings(tmp_path: Path) -> None:
    write_pair(tmp_path)
    vocab = {f"w{i}": i for i in range(48)} | {"w7": 8, "w8": 7}
    (tmp_path / "draft" / "tokenizer.json").write_text(tokenizer(vocab))
    candidate = judge("d", (tmp_path / "target", tmp_path / "draft"), run_config(tmp_path))
    assert candidate.status == "rejected"
    assert candidate.errors[0].code == "vocab.ids-differ"
    found = Selection(candidate.config, (candidate,), plain_row(candidate.config, tmp_path / "target", [candidate]))
    assert "No candidate works with this target" in shown(found)


def test_a_folder_that_is_broken_is_rejected_not_raised(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "draft" / "config.json").write_text("{")
    candidate = judge("d", (tmp_path / "target", tmp_path / "draft"), run_config(tmp_path))
    assert candidate.status == "rejected"
    assert candidate.load is None
    found = Selection(candidate.config, rank([candidate]), plain_row(candidate.config, tmp_path / "target", []))
    assert document(found)["candidates"][0]["predicted"] is None
    assert "Nothing is predicted" in shown(found)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_plot_is_written_whole(tmp_path: Path, judged: dict[str, Judged], suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"m{suffix}"
    write_plot(selection(judged, **{"1B": 0.7}), path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if suffix == ".svg":
        assert b"3B" in content or b"path" in content


def test_a_plot_that_cannot_be_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such kind of picture"):
        require_plot(tmp_path / "m.jpeg2000")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"trtspec\[report\]"):
        require_plot(tmp_path / "m.png")
