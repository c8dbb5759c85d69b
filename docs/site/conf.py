"""The site of the documentation: `make docs`. Its pages are the Markdown that a forge shows as well.

The source folder is the root of the repository, so that the pages' links to source files lead somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx import addnodes

import roundelay

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Roundelay"
author = copyright = "Roundelay developers"  # noqa: A001  Sphinx's name
version = release = roundelay.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/site/index"
include_patterns = [
    "docs/**",
    "*/README.md",
    "tests/flaky.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".venv", "build", "out", "third_party"]

myst_heading_anchors = 4  # as a forge has them
nitpicky = True
# Names of other projects, and of Roundelay's own modules that users do not import.
nitpick_ignore_regex = [("py:.*", r"(?!roundelay\.torch\.\w+$|roundelay\.(errors|algorithms|run)\b).*")]

autodoc_default_options = {"members": True, "member-order": "groupwise"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"Roundelay {version}"
html_show_sphinx = False
html_copy_source = False
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}

_PAGE = re.compile(r"\b(docs/[\w/]+)\.md(#[\w-]+)?")


def link_pages(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Make links of the pages that a docstring names."""
    lines[:] = [_PAGE.sub(r":doc:`/\1`", line) for line in lines]


def leave_folders(app: Sphinx, doctree: nodes.document) -> None:
    """Make plain text of links to folders, which only a forge can show."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link["reftype"] == "myst" and (here / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    """Connect the functions above; Sphinx calls it."""
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("doctree-read", leave_folders)
    app.add_lexer("mermaid", TextLexer)
