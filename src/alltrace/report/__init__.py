"""A run in one file, to read and to send: what recipes answer, with pictures. Nothing is computed here."""

from alltrace.report.content import Report, gather
from alltrace.report.markdown import to_markdown
from alltrace.report.notebook import notebook
from alltrace.report.page import to_html

__all__ = ["Report", "gather", "notebook", "to_html", "to_markdown"]
