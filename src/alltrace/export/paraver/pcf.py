"""The .pcf file, as written: values for labels, and its text."""

from collections.abc import Iterable, Mapping

from alltrace.readers.paraver import labels as ev


def values_of(labels: Iterable[str], fixed: Mapping[str, int] | None = None, first: int = 1) -> dict[str, int]:
    """A value for each label: the known one, or the next free number in the order of the labels."""
    fixed = fixed or {}
    distinct = set(labels)
    values = {label: fixed[label] for label in distinct if label in fixed}
    taken = set(fixed.values())
    number = first
    for label in sorted(distinct - set(values)):
        while number in taken:
            number += 1
        values[label] = number
        number += 1
    return values


def pcf_text(events: Iterable[ev.EventType], profile: ev.Profile) -> str:
    lines = [
        "DEFAULT_OPTIONS\n", "LEVEL               THREAD", "UNITS               NANOSEC", "LOOK_BACK           100",
        "SPEED               1", "FLAG_ICONS          ENABLED", "NUM_OF_STATE_COLORS 1000", "YMAX_SCALE          37\n",
        "", "DEFAULT_SEMANTIC\n", "THREAD_FUNC         State As Is\n", "", "STATES",
    ]  # fmt: skip
    lines += [f"{n:<4} {label}" for n, (label, _) in sorted(ev.STATES.items())]
    lines += ["", "", "STATES_COLOR"]
    lines += [f"{n:<4} {{{r},{g},{b}}}" for n, (_, (r, g, b)) in sorted(ev.STATES.items())]
    for event in events:
        lines += [
            "",
            "",
            "EVENT_TYPE",
            *(f"0    {n}    {profile.label(label)}" for n, label in sorted(event.types.items())),
        ]
        if event.values:
            of = next(iter(event.types.values()))
            lines += [
                "VALUES",
                *(f"{n:<6} {profile.value_label(of, label)}" for n, label in sorted(event.values.items())),
            ]
        if event.precision:
            lines.append(f"PRECISION {event.precision}")
    return "\n".join([*lines, ""])
