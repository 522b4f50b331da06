"""The recipe `longest-kernels`: SQL over one rank's tables, then SQL over the results of the ranks."""

from alltrace.recipes.simple import AnswerColumn, SqlQuestion


class LongestKernels(SqlQuestion):
    """The longest execution of each kernel, over all ranks."""

    name = "longest-kernels"
    tables = {"kernels": ("name", "start", "end")}
    columns = (AnswerColumn("name", None, "kernel"), AnswerColumn("longest_ns", "ns", "its longest execution"))
    map_sql = 'SELECT rank, name, max("end" - start) AS longest_ns FROM kernels GROUP BY ALL'
    reduce_sql = (
        "SELECT text_of(name) AS name, max(longest_ns) AS longest_ns FROM parts GROUP BY ALL ORDER BY 2 DESC, 1"
    )


RECIPE = LongestKernels()
