import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows

pytest.importorskip("starlette")
pytest.importorskip("httpx2")

TOKEN = "a-token-that-nobody-guesses"
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def client_of(paths, scratch, *, host="127.0.0.1", ready=True, kernels=None, when_ready=lambda _: None, history=None):
    """A client of the page of these runs, with the token."""
    from starlette.testclient import TestClient

    from alltrace.ui.app import make_app
    from alltrace.ui.session import Session

    sessions = [
        Session(p, scratch / str(n), 1, kernels if n == 0 else None, when_ready, history) for n, p in enumerate(paths)
    ]
    if ready:
        for session in sessions:
            session.prepare()
    app = make_app(sessions, token=TOKEN, host=host, port=8000)
    client = TestClient(app, base_url="http://127.0.0.1:8000", headers={"authorization": f"Bearer {TOKEN}"})
    client.sessions = sessions
    return client


@pytest.fixture
def client(tmp_path, monkeypatch):
    """The page of a run of two ranks, the kernels of one named by an attacker, another name of 300 characters."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    rows = rank_rows()
    rows["kernels"][0] |= {"name": HOSTILE, "short_name": HOSTILE}
    rows["kernels"][2] |= {"name": "k" * 300, "short_name": "k" * 300}
    make_run(tmp_path / "run", {0: rows, 1: rank_rows(5), 2: {}}, missing=(3,), notes=("rank 3: no report",))
    return client_of([tmp_path / "run"], tmp_path / "scratch")


@pytest.fixture(scope="module")
def browser():
    from tests.ui.browser import chromium

    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser, address):
    """A page of what the module serves at `address`, with the token; whatever it complains of fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(60_000)  # each test loads 45 modules anew, 20 s where ten processes share a core
    complaints = []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.goto(f"{address}?token={TOKEN}")
    page.wait_for_selector("body[data-shown=overview]")
    page.base = address
    page.allowed = []
    yield page
    context.close()
    assert [c for c in complaints if not any(a in c for a in page.allowed)] == []
