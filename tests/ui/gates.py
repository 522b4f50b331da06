"""Stops the server at a place until a test has looked."""

import importlib
import threading


class Gate:
    """Holds a thread at a place until the test lets it go on."""

    def __init__(self):
        self._there, self._go = threading.Event(), threading.Event()

    def reached(self):
        assert self._there.wait(30)

    def open(self):
        self._go.set()

    def pass_(self):
        self._there.set()
        assert self._go.wait(30)


def hold(monkeypatch, name, gate):
    """Let what is called by this name wait at a gate first."""
    module, _, function = name.rpartition(".")
    real = getattr(importlib.import_module(module), function)

    def held(*given, **named):
        gate.pass_()
        return real(*given, **named)

    monkeypatch.setattr(name, held)
