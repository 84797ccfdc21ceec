"""generate: prompts to a running server, or to one that is started for them; answers with what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from tokenizers import Tokenizer

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config import RunConfig
from trtspec.config.validation import Dataset
from trtspec.errors import ConfigError, TrtspecError, context
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.promptfiles import domain_of
from trtspec.measurement.prompts import Prompt, load_prompts
from trtspec.measurement.records import total
from trtspec.triton.answer import PairClient, Retry
from trtspec.triton.failures import RequestError
from trtspec.triton.generation import GenerateRequest, Generation
from trtspec.triton.payload import SPECULATIVE
from trtspec.triton.pipeline import PREPROCESSING, TARGET
from trtspec.workflows.serve import serving

STDIN = Path("/dev/stdin")
Note = Callable[[str], None]


@dataclass(frozen=True)
class Answered:
    """One prompt with its answer, or with why there is none."""

    prompt: Prompt
    answer: Generation | None
    error: TrtspecError | None = None

    def as_dict(self) -> dict[str, object]:
        """A line of the answers' file."""
        row: dict[str, object] = {"id": self.prompt.id, "prompt": self.prompt.text}
        if self.answer is not None:
            return row | {"text": self.answer.text} | figures(self.answer)
        return row | {"error": None if self.error is None else self.error.as_dict()}


@contextmanager
def client_of(config: RunConfig, url: str | None, over_http: bool, note: Note, retry: Retry) -> Iterator[PairClient]:
    """A client of the server at `url`, or at the configuration's port; where neither names one, of one started here."""
    found = url or _endpoint(config, over_http)
    if found is None:
        note("No --url, and the configuration takes any free port: starting a server for this call alone.")
        with (
            serving(config, note) as server,
            _client(server.http_url if over_http else server.grpc_url, over_http, retry) as own,
        ):
            yield own
        return
    with _client(found, over_http, retry) as client:
        yield client


def model_of(config: RunConfig) -> str:
    """The model that speculates."""
    return TARGET if config.engine.backend == "pytorch" else SPECULATIVE


def prompts_of(config: RunConfig, file: Path, max_tokens: int, note: Note) -> list[Prompt]:
    """The prompts of a JSON Lines file, chats through the deployed template; `-` is standard input."""
    path = STDIN if str(file) == "-" else file
    dataset = Dataset(path=path, domain="stdin" if path == STDIN else domain_of(path))
    return load_prompts(dataset, _template(config, note), config.validation.seed, max_tokens)


def as_chat(config: RunConfig, text: str, note: Note) -> str:
    """A user's message through the deployed chat template; ConfigError where the model has none."""
    template = _template(config, note)
    if template is None:
        fix = "leave out --chat, or write the turns into the prompt"
        raise ConfigError("this model has no chat template", where=_tokenizer_folder(config), fix=fix)
    return template.render([{"role": "user", "content": text}])


def refuse_too_long(config: RunConfig, prompts: Sequence[Prompt]) -> None:
    """ConfigError for a prompt that the engines cannot take, before anything is sent, where the tokenizer is here."""
    path = _tokenizer_folder(config) / "tokenizer.json"
    if not path.is_file():
        return  # the server will say it
    tokenizer = Tokenizer.from_file(str(path))
    engine = config.engine
    for prompt in prompts:
        tokens = len(tokenizer.encode(prompt.text).ids)
        what = f"the prompt {prompt.id!r} is too long for the engines"
        if tokens > engine.max_input_len:
            raise ConfigError(
                what, found=f"{tokens} tokens", expected=f"at most {engine.max_input_len} (engine.max_input_len)"
            )
        if tokens + prompt.max_tokens > engine.max_seq_len:
            found = f"{tokens} tokens and max_tokens {prompt.max_tokens}"
            raise ConfigError(what, found=found, expected=f"at most {engine.max_seq_len} together (engine.max_seq_len)")


def answer_one(client: PairClient, model: str, request: GenerateRequest, write: Callable[[str], None]) -> Generation:
    """Write the text as it comes. A request that is wrong in itself is a ConfigError."""
    try:
        with client.stream(model, request) as answer:
            for text in answer:
                write(text)
            return answer.result
    except RequestError as error:
        raise _whose_fault(error) from None


def answer_all(
    client: PairClient,
    model: str,
    template: GenerateRequest,
    prompts: Sequence[Prompt],
    concurrency: int,
    done: Callable[[Answered], None],
) -> list[Answered]:
    """The answers in the order of the prompts, `concurrency` at a time; one that fails does not stop the others.

    Except where the server is gone: RequestError then.
    """
    answers: list[Answered] = []
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="ask")
    try:
        waiting = [pool.submit(_ask, client, model, template, prompt) for prompt in prompts]
        for prompt, future in zip(prompts, waiting, strict=True):
            answers.append(_kept(future, prompt))
            done(answers[-1])
        return answers
    finally:
        # On Ctrl-C too: what runs is cancelled, what waits never begins.
        pool.shutdown(wait=False, cancel_futures=True)
        client.close()
        pool.shutdown(wait=True)


def figures(answer: Generation) -> dict[str, object]:
    """What an answer cost and what the drafts did for it; None where nothing tells."""
    counted = None if answer.histogram is None else RoundHistogram.from_wire(answer.histogram)
    return {
        "mode": answer.mode,
        "finish_reason": answer.finish_reason,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "seconds": answer.seconds,
        "first_token_seconds": answer.first_token_seconds,
        "tokens_per_second": answer.tokens_per_second,
        "rounds": answer.rounds,
        "drafted": answer.drafted,
        "tested": answer.tested,
        "accepted": answer.accepted,
        **acceptance(counted),
    }


def acceptance(counted: RoundHistogram | None) -> dict[str, object]:
    """The figures that derive from counted rounds."""
    return {
        "alpha": counted and counted.alpha(),
        "acceptance_length": counted and counted.acceptance_length(),
        "draft_acceptance_rate": counted and counted.draft_acceptance_rate(),
        "per_position": counted and counted.per_position(),
    }


def summary(answers: Sequence[Answered], seconds: float) -> dict[str, object]:
    """Of many answers: totals, and acceptance over all their rounds (micro)."""
    good = [a.answer for a in answers if a.answer is not None]
    histograms = [RoundHistogram.from_wire(g.histogram) for g in good if g.histogram is not None]
    tokens = sum(g.output_tokens for g in good)
    return {
        "answered": len(good),
        "failed": len(answers) - len(good),
        "modes": {mode: sum(g.mode == mode for g in good) for mode in sorted({g.mode for g in good})},
        "output_tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if seconds else 0.0,
        "rounds": sum(h.rounds for h in histograms),
        "drafted": sum(g.drafted for g in good),
        "tested": sum(g.tested for g in good),
        "accepted": sum(g.accepted for g in good),
        **acceptance(total(histograms)),
    }


def _ask(client: PairClient, model: str, template: GenerateRequest, prompt: Prompt) -> Generation:
    request = replace(template, prompt=prompt.text, max_tokens=prompt.max_tokens, request_id=uuid4().hex)
    return answer_one(client, model, request, lambda _: None)


def _kept(future: Future[Generation], prompt: Prompt) -> Answered:
    try:
        return Answered(prompt, future.result())
    except TrtspecError as error:
        if isinstance(error, RequestError) and error.kind == "unreachable":
            raise
        return Answered(prompt, None, error)


def _whose_fault(error: RequestError) -> TrtspecError:
    if error.kind != "refused":
        return error
    return ConfigError(error.what, where=error.where, found=error.found, expected=error.expected, fix=error.fix)


def _endpoint(config: RunConfig, over_http: bool) -> str | None:
    from trtspec.triton.server import ANY_ADDRESS

    port = config.serving.http_port if over_http else config.serving.grpc_port
    return f"{ANY_ADDRESS.get(config.serving.host, config.serving.host)}:{port}" if port else None


@contextmanager
def _client(url: str, over_http: bool, retry: Retry) -> Iterator[PairClient]:
    from trtspec.triton.client import TritonClient
    from trtspec.triton.http_client import HttpClient

    with context(stage="generate"), (HttpClient if over_http else TritonClient)(url, retry=retry) as client:
        try:
            yield client
        except RequestError as error:
            if error.kind == "unreachable" and error.fix is None:
                error.fix = "start one with `trtspec serve CONFIG`, or name one with --url"
            raise


def _tokenizer_folder(config: RunConfig) -> Path:
    return config.repository_dir / PREPROCESSING / "1" / "tokenizer"


def _template(config: RunConfig, note: Note) -> ChatTemplate | None:
    """The template that is deployed; without the repository that of the target's folder, and said so."""
    folder = _tokenizer_folder(config)
    source = config.pair.target.path
    if not folder.is_dir() and source is not None and source.is_dir():
        note(f"The repository is not on this machine: the chat template is that of {source}")
        folder = source
    return ChatTemplate.read(folder)
