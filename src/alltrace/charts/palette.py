"""The colours of classes, the same on the page, in reports, notebooks and pictures.

Classes that are drawn next to each other (`NEIGHBOURS`) also differ in lightness, for colour-blind readers and for print in grey.
`ui/static/palette.js` has the same for the page.
"""

PALETTE = {
    "compute": "#095f8c",
    "communication": "#cd6d0a",
    "exposed communication": "#df4c29",
    "unclassified": "#f0c64a",
    "copy": "#6dc286",
    "exposed copy": "#6dc286",
    "idle": "#dee3e8",
    "api": "#7d5ba4",
    "ranges": "#3fb0b3",
    "mpi": "#b74c82",
    "host": "#aab065",
}
"""Classes of time and of events."""

DARK = {"idle": "#29343c"}
"""What differs on a dark page."""

SEVERITIES = {"high": "#b72220", "medium": "#d88127", "low": "#c8d3dc"}
"""How grave a finding is."""

NEIGHBOURS = (
    ("compute", "exposed communication", "exposed copy", "idle", "compute"),
    ("compute", "communication", "copy", "idle"),
    ("exposed communication", "idle"),
    ("communication", "idle"),
    ("api", "ranges", "mpi", "host", "api"),
)
"""Classes that are drawn side by side, in this order."""
