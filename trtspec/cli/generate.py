"""trtspec generate: prompts to the served pair, text as it comes, and what the drafts did for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtspec.cli._options import config_argument, json_option, load
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from trtspec.config import RunConfig
    from trtspec.measurement.prompts import Prompt
    from trtspec.triton.answer import PairClient
    from trtspec.triton.generation import GenerateRequest

MAX_TOKENS = 128


@click.command()
@config_argument
@click.argument("text_from", metavar="[-]", required=False, type=click.Choice(["-"]))
@click.option("--prompt", help="The text to go on with. `-` behind CONFIG reads it from standard input instead.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="Prompts, one JSON object a line (`prompt` or "
              "`messages`; `id`, `max_tokens`); - is standard input.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Answers to --file as JSON Lines. Default: stdout.")
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, help="Requests of --file at a time.")
@click.option("--chat", is_flag=True, help="The prompt is a user's message: send it through the chat template.")
@click.option("--url", metavar="HOST:PORT", help="The server. Default: the configuration's port; with port 0 a server "
              "is started for this call.")  # fmt: skip
@click.option("--http", "over_http", is_flag=True, help="HTTP (/generate) instead of gRPC; --url is that port then.")
@click.option("--stream/--no-stream", default=None, help="Show text as it is verified (the default where "
              "serving.decoupled is true), or all at the end.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(1), default=MAX_TOKENS, show_default=True, help="Longest answer.")
@click.option("--draft-len", type=click.IntRange(0), help="Most draft tokens a round. Default: the server's policy.")
@click.option("--target-only", is_flag=True, help="Without drafts; the same as --draft-len 0.")
@click.option("--temperature", type=float, default=0.0, help="0 (the default) is greedy.")
@click.option("--top-k", type=int, help="Draw from the k likeliest tokens.")
@click.option("--top-p", type=float, help="Draw from the likeliest tokens of this share.")
@click.option("--seed", type=int, help="Makes a drawn answer repeatable.")
@click.option("--stop", "stop", multiple=True, metavar="WORD", help="Ends the answer before it. Repeatable.")
@click.option("--task", help="Label of the serving policy, such as code.")
@click.option("--timeout", type=click.FloatRange(0.0, min_open=True), default=120.0, help="Seconds for an answer.")
@click.option("--wait", type=click.FloatRange(0.0), default=0.0, help="Seconds to wait for a server that does not "
              "listen yet, or is overloaded. Default: none.")  # fmt: skip
@json_option
def generate(
    config_path: Path,
    overrides: tuple[str, ...],
    text_from: str | None,
    prompt: str | None,
    file: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Ask the served pair, with the speculative pipeline.

    The text comes on stdout as the target verifies it; acceptance, speed and whether drafts were made on stderr.
    Ctrl-C cancels the request on the server.

    Exit 0; 2 for a request that the server refuses; 5 when it cannot be reached, or an answer failed.
    """
    if sum(x is not None for x in (text_from, prompt, file)) != 1:
        raise ConfigError("what is to be answered?", expected="one of --prompt TEXT, --file PROMPTS.jsonl and -")
    if file is None and (given["out"] is not None or given["concurrency"] != 1):
        raise ConfigError("--out and --concurrency belong to --file")
    from trtspec.cli._console import console
    from trtspec.triton.answer import Retry
    from trtspec.workflows.generate import client_of

    config = load(config_path, overrides)
    out = console(as_json=True)  # stdout holds nothing but answers
    call = _Call(config, out, as_json, given)
    ask = call.file(file) if file is not None else call.one(sys.stdin.read() if prompt is None else prompt)
    retry = Retry(connecting=given["wait"], overloaded=given["wait"])
    with client_of(config, given["url"], given["over_http"], call.note, retry) as client:
        return ask(client)


class _Call:
    """One call of the verb. What can be refused without a server is, before there is one."""

    def __init__(self, config: RunConfig, out: Console, as_json: bool, given: dict[str, Any]) -> None:
        from trtspec.workflows.generate import model_of

        self._config, self._out, self._as_json, self._given = config, out, as_json, given
        self._model = model_of(config)

    def note(self, text: str) -> None:
        self._out.print(text, markup=False, soft_wrap=True)

    def one(self, text: str) -> Callable[[PairClient], int]:
        from trtspec.measurement.prompts import Prompt
        from trtspec.workflows.generate import as_chat

        text = as_chat(self._config, text, self.note) if self._given["chat"] else text
        request = self._request(text)
        self._check([Prompt("prompt", "prompt", text, request.max_tokens)])
        return lambda client: self._answer(client, request)

    def file(self, path: Path) -> Callable[[PairClient], int]:
        from trtspec.workflows.generate import prompts_of

        if self._given["chat"]:
            raise ConfigError("--chat belongs to --prompt", fix="write `messages` instead of `prompt` in the file")
        prompts = prompts_of(self._config, path, self._given["max_tokens"], self.note)
        request = self._request(prompts[0].text)
        self._check(prompts)
        return lambda client: self._answers(client, request, prompts)

    def _request(self, prompt: str) -> GenerateRequest:
        from trtspec.triton.generation import GenerateRequest

        given = self._given
        if given["target_only"] and given["draft_len"]:
            raise ConfigError("--target-only is --draft-len 0", found=f"--draft-len {given['draft_len']}")
        if given["target_only"] and self._config.engine.backend == "pytorch":
            raise ConfigError(
                "the LLM API drafts inside the engine: no request can switch it off", where="--target-only"
            )
        stream = self._config.serving.decoupled if given["stream"] is None else given["stream"]
        same = ("max_tokens", "temperature", "top_k", "top_p", "seed", "task", "timeout")
        return GenerateRequest(
            prompt,
            stream=stream,
            stop_words=given["stop"],
            draft_len=0 if given["target_only"] else given["draft_len"],
            **{name: given[name] for name in same},
        )

    def _check(self, prompts: Sequence[Prompt]) -> None:
        from trtspec.workflows.generate import refuse_too_long

        if self._given["url"] is None:  # the server of another configuration has its own limits
            refuse_too_long(self._config, prompts)

    def _answer(self, client: PairClient, request: GenerateRequest) -> int:
        from trtspec.cli._answers import Screen, tell_answer
        from trtspec.cli._console import print_json
        from trtspec.workflows.generate import answer_one, figures

        screen = Screen(sys.stderr if self._as_json else sys.stdout)
        try:
            answer = answer_one(client, self._model, request, screen.write)
        finally:
            screen.end()
        tell_answer(self._out, answer)
        if self._as_json:
            print_json({"prompt": request.prompt, "text": answer.text, **figures(answer)})
        return 0

    def _answers(self, client: PairClient, request: GenerateRequest, prompts: Sequence[Prompt]) -> int:
        from trtspec.cli._answers import Lines, tell_summary
        from trtspec.cli._console import ConsoleReporter, print_json
        from trtspec.workflows.generate import Answered, answer_all, summary

        began, done = time.perf_counter(), 0
        path = self._given["out"]
        with Lines(path, silent=self._as_json) as lines, ConsoleReporter(self._out) as reporter:

            def kept(answered: Answered) -> None:
                nonlocal done
                done += 1
                lines.add(answered.as_dict())
                reporter.progress("answers", done, len(prompts))

            answers = answer_all(client, self._model, request, prompts, self._given["concurrency"], kept)
        total = summary(answers, time.perf_counter() - began)
        tell_summary(self._out, total, path)
        if self._as_json:
            rows = {"path": path} if path else {"answers": [a.as_dict() for a in answers]}
            print_json(rows | {"summary": total})
        return next((a.error.exit_code for a in answers if a.error is not None), 0)
