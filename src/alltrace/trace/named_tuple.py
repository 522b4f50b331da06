"""`NamedTuple`, as `typing` has it, in a tenth of the time that `typing` takes to make such a class.

A command makes fifty of them before it begins to answer, a quarter of a millisecond each: `typing` compiles the annotation of every
field, `collections` the text of a constructor for every class. Here annotations stay the text that they are, and all classes share
one constructor. To a type checker it is the one of `typing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple as NamedTuple

    from typing_extensions import Self
else:
    try:
        from _collections import _tuplegetter as _field
    except ImportError:
        from operator import itemgetter

        def _field(place: int, doc: str) -> property:
            return property(itemgetter(place), doc=doc)

    class _Fields(tuple):
        """What the classes share."""

        __slots__ = ()
        _fields = ()  # without annotations, which would be those of fields
        _field_defaults = {}  # noqa: RUF012

        def __new__(cls, /, *given: Any, **named: Any) -> Self:
            if named or len(given) != len(cls._fields):
                given = _bound(cls, given, named)
            return _new(cls, given)

        @classmethod
        def _make(cls, iterable: Iterable[Any]) -> Self:
            made = _new(cls, iterable)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **named: Any) -> Self:
            made = _new(type(self), [named.pop(name, value) for name, value in zip(self._fields, self, strict=True)])
            if named:
                raise TypeError(f"Got unexpected field names: {list(named)!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    _new = tuple.__new__

    def _bound(cls: type[_Fields], given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The value of each field of what a constructor was given."""
        fields, defaults = cls._fields, cls._field_defaults
        rest = fields[len(given) :]
        try:
            values = given + tuple([named[name] if name in named else defaults[name] for name in rest])
        except KeyError:
            missing = [name for name in rest if name not in named and name not in defaults]
            raise TypeError(f"{cls.__name__} lacks values for {', '.join(map(repr, missing))}") from None
        if named and not named.keys() <= set(rest):
            wrong = ", ".join(repr(name) for name in named if name not in rest)
            raise TypeError(f"{cls.__name__} has no field, or several values, for {wrong}")
        if len(values) > len(fields):
            raise TypeError(f"{cls.__name__} takes {len(fields)} values, {len(values)} were given")
        return values

    class _Maker(type):
        """Makes a class of `_Fields` of a class statement with fields."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if len(bases) != 1 or "__annotations__" not in namespace:
                raise TypeError(f"{name}: expected NamedTuple as the only base, fields, and annotations that are not evaluated")
            fields = tuple(namespace["__annotations__"])
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            late = fields[len(fields) - len(defaults) :]
            if tuple(defaults) != late:
                raise TypeError(f"{name}: a field without a default follows one that has one")
            facts = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "__slots__": ()}
            getters = {field: _field(place, f"Alias for field number {place}") for place, field in enumerate(fields)}
            return type.__new__(type, name, (_Fields,), {**namespace, **facts, **getters})

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {"__doc__": "See `typing.NamedTuple`."})
