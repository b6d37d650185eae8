"""The model card: a README.md that says what a network is, how good it is, how it was trained and how to use it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from epitomic.models.hub import hub_errors
from epitomic.models.preprocessing import PretrainedConfig
from epitomic.support.console import percent
from epitomic.training.run_folder import RunFolder

PAPER = "https://arxiv.org/abs/1406.2732"
# Options of a training whose values are of the machine it ran on: they say nothing to others, and may be private.
PRIVATE = ("--out", "--data-dir", "--init-from", "--devices", "--workers", "--threads", "--accelerator")
SHOWN_CLASSES = 20


def model_card(run: RunFolder, repository: str = "user/name", *, license: str | None = None) -> str:
    """Writes the model card of a run, or of weights alone, as Markdown with a YAML header.

    What a run does not say is left out: weights alone have no history.

    Args:
        run: The run.
        repository: Name on the hub, for the example.
        license: Licence of the weights, as the hub spells it, such as ``"mit"``. None: the card names none.
    """
    with hub_errors(repository):
        from huggingface_hub import EvalResult, ModelCardData
    config = PretrainedConfig.read(run.config or {}, run.model.config)  # type: ignore[arg-type]
    test = (run.results or {}).get("test")
    accuracy = None
    if test:
        accuracy = EvalResult(
            task_type="image-classification",
            dataset_type=run.dataset,
            dataset_name=run.dataset,
            metric_type="accuracy",
            metric_value=round(100 * (1 - test["error"]), 2),
        )
    data = ModelCardData(
        library_name="epitomic",
        pipeline_tag="image-classification",
        tags=["epitomic", "epitomic-convolution", "pytorch", "safetensors"],
        datasets=[run.dataset] if config.dataset else None,
        license=license,
        model_name=repository.partition("/")[2],
        eval_results=[accuracy] if accuracy else None,
    )
    sections = (_introduction, _example, _input, _figures, _training)
    body = "\n\n".join("\n".join(section(run, config, repository)) for section in sections)
    return f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n"


def _introduction(run: RunFolder, config: PretrainedConfig, repository: str) -> Iterator[str]:
    parameters = sum(p.numel() for p in run.model.parameters())
    yield f"# {repository.partition('/')[2]}"
    yield ""
    yield (
        f"A network of the kind `{config.model}` with {parameters:,} parameters, trained on `{run.dataset}`. It uses "
        f"epitomic convolution ([Papandreou, 2014]({PAPER})) or is a network to compare with it: see `epitomic models`."
    )


def _example(run: RunFolder, config: PretrainedConfig, repository: str) -> Iterator[str]:
    yield "## Use"
    yield ""
    yield "```python"
    yield "import epitomic  # with the extra `hub`"
    yield ""
    yield f'model = epitomic.from_pretrained("{repository}")'
    yield 'scores = model(model.preprocess(["image.png"]))  # paths, PIL images or tensors, of any size'
    yield "print(model.pretrained_cfg.classes[scores.argmax()])"
    yield "```"


def _input(run: RunFolder, config: PretrainedConfig, repository: str) -> Iterator[str]:
    size = f"{config.image_size} x {config.image_size}"
    yield "## Input and output"
    yield ""
    yield f"- Input: {config.in_channels} channels, {size} pixels. `model.preprocess` resizes, crops and standardises."
    for name, values in (("mean", config.mean), ("standard deviation", config.std)):
        if values is not None:
            yield f"- The {name} of each channel, for pixels from 0 to 1: {', '.join(f'{v:.4f}' for v in values)}."
    named = [name for number, name in enumerate(config.classes) if name != str(number)]
    shown = ", ".join(named[:SHOWN_CLASSES]) + (", ..." if len(named) > SHOWN_CLASSES else "")
    yield f"- Output: scores of {config.num_classes} classes before the softmax{': ' + shown if named else ''}."


def _figures(run: RunFolder, config: PretrainedConfig, repository: str) -> Iterator[str]:
    results: dict[str, Any] = run.results or {}
    test, shipped = results.get("test"), config.get("trained") or {}
    if not test and "test_errors" not in shipped:
        return
    yield "## Figures"
    yield ""
    yield "| on | images | result |"
    yield "|---|---|---|"
    if test:
        yield f"| `{run.dataset}`, test | {test['images']:,} | {percent(test['error'])} error |"
        if test.get("top5") is not None and config.num_classes > 5:
            yield f"| `{run.dataset}`, test | {test['images']:,} | {percent(test['top5'])} top-5 accuracy |"
    else:
        yield f"| `{run.dataset}`, test | | {shipped['test_errors']:,} images wrong |"
    error = results.get("validation_error", shipped.get("validation_error"))
    if error is not None:
        yield f"| validation | | {percent(error)} error |"


def _training(run: RunFolder, config: PretrainedConfig, repository: str) -> Iterator[str]:
    facts = run.facts or config.get("trained") or {}
    if not facts.get("command"):
        return
    yield "## Training"
    yield ""
    yield f"    {public_command(facts['command'])}"
    yield ""
    versions = facts.get("versions") or {}
    used = [f"{name} {versions[name]}" for name in ("epitomic", "torch", "python") if name in versions]
    rows = {
        "epochs": (run.results or {}).get("epochs"),
        "seed": facts.get("seed"),
        "commit of epitomic": facts.get("commit"),
        "versions": ", ".join(used) or None,
        "processor": (facts.get("machine") or {}).get("processor"),
        "minutes": round(facts["wall_seconds"] / 60, 1) if facts.get("wall_seconds") else None,
    }
    for name, value in rows.items():
        if value is not None:
            yield f"- {name}: {value}"


def public_command(command: str) -> str:
    """Returns a training command without what is of one machine only, such as folders.

    >>> public_command("epitomic train digits --seed 1 --data-dir /home/me/images --out=runs/1 --resume")
    'epitomic train digits --seed 1'
    """
    return shlex.join(_public(shlex.split(command)))


def _public(words: Sequence[str]) -> Iterator[str]:
    skip = False
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if not skip and option not in (*PRIVATE, "--resume", "--no-report"):
            yield word
        skip = not skip and word in PRIVATE
