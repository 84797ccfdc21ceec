"""Where a model's files are on this machine: a local folder, or a pinned snapshot in the hub cache."""

from __future__ import annotations

from pathlib import Path

from trtspec.config.schema import ModelSource
from trtspec.errors import ConfigError, MissingError

# safetensors only: pickled weights run code when they are loaded.
_WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model"]


def locate(source: ModelSource, *, download: bool = False) -> Path:
    """Folder of the model. A hub id is fetched only with `download`, and only at its pinned revision.

    Raises ConfigError for a folder that does not exist or a download without a revision, MissingError when
    the files are not here and were not asked for.
    """
    if source.path is not None:
        if not source.path.is_dir():
            raise ConfigError("no such model folder", where=source.path, fix="correct `path` of this model")
        return source.path
    if source.hub is None:  # the schema refuses this
        raise ConfigError("a model needs `path` or `hub`")
    if download and source.revision is None:
        raise ConfigError(
            f"{source.hub} has no `revision`",
            expected="the 40-digit commit hash of the hub repository",
            fix="pin it, in the file or by --set pair.ROLE.revision=HASH; a branch name moves and would make the build "
            "unrepeatable",
        )
    return _snapshot(source.hub, source.revision, download)


def _snapshot(hub: str, revision: str | None, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(hub, revision=revision, local_files_only=not download, allow_patterns=_WANTED)
    except LocalEntryNotFoundError:
        pinned = "run again with --download" if revision else "pin its `revision`, then run again with --download"
        fix = "check the network and HF_HOME" if download else pinned
        raise MissingError(
            f"{hub} is not on this machine", found=f"revision {revision or 'unpinned'}", fix=fix
        ) from None
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise MissingError(f"cannot fetch {hub}: {first}", fix="check the id, the revision and your access") from error
    return Path(found)
