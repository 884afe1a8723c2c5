"""Nothing that a student writes acts in an instructor's browser, neither in formgrader nor in a feedback page.

Two barriers: `Sanitize` cleans the notebook that is graded, and `markdown2html`, which the course's configuration puts
in place of nbconvert's filter, cleans the HTML of every Markdown cell as it leaves for a page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping
from typing import Any

import nh3
from jinja2 import pass_context
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from grader.classroom.splice import OWN

_TAGS = nh3.ALLOWED_TAGS | {"details", "summary", "section", "mark"}
_ATTRIBUTES = {tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()}
for _tag in ("div", "span", "pre", "code", "table"):
    _ATTRIBUTES.setdefault(_tag, set()).add("class")
_CLASS = re.compile(r"[a-z][a-z0-9]{0,3}|highlight|language-\w+")
_PICTURE = re.compile(
    r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*"
    r"|(?:(?!\.)(?:[\w.-]|%20|%[89A-F][0-9A-F])+(?:/|\.(?:png|jpe?g|gif|webp|svg)\Z))+",
    re.IGNORECASE,
)
"""A picture that is there as data, or a picture's file in the notebook's own folder or below."""

_LINK = re.compile(r"https?://|mailto:|#", re.IGNORECASE)
"""Where a link may lead: elsewhere. On the instructor's own server a page would have the instructor's login."""

_TEX = re.compile(r"\\(?=(?:href|url|class|cssId|style|require|unicode|html\w*|includegraphics)\b)", re.IGNORECASE)
"""TeX commands by which MathJax makes links, styles and element ids."""

_PLAIN_TAG = re.compile(
    r"</?(?:b|i|u|s|em|strong|sub|sup|br|hr|p|code|kbd|mark|details|summary|ul|ol|li|table|thead|tbody|tr|td|th)\s*/?>"
)
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
_SCHEME = re.compile(r"(?:java|vb|live)\s*script\s*:|data\s*:\s*(?!image/)", re.IGNORECASE)
_ATTACHED = re.compile(r"attachment:([^\s()\[\]<>\"']+)")
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SAFE_OUTPUTS = ("text/plain", *_IMAGE_TYPES)
_PASTED = re.compile(rf"(?<=\()data:({'|'.join(_IMAGE_TYPES)});base64,([A-Za-z0-9+/=]+)(?=\))")

_WRITTEN = (OWN, "essay")
"""The roles of cells whose text is the student's."""

MOST_RENDERED = 20_000
"""Characters of a Markdown cell that are rendered: the time that takes grows with their square."""

MOST_RENDERED_IN_ALL = 60_000
"""The same of all cells together that a student wrote in a notebook."""


def clean_html(text: str) -> str:
    """HTML without anything that acts: no scripts, handlers, frames, forms, styles, ids, foreign pictures."""
    cleaned = nh3.clean(
        text,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer nofollow",
    )
    return without_acting_tex(cleaned)


def without_acting_tex(text: str) -> str:
    """`text` without the TeX commands by which MathJax makes links and styles: their backslash stands apart."""
    return _TEX.sub(r"\\ ", text)


def _attribute(_tag: str, name: str, value: str) -> str | None:
    if name == "class":
        return " ".join(word for word in value.split() if _CLASS.fullmatch(word)) or None
    if name == "src":
        return value if _PICTURE.fullmatch(value.strip()) else None
    if name in ("href", "cite"):
        return value if _LINK.match(value.strip()) else None
    return value


def clean_markdown(source: str, attachments: Collection[str] = ()) -> str:
    """Markdown in which only plain tags without attributes are left of HTML; the rest of it is shown as text.

    nbconvert stops at a picture that is not among the `attachments`: such a one is renamed.
    """
    out, last = [], 0
    for found in _PLAIN_TAG.finditer(source):
        out += [_TAG_START.sub("&lt;", source[last : found.start()]), found.group()]
        last = found.end()
    text = "".join([*out, _TAG_START.sub("&lt;", source[last:])])
    text = _ATTACHED.sub(lambda found: found[0] if found[1] in attachments else f"missing-{found[1]}", text)
    return without_acting_tex(_SCHEME.sub("removed:", text))


class _Renderer(IPythonRenderer):
    """Colours Python. Other code is left plain: a Mermaid diagram, or a language whose lexer takes its time."""

    def block_code(self, code: str, info: str | None = None) -> str:
        python = (info or "").split()[:1] in (["python"], ["py"], ["python3"])
        return str(super().block_code(code, "python" if python else None))


@pass_context
def markdown2html(context: Mapping[str, Any], source: str) -> str:
    """nbconvert's filter of that name, cleaned. A cell that is too long, or cannot be rendered, is shown as text."""
    cell = context.get("cell", {})
    try:
        if len(source) > MOST_RENDERED or cell.get("metadata", {}).get("grader", {}).get("long"):
            raise ValueError
        renderer = _Renderer(escape=False, attachments=cell.get("attachments", {}), exclude_anchor_links=True)
        page = clean_html(MarkdownWithMath(renderer=renderer).render(source))
    except Exception:
        note = (
            f"This cell of {len(source):,} characters is shown as text: it is too long, or cannot be rendered. "
            f"Up to {MOST_RENDERED:,} are, and {MOST_RENDERED_IN_ALL:,} of all that a student wrote in a notebook."
        )
        page = f"<p><em>{note}</em></p>\n<pre>{html.escape(source)}</pre>"
    return page.replace("[", "&#91;")  # nbconvert's next filter looks behind each of them for Markdown


class Sanitize(NbGraderPreprocessor):
    """Cleans what a student wrote in Markdown, and any HTML among the outputs. Raw cells become text."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        clean_notebook(nb)
        return nb, resources


def clean_notebook(notebook: Any) -> None:
    """Clean the cells of a spliced notebook in place."""
    left = MOST_RENDERED_IN_ALL
    for cell in notebook["cells"]:
        clean_cell(cell)
        if cell["cell_type"] == "markdown" and (tag := cell["metadata"].get("grader", {})).get("role") in _WRITTEN:
            left -= len(cell["source"])
            if left < 0:
                tag["long"] = True


def clean_cell(cell: Any) -> None:
    """Clean one cell of a spliced notebook in place."""
    if cell["cell_type"] == "code":
        cell["outputs"] = [_clean_output(output) for output in cell.get("outputs", [])]
        return
    role = cell["metadata"].get("grader", {}).get("role")
    if cell["cell_type"] == "raw":  # nbconvert passes these into the page as they are
        cell["cell_type"] = "markdown"
        cell["source"] = "\n".join("    " + line for line in cell["source"].split("\n"))
        role = OWN
    if "attachments" in cell:
        cell["attachments"] = _clean_attachments(cell["attachments"])
    if role in _WRITTEN:
        _attach_pasted(cell)
        cell["source"] = clean_markdown(cell["source"], cell.get("attachments", {}))


def _attach_pasted(cell: Any) -> None:
    """A picture in the middle of the text (Colab puts them there) becomes an attachment, as JupyterLab has it."""

    def attach(found: re.Match[str]) -> str:
        name = f"pasted-{len(attachments) + 1}"
        attachments[name] = {found[1]: found[2]}
        return f"attachment:{name}"

    attachments: dict[str, dict[str, str]] = {}
    cell["source"] = _PASTED.sub(attach, cell["source"])
    if attachments:
        cell["attachments"] = {**cell.get("attachments", {}), **attachments}


def _clean_attachments(attachments: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    kept: dict[str, dict[str, str]] = {}
    for name, bundle in attachments.items():
        for kind, data in bundle.items() if isinstance(bundle, Mapping) else ():
            if kind in _IMAGE_TYPES and isinstance(data, str) and re.fullmatch(r"[A-Za-z0-9+/=\s]*", data):
                kept[name] = {kind: data}
    return kept


def _clean_output(output: Any) -> Any:
    if output.get("output_type") in ("display_data", "execute_result"):
        data = dict(output.get("data", {}))
        kept = {kind: value for kind, value in data.items() if kind in _SAFE_OUTPUTS}
        if "text/html" in data:
            text = data["text/html"]
            kept["text/html"] = clean_html("".join(text) if isinstance(text, list) else str(text))
        output["data"] = kept
        output["metadata"] = {}
    return output
