"""Reads traces of Perfetto and Chrome as a viewer does."""

from collections import defaultdict

BEGIN, END = 1, 2


def names_of(trace):
    """For each track its parent and its name."""
    found = {}
    for p in trace.packet:
        if p.HasField("track_descriptor"):
            d = p.track_descriptor
            found[d.uuid] = (d.parent_uuid, d.process.process_name or d.thread.thread_name or d.name)
    return found


def path_of(names, uuid):
    """The names of a track's parents and its own."""
    parent, label = names[uuid]
    return f"{path_of(names, parent)}/{label}" if parent else label


def events_of(trace):
    """All slices: track, start, end, and the event that begins it; ends end the last begun of their track."""
    names, stacks, found, last = names_of(trace), defaultdict(list), [], 0
    for p in trace.packet:
        if not p.HasField("track_event"):
            continue
        assert p.timestamp >= last
        last, e = p.timestamp, p.track_event
        assert e.track_uuid in names
        if e.type == BEGIN:
            stacks[e.track_uuid].append((p.timestamp, e))
        elif e.type == END:
            start, begun = stacks[e.track_uuid].pop()
            found.append((e.track_uuid, start, p.timestamp, begun))
    assert not any(stacks.values())
    return found


def slices_of(trace):
    """All slices: track with its parents, start, end, name, flows."""
    names = names_of(trace)
    return [(path_of(names, uuid), start, end, e.name, tuple(e.flow_ids)) for uuid, start, end, e in events_of(trace)]


def arguments_of(event):
    """The arguments of an event of Perfetto."""
    found = {}
    for a in event.debug_annotations:
        many = [v.int_value for v in a.array_values]
        found[a.name] = many or (a.string_value if a.HasField("string_value") else a.int_value)
    return found


def all_nest(slices):
    """Whether of slices (start, end) each two are apart or one holds the other."""
    open_ = []
    for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ and open_[-1] <= start:
            open_.pop()
        if open_ and end > open_[-1]:
            return False
        if end > start:
            open_.append(end)
    return True
