"""Settings of Sphinx. `make site` builds the site; tools/site prepares its source."""

from __future__ import annotations

from sphinx.application import Sphinx

import trueodds
from tools.site import REPOSITORY, docstrings

project = "TrueOdds"
version = release = trueodds.__version__
copyright = "the authors of TrueOdds"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = False

myst_heading_anchors = 6  # the anchors that Git hosts give headings
myst_enable_extensions: list[str] = []

default_role = "code"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in docstrings.ALIASES}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
autosummary_generate = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # a section "Attributes" stands beside the members
napoleon_use_rtype = False
napoleon_use_admonition_for_examples = False

html_theme = "furo"
html_title = f"TrueOdds {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["site"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": [],
    "footer_icons": [],
    "light_css_variables": {
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', Helvetica, Arial, sans-serif",
        "font-stack--monospace": "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    },
}
highlight_language = "none"  # formulas and layouts of ours; code blocks name their language
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    """Connect the hooks that turn our docstrings into pages."""
    docstrings.connect(app)
