"""Brings files of the repository into the documentation site, so that links to them work there.

The pages in docs/ link to sources, tests and results by their path in the repository, for example
`[Eq. 2](../src/epitomic/ops/direct.py#match_direct)`. Such a link works as it is where one browses the repository. In
the site, this hook of mkdocs.yml adds a page for each linked file and points the link at it:

- Markdown, such as a table of results, becomes a page of the site;
- code becomes a page with numbered lines, and `#symbol` becomes the line where the symbol is defined;
- pictures and data are copied.

CONTRIBUTING.md, CHANGELOG.md and SECURITY.md become pages as well. `<!-- names: PACKAGE from ORIGIN -->` becomes the
documentation of the names that PACKAGE imports from ORIGIN.
"""

from __future__ import annotations

import ast
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
}
CODE = {".py", ".h", ".cpp", ".toml", ".cff", ".yml", ".txt", ""}
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")  # the target of [text](target) and of ![text](target)
NAMES = re.compile(r"<!-- names: (\S+) from (\S+) -->")
SHORT_CODE = re.compile(r"<code>(?=[^<]{1,24}</code>)")
HREF = re.compile(r'(?<= href=")([^"]+)(?=")')

log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files of the repository that some page links to."""
    from mkdocs.structure.files import File

    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        files.append(File.generated(config, PAGES[name], content=(ROOT / name).read_text()))
    queue = [file for file in files if file.src_uri.endswith((".md", ".ipynb"))]
    while queue:
        page = queue.pop()
        for target in _repository_links(page.content_string, _origin(page.src_uri)):
            uri = site_uri(target)
            if files.get_file_from_path(uri) is not None:
                continue
            if _is_code(target):
                file = File.generated(config, uri, content=_page(target, _highlight(target)))
            elif target.endswith(".md"):
                text = (ROOT / target).read_text().replace("<details>", "<details markdown>")  # with tables in them
                file = File.generated(config, uri, content=_page(target, text))
                queue.append(file)
            else:
                file = File.generated(config, uri, abs_src_path=str(ROOT / target))
            files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to files of the repository at their pages in the site."""
    source = page.file.src_uri
    markdown = NAMES.sub(lambda match: _documented_names(match[1], match[2]), markdown)
    markdown = re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", markdown)  # figures do not break in narrow columns
    markdown = re.sub(r"(?<=\d) \(([\d.]+)-([\d.]+)\)", "\u00a0(\\1\u2011\\2)", markdown)
    markdown = re.sub(r"(?<=\d) x (\d+) px, batch (?=\d)", "\u00a0x\u00a0\\1\u00a0px, batch\u00a0", markdown)
    return LINK.sub(lambda match: _site_link(match[0], source, files) or match[0], markdown)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keeps short names in code on one line. In notebooks, also points links at the site, and drops remote scripts."""
    html = SHORT_CODE.sub('<code class="short">', html)
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    html = re.sub(r"<script[^>]*(?:src=\"https?:|type=\"module\").*?</script>", "", html, flags=re.DOTALL)

    def replace(match: re.Match[str]) -> str:
        link = _site_link(match[0], page.file.src_uri, files) or match[0]
        path, hash_, anchor = link.partition("#")
        local = "://" not in path and path.endswith((".md", ".ipynb"))
        return re.sub(r"\.(md|ipynb)$", ".html", path) + hash_ + anchor if local else link

    return HREF.sub(replace, html)


def site_uri(path: str) -> str:
    """Returns where a file of the repository is in the site's sources, such as `repository/src/epitomic/layers.py.md`.

    Args:
        path: Path of the file in the repository.
    """
    if path in PAGES:
        return PAGES[path]
    return f"repository/{path}.md" if _is_code(path) else f"repository/{path}"


def find_line(path: Path, symbol: str) -> int | None:
    """Returns the line that defines a symbol, or None if the file has no such symbol.

    In Python files a symbol is a function, a class, `Class.method`, a module's variable, or `VARIABLE.key` of a
    dictionary. In other files it is any word: the first line that contains it counts.

    Args:
        path: The file.
        symbol: The symbol's name.
    """
    text = path.read_text()
    if path.suffix == ".py":
        return dict(_definitions(ast.parse(text).body)).get(symbol)
    lines = enumerate(text.splitlines(), start=1)
    return next((number for number, line in lines if re.search(rf"\b{re.escape(symbol)}\b", line)), None)


def _definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node.lineno
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = prefix + ast.unparse(target)
            yield name, node.lineno
            if isinstance(node.value, ast.Dict):
                for key in node.value.keys:
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield f"{name}.{key.value}", key.lineno


def repository_path(target: str, origin: str) -> str | None:
    """Returns which file of the repository, outside docs/, a link leads to; None if it leads to none.

    Args:
        target: The link's target, without `#symbol`.
        origin: Path in the repository of the file that has the link.
    """
    if not target or "://" in target or target.startswith(("#", "/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if path.startswith(("..", "docs/")) or not (ROOT / path).is_file():
        return None
    return path


def _documented_names(package: str, origin: str) -> str:
    """Blocks of mkdocstrings for the names that a package imports from modules of ``origin``."""
    tree = ast.parse((ROOT / "src" / package.replace(".", "/") / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    chosen = [node for node in imports if f"{node.module}.".startswith(f"{origin}.")]
    names = [f"{node.module}.{alias.name}" for node in chosen for alias in node.names if not alias.name.isupper()]
    return "\n".join(f"::: {name}\n    options: {{ show_source: false }}\n" for name in names)


def _repository_links(text: str, origin: str) -> Iterator[str]:
    for target in LINK.findall(text):
        if path := repository_path(target.partition("#")[0], origin):
            yield path


def _site_link(target: str, source: str, files: Files) -> str | None:
    """The link to a repository's file as a link to its page; None if it is no such link."""
    origin = _origin(source)
    path, _, symbol = target.partition("#")
    file = repository_path(path, origin)
    if file is None:
        if origin.startswith("docs/") or not path or "://" in path:
            return None
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))  # such as docs/results.md
        if not inside.startswith("docs/"):
            return None
        return posixpath.relpath(inside[5:], posixpath.dirname(source) or ".") + target[len(path) :]
    link = posixpath.relpath(site_uri(file), posixpath.dirname(source) or ".")
    if not symbol:
        return link
    if not _is_code(file):
        return f"{link}#{symbol}"
    line = find_line(ROOT / file, symbol)
    if line is None:
        log.warning("%s links to %s#%s: the file does not define %s", source, file, symbol, symbol)
        return link
    return f"{link}#L-{line}"


def _origin(uri: str) -> str:
    """Path in the repository of a page of the site."""
    back = {page: name for name, page in PAGES.items() if page != "index.md"}
    return back.get(uri) or (uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}")


def _is_code(path: str) -> bool:
    return PurePosixPath(path).suffix in CODE


def _page(path: str, content: str) -> str:
    """Markdown of a page that shows a file. The search leaves it out, so that it finds the documentation first."""
    return f"---\ntitle: {path}\nhide: [toc]\nsearch: {{ exclude: true }}\n---\n\n# {path}\n\n{content}"


def _highlight(path: str) -> str:
    """HTML of a file with numbered lines. Line 12 has the anchor `L-12`."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer: Any = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(linenos="inline", linespans="L", cssclass="highlight repository-file")
    return str(highlight((ROOT / path).read_text(), lexer, formatter))
