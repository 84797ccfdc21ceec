"""Calibrate with one decoder layer in memory at a time: largest inputs of every linear, largest keys and values.

transformers' own layers run, so any family it has works; weights come from safetensors layer by layer, and the hidden
states of all prompts wait between layers. What is found equals what nvidia-modelopt's `max` calibration finds. Finished
layers are kept in a work folder, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trtspec.checkpoint.quantize.calibration import TENSORS, key_of
from trtspec.checkpoint.tensors import TensorSource
from trtspec.errors import BuildError, MissingError

Progress = Callable[[int, int], None]
State = dict[str, Any]
PAUSED = "hidden.safetensors"
_ALONE = threading.Lock()
"""accelerate patches torch.nn.Module for the whole process while it makes an empty model: parameters that another
thread sets meanwhile would be empty as well."""


def require() -> None:
    """MissingError when this environment cannot run the layers."""
    try:
        import accelerate  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingError(
            "method: layerwise runs the model's layers here",
            found=f"no {error.name}",
            fix="install `trtspec[quantize]`",
        ) from None


def calibrate(
    model_dir: Path,
    prompts: Sequence[Sequence[int]],
    out: Path,
    *,
    work: Path | None = None,
    dtype: str = "auto",
    progress: Progress | None = None,
) -> None:
    """Write the tensors of a calibration into `out`.

    `work` keeps finished layers; it is this call's alone, used again when the same call is repeated, and removed at the
    end. `progress` counts prompts times layers. BuildError where transformers has not the model.
    """
    require()
    import torch
    from safetensors.torch import save_file

    folder = work or out / ".layers"
    folder.mkdir(parents=True, exist_ok=True)
    with _ALONE, torch.inference_mode():
        decoder = _Decoder.of(model_dir, dtype)
        hidden, first = _resumed(folder)
        calls = decoder.calls([torch.tensor([list(ids)], device=decoder.device) for ids in prompts])
        if hidden is None:
            hidden = [states for states, _ in calls]
        total = len(prompts) * len(decoder.layers)
        for i in range(first, len(decoder.layers)):
            found: State = {}
            with decoder.loaded(i, found) as layer:
                for n, (_, arguments) in enumerate(calls):
                    hidden[n] = layer(hidden[n].to(decoder.device), arguments[i])
                    if progress is not None:
                        progress(i * len(prompts) + n + 1, total)
            _pause(folder, i, found, hidden)
    save_file(_collected(folder), out / TENSORS)
    shutil.rmtree(folder)


def _resumed(folder: Path) -> tuple[list[Any] | None, int]:
    """Hidden states before the first layer that is not finished, and its number."""
    from safetensors.torch import load_file

    if not (folder / PAUSED).is_file():
        return None, 0
    states = load_file(folder / PAUSED)
    first = int(states.pop("next"))
    return [states[str(n)] for n in range(len(states))], first


def _pause(folder: Path, layer: int, found: State, hidden: Sequence[Any]) -> None:
    """Keep a finished layer. The states name the next layer, so that a kill between the two files repeats one."""
    import torch
    from safetensors.torch import save_file

    states = {str(n): state.contiguous().clone() for n, state in enumerate(hidden)}
    for name, tensors in ((f"layer{layer}.safetensors", found), (PAUSED, states | {"next": torch.tensor(layer + 1)})):
        save_file({key: value.cpu() for key, value in tensors.items()}, folder / f".{name}")
        os.replace(folder / f".{name}", folder / name)


def _collected(folder: Path) -> State:
    from safetensors.torch import load_file

    found: State = {}
    for path in folder.glob("layer*.safetensors"):
        found |= load_file(path)
    return found


class _Stop(Exception):
    """The layers were reached; what lies behind them is not needed."""


class _Decoder:
    """transformers' decoder without weights, and the tensors to fill its layers with."""

    def __init__(self, decoder: Any, source: TensorSource, dtype: Any) -> None:
        import torch

        self.decoder, self.dtype = decoder, dtype
        self.layers: list[Any] = list(decoder.layers)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tensors = {key_of(name): info for name, info in source.tensors.items()}
        embedding = next(info for name, info in source.tensors.items() if name.endswith("embed_tokens.weight"))
        decoder.embed_tokens.weight = torch.nn.Parameter(self._read(embedding), requires_grad=False)

    @classmethod
    def of(cls, model_dir: Path, dtype: str) -> _Decoder:
        """The decoder of a model folder; BuildError when transformers cannot make one."""
        import torch
        from accelerate import init_empty_weights
        from transformers import AutoConfig, AutoModelForCausalLM

        try:
            config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
            text = config.get_text_config()
            named = text.dtype or config.dtype if dtype == "auto" else getattr(torch, dtype)
            with init_empty_weights(include_buffers=False):
                model = AutoModelForCausalLM.from_config(text, dtype=named or torch.float32).eval()
        except (ValueError, KeyError, ImportError, OSError) as error:
            first = str(error).strip().splitlines()[0]
            raise BuildError(f"transformers cannot make this model: {first}", where=model_dir) from None
        decoder = cls(model.get_decoder(), TensorSource.open(model_dir), named or torch.float32)
        for name, module in decoder.decoder.named_children():
            if name.startswith("rotary_emb"):  # buffers only, and computed
                module.to(decoder.device)
        return decoder

    def calls(self, prompts: Sequence[Any]) -> list[tuple[Any, list[dict[str, Any]]]]:
        """For each prompt the states that enter the first layer, and what each layer is called with beside them."""
        import torch

        found: list[tuple[Any, list[dict[str, Any]]]] = []
        stand_ins = [_stand_in(layer, last=layer is self.layers[-1]) for layer in self.layers]
        self.decoder.layers, kept = torch.nn.ModuleList(stand_ins), self.decoder.layers
        for ids in prompts:
            with suppress(_Stop):
                self.decoder(input_ids=ids, use_cache=False)
            found.append((stand_ins[0].hidden.cpu(), [stand_in.arguments for stand_in in stand_ins]))
        self.decoder.layers = kept
        return found

    @contextmanager
    def loaded(self, index: int, found: State) -> Iterator[Callable[[Any, dict[str, Any]], Any]]:
        """Layer `index` with its weights, as a function; largest inputs, keys and values go into `found`."""
        import torch

        prefix, layer = f"layers.{index}.", self.layers[index]
        state = {key.removeprefix(prefix): self._read(t) for key, t in self.tensors.items() if key.startswith(prefix)}
        try:
            layer.load_state_dict(state, strict=True, assign=True)
        except RuntimeError as error:
            line = re.sub(r"\s+", " ", str(error))
            raise BuildError(f"layer {index} does not fit transformers' {type(layer).__name__}", found=line) from None
        layer.to(self.device)
        cache = _Cache(prefix, found)
        hooks = [
            module.register_forward_pre_hook(_inputs(f"model.{prefix}{name}.input_amax", found))
            for name, module in layer.named_modules()
            if isinstance(module, torch.nn.Linear)
        ]

        def run(hidden: Any, arguments: dict[str, Any]) -> Any:
            result = layer(hidden, **{**arguments, "past_key_values": cache})
            return (result[0] if isinstance(result, tuple) else result).cpu()

        yield run
        for hook in hooks:
            hook.remove()
        layer.to("meta")

    def _read(self, info: Any) -> Any:
        from safetensors import safe_open

        with safe_open(info.path, framework="pt", device=str(self.device)) as file:
            return file.get_tensor(info.name).to(self.dtype)


def _inputs(name: str, found: State) -> Callable[[Any, tuple[Any, ...]], None]:
    """A hook that keeps the largest magnitude of each input channel."""

    def hook(_: Any, arguments: tuple[Any, ...]) -> None:
        _keep(found, name, arguments[0].detach().abs().reshape(-1, arguments[0].shape[-1]))

    return hook


def _keep(found: State, name: str, magnitudes: Any) -> None:
    if magnitudes.shape[0] == 0:  # an expert that no token was sent to
        return
    seen = magnitudes.amax(dim=0).float()
    found[name] = seen if name not in found else seen.maximum(found[name])


class _Cache:
    """Stands for the KV cache: sees what would be stored, after rotation, and stores nothing."""

    def __init__(self, prefix: str, found: State) -> None:
        self._name, self._found = f"model.{prefix}self_attn.", found

    def update(self, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """transformers' Cache.update."""
        for kind, states in (("k", key), ("v", value)):
            _keep(self._found, f"{self._name}{kind}_amax", states.detach().abs().reshape(-1, 1))
        return key, value


def _stand_in(layer: Any, *, last: bool) -> Any:
    """In a layer's place while the decoder prepares its calls: remembers them and changes nothing."""
    import torch

    module: Any = torch.nn.Module()
    module.attention_type = getattr(layer, "attention_type", None)  # decoders choose masks by it

    def forward(hidden: Any, **arguments: Any) -> Any:
        module.hidden, module.arguments = hidden, arguments
        if last:
            raise _Stop
        # Some decoders take the first of a tuple from their layers, others what they return.
        return hidden if isinstance(hidden, tuple) else (hidden,)

    module.forward = forward
    return module
