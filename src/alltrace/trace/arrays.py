"""Arrow arrays of NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def plain_array(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
    """A `pyarrow.Array` over the memory of whole or fractional numbers; null where they are not `valid`.

    What `pyarrow.array` gives, which first loads NumPy's masked arrays to see that this is none; they load for longer than most
    answers are worked out.
    """
    import numpy as np
    import pyarrow as pa

    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])
