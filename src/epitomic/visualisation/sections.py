"""The sections of a report: each takes what was collected of the runs and gives markup, empty if it has nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from epitomic.evaluation import OTHER_WAYS
from epitomic.training.progress import duration
from epitomic.visualisation import html
from epitomic.visualisation.collect import RunReport
from epitomic.visualisation.curves import METRICS, curves, curves_figure
from epitomic.visualisation.mistakes import LEGIBLE, Mistake, confused_pairs
from epitomic.visualisation.mosaics import first_epitomes, mosaic, to_picture
from epitomic.visualisation.patches import patches_picture
from epitomic.visualisation.positions import PositionUse
from epitomic.visualisation.robustness import grouped, robustness_figure, summarize
from epitomic.visualisation.runs import titles as run_titles
from epitomic.visualisation.style import HEAT, enlarge

Reports = Sequence[RunReport]


def percent(share: float | None, digits: int = 2) -> str:
    """A share as a percentage, or a dash."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"  # noqa: RUF001


def span(counts: Iterable[int]) -> str:
    """Numbers of images that may differ from run to run.

    >>> span([500, 500]), span([500, 60])
    ('500', '60 to 500')
    """
    found = sorted(counts)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def titles(reports: Reports) -> list[str]:
    """A name for each run."""
    return run_titles([report.run for report in reports])


def overview(reports: Reports) -> str:
    """The figures that matter most: tiles for one run, a table for several."""
    notes = "".join(html.note(text) for report in reports for text in report.notes)
    if len(reports) > 1:
        head = ("run", "images", "test error", "validation error", "epochs", "parameters", "time", "seed")
        rows = []
        for title, r in zip(titles(reports), reports, strict=True):
            error, *others = _figures(r)[:5]
            other = _other_test_error(r)
            rows.append((title, r.run.dataset, f"{error} ({other})" if other else error, *others, str(r.run.seed)))
        return notes + html.card("", html.table(head, rows))
    other = _other_test_error(reports[0])
    names = [f"test error ({other})" if other else "test error", "validation error", "epochs", "parameters"]
    names += ["training time", "images per second"]
    tiles = "".join(
        f"<div class=tile><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"
        for name, value in zip(names, _figures(reports[0]), strict=True)
        if value != percent(None)
    )
    return f"{notes}<div class=tiles>{tiles}</div>"


def _figures(report: RunReport) -> tuple[str, ...]:
    run, none = report.run, percent(None)
    results = run.results or {}
    best = results.get("validation_error")  # of the epoch whose weights are kept
    if best is None:
        best = min((row["val_error"] for row in run.metrics if "val_error" in row), default=None)
    done = f"{len(run.metrics)}" + ("" if run.finished else f" of {run.recipe.get('epochs', '?')}")
    seconds = results.get("wall_seconds")
    images = run.metrics[-1].get("step", 0) * float(run.recipe.get("batch_size", 0)) if run.metrics else 0
    return (
        percent(results["test"]["error"] if "test" in results else None),
        percent(best),
        done if run.recipe else none,
        f"{results['parameters']:,}" if "parameters" in results else none,
        duration(seconds) if seconds else none,
        f"{images / seconds:,.0f}" if seconds and images else none,
    )


def _other_test_error(report: RunReport) -> str:
    """The figure without averaged views or crops, if the test error is with them."""
    results = report.run.results or {}
    return ", ".join(f"{name}: {percent(results[way]['error'])}" for way, name in OTHER_WAYS.items() if way in results)


def convergence(reports: Reports) -> str:
    """Curves against epochs, and against seconds where the times are known."""
    runs = [report.run for report in reports if report.run.metrics]
    if not runs:
        return ""
    last = "; ".join(f"{c.label}: {percent(float(c.mean[-1]))}" for c in curves(runs))
    alt = f"Line chart of the validation error over the epochs. At the end, {last}."
    chart = html.chart(
        lambda theme, size: curves_figure(runs, theme=theme, size=size), alt, wide=(1100, 400), narrow=(360, 300)
    )
    rows = [
        (title, *(f"{run.metrics[-1][m]:.4f}" if m in run.metrics[-1] else "" for m in METRICS))
        for title, run in zip(run_titles(runs), runs, strict=True)
    ]
    table = html.details("The last epoch in figures", html.table(("", *METRICS.values()), rows))
    lead = "One line a network; where there are several seeds, their mean and a band from the least to the largest."
    return html.section("curves", "Convergence", lead if len(reports) > 1 else "", html.card("", chart, table))


def epitomes(reports: Reports) -> str:
    """The first layers at one scale, and the patches that excite deeper ones."""
    shown = [(title, r) for title, r in zip(titles(reports), reports, strict=True) if r.run.config is not None]
    if not shown:
        return ""
    found = [first_epitomes(report.run.model) for _, report in shown]
    pictures = [mosaic(e, smooth=True) for e in found]
    widest = max(p.shape[1] for p in pictures)
    cards = []
    for (title, report), first, image in zip(shown, found, pictures, strict=True):
        alt = f"Mosaic of the {first.text} of the first layer of {title}."
        tag = html.picture(image, alt, width=f"{100 * image.shape[1] / widest:.2f}%", style="mosaic")
        own = html.figure(tag, first.text + (", normalised by Eq. 3" if first.centred else ""))
        deeper = []
        for patches in report.patches:
            block = patches_picture(patches, columns=4)
            block = enlarge(block, max(1, 48 // patches.patches.shape[-1]))
            tag = html.picture(block, f"Patches that excite {len(patches.units)} units of {patches.name} most.")
            caption = f"Each block: the {patches.patches.shape[1]} patches that excite one unit most."
            deeper.append((short_name(patches.name), html.figure(tag, caption)))
        head = title if len(reports) > 1 else ""
        opened = [html.card(name, part) for name, part in deeper[:1]] if len(reports) == 1 else []
        rest = "".join(html.details(f"What excites {name}", part) for name, part in deeper[len(opened) :])
        cards += [html.card(head or "first layer", own, rest), *opened]
    lead = (
        "What the first layer looks for: zero is mid grey, and each one is stretched to full contrast. Deeper layers "
        "through the patches of test images that excite their units most."
    )
    return html.section("epitomes", "Epitomes and filters", lead, html.grid(cards))


def positions(reports: Reports) -> str:
    """Which of the D x D positions win."""
    cards = []
    for title, report in zip(titles(reports), reports, strict=True):
        for use in report.positions:
            name = short_name(use.name)
            cards.append(html.card(f"{title}: {name}" if len(reports) > 1 else name, _use(use)))
    if not cards:
        return ""
    count = span(report.position_images for report in reports if report.positions)
    lead = (
        f"Every patch matches each epitome at one of its D × D positions. Shares of wins over {count} test images: all "
        "epitomes together, then each on its own, the stronger the colour, the more often. One that never wins is "
        "dead, and red."
    )
    return html.section("positions", "Use of the positions", lead, html.grid(cards, "three"))


def short_name(layer: str) -> str:
    """A layer's name without what all have."""
    return layer.removeprefix("features.")


def _use(use: PositionUse) -> str:
    overall, (height, width) = use.overall.tolist(), use.pool
    top = max(max(row) for row in overall) or 1.0
    cells = []
    for r, row in enumerate(overall):
        line = "".join(
            f'<td style="--v:{HEAT * share / top:.3f}" title="position {r * width + c}">{percent(share, 1)}</td>'
            for c, share in enumerate(row)
        )
        cells.append(f"<tr>{line}</tr>")
    dead, total = int(use.dead.sum()), use.counts.numel()
    words = f"{dead} of {total} positions never win" if dead else f"all {total} positions win"
    count = len(use.counts)
    alt = f"{count} squares of {height} × {width} positions, one an epitome, shaded by how often each wins. {words}."
    image = html.picture(use.picture(columns=min(count, 16), cell=max(2, 16 // width)), alt)
    style = "dead" if dead else "alive"
    return (
        f"<table class=grid><tbody>{''.join(cells)}</tbody></table>"
        f"<p class={style}>{html.escape(words)}</p>{html.figure(image, f'{count} epitomes, each on its own')}"
    )


def matches(reports: Reports) -> str:
    """Images rebuilt from the first layer's winners."""
    cards = []
    for title, report in zip(titles(reports), reports, strict=True):
        if report.rebuilt_from is None:
            continue
        alts = [f"test image of class {report.run.classes[label]}" for label in report.rebuilt_labels]
        rows = [_thumbnails(report.rebuilt_from, alts, None)]
        for rebuilt in report.rebuilt:
            pixels = report.run.to_pixels(rebuilt.image)
            kind = {1: "the best match of each patch", None: "all matches, weighted by response"}.get(
                rebuilt.matches, f"the {rebuilt.matches} best matches of each patch"
            )
            mean = float(rebuilt.error.mean())
            head = f"<p class=lead>From {html.escape(kind)}: mean error {mean:.2f}</p>"
            rows.append(head + _thumbnails(pixels, [f"rebuilt from {kind}"] * len(pixels), rebuilt.error))
        cards.append(html.card(title if len(reports) > 1 else "", *rows))
    body = html.grid(cards)
    lead = (
        "Test images put back together from the first layer's winning filters, with amounts that fit each patch best. "
        "Errors are relative, of what the layer is given: 0 is exact, 1 is no better than mean grey. A layer with mean "
        "and contrast normalisation cannot see the mean of a patch: there it is lent from the original."
    )
    return html.section("matches", "Images rebuilt", lead, body)


def _thumbnails(images: Tensor, alts: Sequence[str], errors: Tensor | None) -> str:
    figures = []
    for number, (image, alt) in enumerate(zip(images, alts, strict=True)):
        values = image.double().numpy() / (255 if errors is None else 1)
        tag = html.picture(to_picture(values), alt, style="pixels")
        figures.append(html.figure(tag, "") if errors is None else html.figure(tag, f"{float(errors[number]):.2f}"))
    return f"<div class=rebuilt>{''.join(figures)}</div>"


def robustness(reports: Reports) -> str:
    """Error against shift."""
    shown = [report for report in reports if report.shifts]
    if not shown:
        return ""
    groups = grouped([report.run for report in shown], [report.shifts for report in shown])
    errors = {name: summarize(rows) for name, rows in groups.items()}
    last = "; ".join(f"{n}: {percent(float(np.mean(v[max(v)])), 1)} at {max(v)} pixels" for n, v in errors.items())
    alt = f"Line charts of the error and of the changed predictions against the shift. Error of {last}."
    chart = html.chart(
        lambda theme, size: robustness_figure(groups, theme=theme, size=size), alt, wide=(1100, 400), narrow=(360, 560)
    )
    shifts = sorted({shift for values in errors.values() for shift in values})  # small images are moved less far
    rows = []
    for name, measured in groups.items():
        for what in ("error", "changed"):
            values = summarize(measured, what)
            cells = (percent(float(np.mean(values[s])) if s in values else None, 1) for s in shifts)
            rows.append((f"{name}, {what}", *cells))
    table = html.details("In figures", html.table(("pixels", *map(str, shifts)), rows))
    lead = (
        f"{span(r.shifts[0].images for r in shown)} test images moved by whole pixels, mean over left, right, up and "
        "down: how many are wrong, and how many are given another class than before."
    )
    return html.section("robustness", "Robustness to shifts", lead, html.card("", chart, table))


def classes(reports: Reports) -> str:
    """Confusion matrices, and recall by class."""
    cards = []
    for title, report in zip(titles(reports), reports, strict=True):
        if report.confusion is None:
            continue
        names = report.run.classes or tuple(map(str, range(len(report.confusion))))
        head = title if len(reports) > 1 else ""
        if len(names) <= LEGIBLE:
            cards.append(html.card(head, _matrix(report.confusion, names)))
        pairs = confused_pairs(report.confusion)
        if pairs:
            rows = [(names[i], names[j], str(n)) for i, j, n in pairs]
            table = html.table(("class", "taken for", "images"), rows)
            cards.append(html.card(f"{head} most frequent confusions".strip(), table))
    lead = "Confusion matrix: a row a class, a column a prediction, and the share of its class that was right."
    return html.section("classes", "Classes", lead, html.grid(cards, "wrapped"))


def _matrix(confusion: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    top = max((n for i, row in enumerate(confusion) for j, n in enumerate(row) if i != j), default=0) or 1
    head = "".join(f'<th scope=col title="{html.escape(n)}">{html.escape(n)}</th>' for n in names)
    lines = []
    for i, row in enumerate(confusion):
        cells = []
        for j, n in enumerate(row):
            if i == j:
                cells.append(f"<td class=same>{n}</td>")
            else:
                cells.append(f'<td style="--v:{HEAT * n / top:.2f}">{n or ""}</td>')
        right = percent(row[i] / sum(row) if sum(row) else None, 1)
        name = html.escape(names[i])
        lines.append(f'<tr><th scope=row title="{name}">{name}</th>{"".join(cells)}<td>{right}</td></tr>')
    top_row = f"<tr><th scope=col></th>{head}<th scope=col>right</th></tr>"
    return (
        f"<div class=scroll><table class=matrix><thead>{top_row}</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def mistakes(reports: Reports) -> str:
    """The worst mistakes, with their images."""
    cards = []
    for title, report in zip(titles(reports), reports, strict=True):
        if report.mistaken is None:
            continue
        names = report.run.classes
        items = [_mistake(m, image, names) for m, image in zip(report.mistakes, report.mistaken, strict=True)]
        of = f" of {report.all_images:,}" if report.images < report.all_images else ""
        words = f"Of {report.images:,}{of} test images." if items else "Not one test image is classified wrongly."
        body = f"<p class=lead>{words}</p><div class=mistakes>{''.join(items)}</div>"
        cards.append(html.card(title if len(reports) > 1 else "", body))
    lead = "The images whose own class was given the lowest probability, and what was thought likely instead."
    return html.section("mistakes", "Worst mistakes", lead, *cards)


def _mistake(mistake: Mistake, image: Tensor, names: Sequence[str]) -> str:
    label, predicted = names[mistake.label], names[mistake.predicted]
    tag = html.picture(to_picture(image.double().numpy() / 255), f"{label}, taken for {predicted}")
    bars = html.bars((names[i], [share], percent(share, 1)) for i, share in mistake.probabilities)
    words = f"{label}, taken for {predicted}"
    return f"<div class=mistake>{tag}<div><p><b>{html.escape(words)}</b></p>{bars}</div></div>"


def times(reports: Reports) -> str:
    """The time of the training, and where a step's time goes."""
    cards = []
    for title, report in zip(titles(reports), reports, strict=True):
        if not report.times:
            continue
        total = sum(t.forward + t.backward for t in report.times)
        most = max(t.forward + t.backward for t in report.times) or 1.0
        rows = [
            (f"{short_name(t.name)}", [t.forward / most, t.backward / most], f"{t.forward + t.backward:.1f} ms")
            for t in report.times
            if (t.forward + t.backward) > 0.004 * total
        ]
        results = report.run.results or {}
        words = f"A batch of {report.batch} images takes {total:.1f} ms."
        if "epoch_seconds" in results:
            trained = f"Training took {duration(results['wall_seconds'])}, {results['epoch_seconds']:.1f} s an epoch. "
            words = trained + words
        key = "<p class=key><i></i> forward <i></i> backward</p>"
        text = f"<p class=lead>{html.escape(words)}</p>"
        cards.append(html.card(title if len(reports) > 1 else "", text, html.bars(rows, style="long"), key))
    lead = "Each layer timed alone when this page was written: medians of 3. Layers below 0.4 % are left out."
    return html.section("time", "Time, and where it goes", lead, html.grid(cards))


def facts(reports: Reports) -> str:
    """What was trained, and how."""
    cards = []
    for title, report in zip(titles(reports), reports, strict=True):
        run = report.run
        machine, versions = run.facts.get("machine", {}), run.facts.get("versions", {})
        rows = [
            ("network", run.model_name),
            ("images", run.dataset),
            ("folder", str(run.folder)),
            ("command", str(run.facts.get("command", ""))),
            ("started", str(run.facts.get("started", ""))),
            ("finished", str(run.facts.get("finished", ""))),
            ("commit", str(run.facts.get("commit") or "")),
            ("machine", ", ".join(f"{k}: {v}" for k, v in machine.items()) if isinstance(machine, dict) else ""),
            ("versions", ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else ""),
        ]
        parts = [html.table(("", ""), [row for row in rows if row[1]], style="facts")]
        if run.recipe:
            recipe = f"<pre>{html.escape(json.dumps(run.recipe, indent=2, ensure_ascii=False))}</pre>"
            parts.append(html.details("The whole recipe", recipe))
        cards.append(html.card(title if len(reports) > 1 else "", *parts))
    return html.section("facts", "What was trained, and how", "", *cards)
