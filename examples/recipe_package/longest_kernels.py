"""The longest execution of each kernel, over all ranks."""

from alltrace.recipes.base import Chart
from alltrace.recipes.sql_recipe import Statements, sql_question
from alltrace.trace import columns as col

QUESTION = sql_question(
    "longest-kernels",
    __doc__,
    (col.text("name", "kernel"), col.ns("longest_ns", "its longest execution")),
    Statements(
        {"kernels": ("name", "start", "end")},
        map='SELECT rank, name, max("end" - start) AS longest_ns FROM kernels GROUP BY ALL',
        reduce="SELECT text_of(name) AS name, max(longest_ns) AS longest_ns FROM parts GROUP BY ALL ORDER BY 2 DESC, 1",
    ),
    chart=Chart("bars", "name", ("longest_ns",)),
)
