"""A second process that computes on the same device until it is ended, or until the one that started it has ended."""

from __future__ import annotations

import argparse
import contextlib
import os

import torch

_SIDES = {"cuda": 4096, "cpu": 512}
_PRODUCTS_AT_ONCE = 16


def main() -> None:
    """Say `ready` when the device is in use, and go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(_SIDES), required=True)
    device = parser.parse_args().device
    if device == "cpu":
        torch.set_num_threads(1)
    parent = os.getppid()
    matrix = torch.rand((_SIDES[device], _SIDES[device]), device=device)
    said = False
    with contextlib.suppress(KeyboardInterrupt):  # meant for the process that started this one, which ends it
        while os.getppid() == parent:
            for _ in range(_PRODUCTS_AT_ONCE):
                torch.mm(matrix, matrix)
            if device == "cuda":
                torch.cuda.synchronize()
            if not said:
                print("ready", flush=True)
                said = True


if __name__ == "__main__":
    main()
