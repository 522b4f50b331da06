"""Pictures of answers: an answer becomes a drawing, a drawing a picture or a plotly figure. No analysis here."""

from alltrace.charts.drawing import Axis, Drawing, Heat, Mark, Series
from alltrace.charts.files import FORMATS, check_picture, picture_bytes
from alltrace.charts.plotly import figure
from alltrace.charts.prepare import draw

__all__ = ["FORMATS", "Axis", "Drawing", "Heat", "Mark", "Series", "check_picture", "draw", "figure", "picture_bytes"]
