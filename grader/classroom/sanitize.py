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
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from grader.classroom.splice import OWN

_TAGS = nh3.ALLOWED_TAGS | {"details", "summary", "section", "mark"}
_ATTRIBUTES = {tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()}
for _tag in ("div", "span", "pre", "code", "table"):
    _ATTRIBUTES.setdefault(_tag, set()).add("class")
_CLASS = re.compile(r"[a-z][a-z0-9]{0,3}|highlight|jp-Mermaid|mermaid|language-\w+")
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
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
        local = ":" not in value.split("/")[0] and not value.lstrip().startswith(("//", "\\"))
        return value if local or _PICTURE.fullmatch(value.strip()) else None
    if name in ("href", "cite") and value.strip().lower().startswith("data:"):
        return None
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
    text = re.sub(r"(?im)^(\s*(?:`{3,}|~{3,})\s*)mermaid", r"\1text", text)
    text = _ATTACHED.sub(lambda found: found[0] if found[1] in attachments else f"missing-{found[1]}", text)
    return without_acting_tex(_SCHEME.sub("removed:", text))


@pass_context
def markdown2html(context: Mapping[str, Any], source: str) -> str:
    """nbconvert's filter of that name, cleaned. A cell that cannot be rendered is shown as text."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    cell = context.get("cell", {})
    try:
        renderer = IPythonRenderer(escape=False, attachments=cell.get("attachments", {}), exclude_anchor_links=True)
        return clean_html(MarkdownWithMath(renderer=renderer).render(source))
    except Exception:
        return f"<pre>{html.escape(source)}</pre>"


class Sanitize(NbGraderPreprocessor):
    """Cleans what a student wrote in Markdown, and any HTML among the outputs. Raw cells become text."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        clean_cell(cell)
        return cell, resources


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
    if role in (OWN, "essay"):
        cell["source"] = clean_markdown(cell["source"], cell.get("attachments", {}))


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
