"""Pieces of HTML. Whatever is text goes through `escape`; whatever is markup is made here and in `sections`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from epitomic.visualisation.style import DARK, LIGHT, Picture, Theme, data_uri, encode_figure, encode_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars", "card", "chart", "details", "escape", "figure", "grid", "note", "picture", "section", "table"]


def section(key: str, title: str, lead: str, *parts: str) -> str:
    """A section of the page. ``lead`` is text; ``parts`` are markup, and without any there is no section.

    ``key`` is its address in the page and, with a capital letter, its name in the list of sections.
    """
    body = "".join(part for part in parts if part)
    if not body:
        return ""
    words = f"<p class=lead>{escape(lead)}</p>" if lead else ""
    return f'<section id="{escape(key)}"><h2>{escape(title)}</h2>{words}{body}</section>\n'


def card(title: str, *parts: str) -> str:
    """A part of a section with a title of its own."""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    return f"<article>{head}{''.join(parts)}</article>"


def grid(cards: Sequence[str], style: str = "two") -> str:
    """Cards side by side where there is room."""
    return f'<div class="{escape(style)}">{"".join(cards)}</div>' if len(cards) > 1 else "".join(cards)


def details(summary: str, *parts: str) -> str:
    """Something that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary><div class=inside>{''.join(parts)}</div></details>"


def note(text: str) -> str:
    """A remark that should be seen."""
    return f'<p class=note role="note">{escape(text)}</p>'


def picture(image: Picture, alt: str, *, width: str = "", style: str = "") -> str:
    """A picture of pixels, transparent where it has no surface of its own; ``width`` as CSS has it."""
    size = f' style="width:{escape(width)}"' if width else ""
    address = data_uri(encode_picture(image), "png")
    down, over = image.shape[:2]
    return f'<img class="{escape(style)}" src="{address}" alt="{escape(alt)}" width={over} height={down}{size}>'


def figure(content: str, caption: str) -> str:
    """Something with a caption beneath; ``content`` is markup, ``caption`` text."""
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>"


def chart(
    draw: Callable[[Theme, tuple[int, int]], Figure], alt: str, *, wide: tuple[int, int], narrow: tuple[int, int]
) -> str:
    """A chart in four versions, for light and dark and for wide screens and phones; the browser takes one.

    Args:
        draw: Makes the figure from a theme and a size in pixels at 100 an inch.
        alt: What it shows, in words.
        wide: Size on wide screens,
        narrow: and on phones, where the text must not shrink.
    """
    sources = []
    for theme, scheme in ((DARK, "dark"), (LIGHT, "light")):
        for size, width in ((narrow, "(max-width: 640px)"), (wide, "(min-width: 640.02px)")):
            address = data_uri(encode_figure(draw(theme, size), "svg"), "svg")
            sources.append((f"(prefers-color-scheme: {scheme}) and {width}", address))
    tags = "".join(f'<source media="{media}" srcset="{address}">' for media, address in sources[:3])
    return f'<picture class=chart>{tags}<img src="{sources[3][1]}" alt="{escape(alt)}"></picture>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, style: str = "") -> str:
    """A table of text; the first column names the row."""
    top = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in head)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        lines.append(f"<tr><th scope=row>{escape(first)}</th>{cells}</tr>")
    header = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f'<div class=scroll><table class="{escape(style)}">{header}<tbody>{"".join(lines)}</tbody></table></div>'


def bars(rows: Iterable[tuple[str, Sequence[float], str]], *, style: str = "") -> str:
    """Named bars: (name, parts of the bar as shares of its track, text)."""
    lines = []
    for name, shares, text in rows:
        parts = "".join(f'<i style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></i>' for share in shares)
        track = f"<span class=track>{parts}</span>"
        value = f"<span class=value>{escape(text)}</span>"
        label = f'<span class=name title="{escape(name)}">{escape(name)}</span>'
        lines.append(f"<div class=bar>{label}{track}{value}</div>")
    return f'<div class="bars {escape(style)}">{"".join(lines)}</div>'
