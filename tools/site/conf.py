"""Sphinx's settings for the site. `tools/make_site.py` builds it."""

project = "alltrace"
author = "The alltrace authors"
copyright = "The alltrace authors"  # noqa: A001
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "alltrace"
html_show_sphinx = False
html_copy_source = False
exclude_patterns = ["requirements.txt"]
# Markdown as GitHub reads it: the same pages, the same anchors
myst_heading_anchors = 4
myst_enable_extensions: list[str] = []
suppress_warnings = ["misc.highlighting_failure"]
