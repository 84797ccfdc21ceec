"""tensorrt_llm_bls: text in, text out, with speculation between a draft and a target model.

One instance serves many requests: execute() reads each request completely, hands it to a pool of threads and
returns. The loop itself is in decode.py, the counting in rounds.py, the policy in policy.py.
"""

from __future__ import annotations

import json
import threading
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb
from calls import Caller, CallFailed, Spent
from decode import Cancelled, Decoding
from job import Job, Settings
from pair import Pair, Verdict
from policy import PolicyFile
from result import Result
from rounds import Rounds
from vocabulary import Vocabulary
from watch import Watch, Watched
from wire import FINAL, Inputs, Parameters, Refused, refusal, refuse_numpy_2, response
from writing import Limits, Writer

HERE = Path(__file__).parent
GONE = "the request was cancelled"
# Parameters that Triton and its clients send by themselves.
KNOWN_PARAMETERS = ("triton_", "sequence_", "priority", "timeout", "binary_data", "headers")


class TritonPythonModel:
    """The pipeline; what it does with one request is in :class:`Service`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters, tokenizer and policy."""
        refuse_numpy_2()
        self.settings = Settings.of(Parameters(args))
        self.vocabulary = Vocabulary(HERE / "tokenizer", skip_special=self.settings.skip_special_tokens)
        self.policy = PolicyFile(HERE / "policy.json")
        self.spent = Spent()
        self.watch = Watch(self.spent)
        self._pool = ThreadPoolExecutor(self.settings.max_concurrent_requests, thread_name_prefix="request")
        self._lock = threading.Lock()
        self.in_flight = 0

    def execute(self, requests: list[Any]) -> None:
        """Take all requests; their answers come later."""
        problem = self.policy.refresh()
        if problem:
            pb.Logger.log_warn(problem)
        for request in requests:
            sender = request.get_response_sender()
            _warn_of_unknown_parameters(request)
            try:
                wanted = frozenset(request.requested_output_names())
                job = Job.of(request.request_id(), wanted, Inputs.of(request), self.settings)
            except Refused as reason:
                sender.send(refusal(reason), flags=FINAL)
                continue
            with self._lock:
                self.in_flight += 1
            self._pool.submit(self._serve, job, sender)

    def finalize(self) -> None:
        """Wait for what is running."""
        self._pool.shutdown(wait=True)
        self.watch.close()

    def _serve(self, job: Job, sender: Any) -> None:
        # Unique among calls in flight, because a stop request finds its call by the id.
        watched = Watched(sender, Caller(f"{job.request_id}.{uuid.uuid4().hex[:8]}", self.spent))
        self.watch.add(watched)
        try:
            last = self._answer(job, watched)
        finally:
            self.watch.remove(watched)
            with self._lock:
                self.in_flight -= 1
        sender.send(last, flags=FINAL)

    def _answer(self, job: Job, watched: Watched) -> Any:
        """The last response of a request, which may be an error."""
        try:
            return Service(self, job, watched).run()
        except (Cancelled, Refused, CallFailed) as reason:
            # A call that was stopped for a client that has gone fails, too.
            return refusal(GONE, cancelled=True) if watched.cancelled else refusal(reason)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            pb.Logger.log_error(f"request {job.request_id}: {type(error).__name__} at {where.name}:{where.lineno}")
            return refusal(f"internal error ({type(error).__name__}); see the server's log")


class Service:
    """One request from prompt to last response."""

    def __init__(self, model: TritonPythonModel, job: Job, watched: Watched) -> None:
        self._model = model
        self._job = job
        self._watched = watched
        self._pair = Pair(job, model.settings, watched.caller)
        self._writer = Writer(model.vocabulary, self._limits())
        self._rounds = Rounds(model.settings.max_draft_len)
        self._result = Result(job, len(self._pair.prompt.ids))

    def run(self) -> Any:
        """Write the answer; sends all but the last response, which is returned."""
        job = self._job
        decoding = Decoding(
            self._pair,
            self._writer,
            self._rounds,
            self,
            max_tokens=job.max_tokens,
            stream=job.stream,
            at_once=bool(job.target_only),
        )
        decoding.run()
        text, tokens = self._writer.piece()
        if not job.stream:
            text, tokens = self._whole_text(), len(self._writer.tokens)
        total = len(self._writer.tokens)
        return response(self._result.last(text, tokens, total, self._rounds, decoding.mode, self._writer.finish))

    def _limits(self) -> Limits:
        prompt = self._pair.prompt
        given = "end_id" in self._job.inputs
        end_ids = frozenset({prompt.end_id} if given else {prompt.end_id, *self._model.settings.end_ids})
        # Preprocessing lists further end ids among the stop words; here they end the answer as what they are.
        stop_ids = tuple(word for word in prompt.stop_ids if not (len(word) == 1 and word[0] in end_ids))
        return Limits(self._job.max_tokens, end_ids, self._job.stop_texts, stop_ids, self._job.min_tokens)

    def check(self) -> None:
        """Give up when the client has gone."""
        if self._watched.cancelled:
            raise Cancelled

    def draft_len(self) -> tuple[int, str]:
        """The least of what request, policy and engine allow."""
        settings = self._model.settings
        policy = self._model.policy.policy.draft_len(self._job.task, self._model.in_flight)
        limits = [
            (self._job.draft_tokens, "requested"),
            (policy, "policy"),
            (settings.max_draft_len if settings.draft else 0, "no-draft-model"),
        ]
        return min(limits, key=lambda limit: limit[0])

    def progress(self, verdict: Verdict) -> None:
        """Send what has become certain."""
        self._result.add(verdict)
        if self._job.stream and not self._writer.finish:
            text, tokens = self._writer.piece()
            if text:
                self._watched.sender.send(response(self._result.piece(text, tokens)))

    def warn(self, problem: str) -> None:
        """Into the server's log."""
        pb.Logger.log_warn(f"request {self._job.request_id}: {problem}")

    def _whole_text(self) -> str:
        text = self._writer.text()
        if self._job.exclude_input:
            return text
        prompt = self._pair.prompt.ids
        if self._writer.finish == "stop_words":
            return self._model.vocabulary.decode(prompt) + text
        return self._model.vocabulary.decode(prompt + self._writer.tokens)


def _warn_of_unknown_parameters(request: Any) -> None:
    """/generate turns a misspelt input into a request parameter without a word; say its name in the log."""
    names = json.loads(request.parameters() or "{}")
    unknown = sorted(name for name in names if not name.startswith(KNOWN_PARAMETERS))
    if unknown:
        pb.Logger.log_warn(f"request {request.request_id()}: unknown inputs or parameters {', '.join(unknown)}")
