"""The release record as an in-toto Statement with a SLSA provenance predicate, for tools that speak those.

Formats: in-toto attestation framework, Statement v1; SLSA build provenance v1 (slsa.dev/spec/v1.0/provenance).
`APPROXIMATIONS` says where the fields promise less than SLSA asks for; docs/record.md explains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from trtspec.release.record import RECORD, REPOSITORY, FileRow, ReleaseRecord, StageRow
from trtspec.store import MANIFEST, write_atomic

PROVENANCE = "provenance.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
_PAGE = "https://github.com/trtspec/trtspec/blob/main/docs/record.md"
APPROXIMATIONS = (
    "runDetails.builder.id names this program on whatever machine ran it, not a hosted and isolated build platform: "
    "SLSA build level 1 at most, and only if the statement is signed",
    "buildDefinition.externalParameters holds the command lines and the key of each stage; a key is the hash of all "
    "settings and inputs of its stage, not the settings themselves",
    "buildDefinition.resolvedDependencies holds the model files; installed packages and drivers appear as versions "
    "under internalParameters.environment, without hashes",
    "runDetails.metadata spans the stages of the build; reused stages may be older than this release",
)


def provenance(record: ReleaseRecord) -> dict[str, object]:
    """The statement about every deployed file: those of the repository, and those of both engines."""
    return {
        "_type": STATEMENT,
        "subject": list(_subjects(record)),
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": _definition(record), "runDetails": _details(record)},
    }


def write_record(folder: Path, record: ReleaseRecord) -> Path:
    """Write record.json and provenance.json, each whole; returns the path of the record, which comes last."""
    write_atomic(folder / PROVENANCE, json.dumps(provenance(record), indent=1, ensure_ascii=False) + "\n")
    write_atomic(folder / RECORD, record.model_dump_json(indent=1) + "\n")
    return folder / RECORD


def _subjects(record: ReleaseRecord) -> Iterator[dict[str, object]]:
    for stage in record.deployed:
        place = "repository" if stage.stage == REPOSITORY else stage.stage.replace(" of the ", "/")
        yield from (_descriptor(file, f"{place}/{file.name}") for file in stage.files)
        yield {"name": f"{place}/{MANIFEST}", "digest": {"sha256": stage.manifest_sha256}}
    if record.policy:
        yield _descriptor(record.policy.file, f"repository/{record.policy.file.name}")


def _definition(record: ReleaseRecord) -> dict[str, object]:
    return {
        "buildType": f"{_PAGE}#build-type",
        "externalParameters": {
            "pair": record.pair,
            "commands": [list(stage.command) for stage in record.stages],
            "keys": {stage.stage: stage.key for stage in record.stages},
        },
        "internalParameters": {
            "environment": record.environment,
            "validation": {
                "verdict": record.verdict,
                "reason": record.headline,
                "conditions": record.conditions,
                "command": list(record.command),
            },
            "gaps": list(record.gaps),
            "approximations": list(APPROXIMATIONS),
        },
        "resolvedDependencies": [
            {
                **_descriptor(file, f"{source.role}/{file.name}"),
                **({"uri": f"pkg:huggingface/{source.name}@{source.revision}"} if source.revision else {}),
            }
            for source in record.sources
            for file in source.files
        ],
    }


def _details(record: ReleaseRecord) -> dict[str, object]:
    times = [_span(stage) for stage in record.stages]
    metadata = {"invocationId": record.repository.key if record.repository else record.created}
    if times:
        metadata["startedOn"] = min(start for start, _ in times).isoformat(timespec="seconds")
        metadata["finishedOn"] = max(end for _, end in times).isoformat(timespec="seconds")
    checkpoints = [
        _descriptor(file, f"{stage.stage.replace(' of the ', '/')}/{file.name}")
        for stage in record.stages
        if stage.stage.startswith("checkpoint")
        for file in stage.files
    ]
    return {
        "builder": {"id": f"{_PAGE}#builder", "version": {"trtspec": record.trtspec}},
        "metadata": metadata,
        "byproducts": [*checkpoints, *(_descriptor(file, f"report/{file.name}") for file in record.reports)],
    }


def _span(stage: StageRow) -> tuple[datetime, datetime]:
    """A manifest is written when the stage is done."""
    end = datetime.fromisoformat(stage.created)
    return end - timedelta(seconds=stage.seconds), end


def _descriptor(file: FileRow, name: str) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": file.sha256}}
