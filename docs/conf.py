"""The site: `python -m sphinx -W --keep-going -c docs . build/docs`, with the extra `docs`.

The root of the repository is the source, so that README.md and RESULTS.md are pages too and the
links between documents are the same here and in the repository.
"""

import pbcs_jax

project = "pbcs_jax"
release = version = pbcs_jax.__version__
root_doc = "docs/index"
include_patterns = ["docs/**", "*.md"]
exclude_patterns = [".*", "**/.*", "build", "runs"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nb_execution_mode = "off"  # the outputs are committed; a test executes the notebook
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "code"  # docstrings have single backticks
autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
napoleon_use_ivar = True

html_theme = "furo"
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}  # the root of the site leads to docs/index
html_title = f"pbcs_jax {release}"
html_copy_source = html_show_sourcelink = html_show_copyright = False
