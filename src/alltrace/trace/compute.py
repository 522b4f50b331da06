"""Arrow's functions on arrays, as `pyarrow.compute` has them, each looked up when it is first used.

`pyarrow.compute` makes a Python function with a signature and a description for each of Arrow's 300 functions when it is loaded,
which takes 30 ms: a tenth of a short command. What lies below it is used where this PyArrow has it as it is known; else
`pyarrow.compute` itself. It is imported as `pc`, and loads nothing until a function is asked for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = {"and_": "and", "or_": "or"}  # words that Python keeps for itself


def __getattr__(name: str) -> Any:
    # not kept as a name of this module: it would hide what Python calls any, sum or filter
    return _function(name)


@lru_cache(None)
def _function(name: str) -> Any:
    try:
        return _light(name)
    except (ImportError, AttributeError, KeyError):
        import pyarrow.compute

        return getattr(pyarrow.compute, name)


def _light(public: str) -> Callable[..., Any]:
    import pyarrow as pa
    from pyarrow import _compute

    # finding out the type of a value, pyarrow looks for what else it could be, and loads it
    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), type(None): pa.null()}
    function = _compute.get_function(_NAMES.get(public, public))
    arity, kind = function.arity, function._doc.options_class  # noqa: SLF001  nothing public says which options it takes
    options_class = getattr(_compute, kind) if kind else None
    if not isinstance(arity, int):
        arity = None

    def call(*arguments: Any, options: Any = None, **settings: Any) -> Any:
        values, more = (arguments, ()) if arity is None else (arguments[:arity], arguments[arity:])
        if any(isinstance(value, _compute.Expression) for value in values) or (options_class is None and (more or settings)):
            import pyarrow.compute

            return getattr(pyarrow.compute, public)(*arguments, **settings)
        if options_class is not None and (more or settings):
            options = options_class(*more, **settings)
        return function.call([pa.scalar(v, kinds[type(v)]) if type(v) in kinds else v for v in values], options)

    return call


def cast(values: Any, target_type: Any, safe: bool = True) -> Any:
    """`values` as another type; `pyarrow.compute.cast`."""
    import pyarrow as pa
    from pyarrow import _compute

    kind = pa.type_for_alias(target_type) if isinstance(target_type, str) else target_type
    return _compute.call_function("cast", [values], _compute.CastOptions.safe(kind) if safe else _compute.CastOptions.unsafe(kind))


def fill_null(values: Any, fill_value: Any) -> Any:
    """`values` with `fill_value`, or those of an array, in the place of nulls; `pyarrow.compute.fill_null`."""
    import pyarrow as pa
    from pyarrow import _compute

    if not isinstance(fill_value, (pa.Scalar, pa.Array, pa.ChunkedArray)):
        fill_value = pa.scalar(fill_value, values.type)
    elif fill_value.type != values.type:
        fill_value = cast(fill_value, values.type)
    return _compute.call_function("coalesce", [values, fill_value])


def take(values: Any, indices: Any, boundscheck: bool = True) -> Any:
    """The values, or rows, at `indices`; `pyarrow.compute.take`."""
    from pyarrow import _compute

    return _compute.call_function("take", [values, indices], _compute.TakeOptions(boundscheck=boundscheck))


def cast_table(table: Any, schema: Any) -> Any:
    """A table whose columns have the types of `schema`; `pyarrow.Table.cast`."""
    import pyarrow as pa

    if table.column_names != schema.names:
        raise ValueError(f"expected columns {schema.names}, got {table.column_names}")
    columns = zip(table.columns, schema, strict=True)
    return pa.table([c if c.type == field.type else cast(c, field.type) for c, field in columns], schema)
