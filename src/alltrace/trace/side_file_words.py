"""The file next to a report that lists what a node could not record: its name and its content.

`{"alltrace_capture": 1, "rank": 3, "host": "n1", "role": "actor", "left_out": [{"option": "--gpu-metrics", "reason":
"..."}]}`
"""

import re

SIDE_FILE = ".capture.json"
"""What the name of a report's side file ends with, after the report's own name."""
VERSION_KEY = "alltrace_capture"
NUMBERED = re.compile(r"(_window[0-9]+_steps[0-9]+-[0-9]+|\.[0-9]+)$")
"""What is added to a report's name where a rank has several, all with one side file."""
TABLES = {
    "--gpu-metrics": ("gpu_metrics",),
    "--nic-metrics": ("nic_metrics",),
    "--efa": ("nic_metrics",),
    "--sample": ("samples", "sched"),
}
"""The canonical tables that lack rows where an option was left out."""
ROLE = "ALLTRACE_ROLE"
"""The variable with what a process does in a program of several groups of ranks, such as `actor` or `rollout`."""
