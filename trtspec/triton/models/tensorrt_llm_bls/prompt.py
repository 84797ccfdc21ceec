"""What preprocessing makes of a request: token ids, and the words that end or forbid something."""

from __future__ import annotations

from dataclasses import dataclass

from calls import Caller
from job import Job, Settings
from limits import IN_PREPROCESSING
from wire import Array, pack_words, unpack_words

_WANTED = [
    "INPUT_ID",
    "REQUEST_INPUT_LEN",
    "STOP_WORDS_IDS",
    "BAD_WORDS_IDS",
    "EMBEDDING_BIAS",
    "OUT_END_ID",
    "OUT_PAD_ID",
]


@dataclass(frozen=True)
class Prompt:
    """`words` are tensors that every LLM call gets.

    The engines know one end id. The model's other ones are stop words of one token for them, and before min_tokens,
    when no end may come, bad words: `words_before`.
    """

    ids: list[int]
    end_id: int
    end_ids: frozenset[int]
    stop_ids: tuple[tuple[int, ...], ...]
    """Without end ids."""
    words: dict[str, Array]
    words_before: dict[str, Array]

    @classmethod
    def of(cls, job: Job, settings: Settings, caller: Caller) -> Prompt:
        """Ask preprocessing. CallFailed with its one line where it refuses."""
        given = {theirs: job.inputs.array(ours) for ours, theirs in IN_PREPROCESSING.items() if ours in job.inputs}
        answer = caller.plain("preprocessing", given, _WANTED)
        length = int(answer["REQUEST_INPUT_LEN"].flat[0])
        end_id = int(answer["OUT_END_ID"].flat[0])
        further = frozenset() if "end_id" in job.inputs else frozenset(settings.end_ids) - {end_id}
        stop_ids, bad_ids = (unpack_words(answer[f"{kind}_WORDS_IDS"]) for kind in ("STOP", "BAD"))
        own_stops = tuple(word for word in stop_ids if not (len(word) == 1 and word[0] in {end_id, *further}))
        words = {
            "end_id": answer["OUT_END_ID"],
            "pad_id": answer["OUT_PAD_ID"],
            "stop_words_list": answer["STOP_WORDS_IDS"],
            "bad_words_list": answer["BAD_WORDS_IDS"],
            "embedding_bias": answer["EMBEDDING_BIAS"],
        }
        before = {
            "stop_words_list": pack_words([[list(word) for word in own_stops]]),
            "bad_words_list": pack_words([[*map(list, bad_ids), *([end] for end in sorted(further))]]),
        }
        return cls(
            ids=answer["INPUT_ID"].reshape(-1)[:length].tolist(),
            end_id=end_id,
            end_ids=further | {end_id},
            stop_ids=own_stops,
            words={name: array for name, array in words.items() if array.size},
            words_before={name: array for name, array in (words | before).items() if array.size},
        )
