"""The server by the client of the official SDK: in memory, over standard input and output, and over HTTP."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import anyio
import pytest
from tests.making import kernel, make_run
from tests.ui.test_hostile_text import HOSTILE, value

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs mcp")


@pytest.fixture(scope="module")
def mcp():
    """The module, which takes seconds to import, so only the tests that are run do."""
    import mcp

    return mcp


@pytest.fixture
def folder(tmp_path):
    make_run(tmp_path / "runs" / "one", {0: {"kernels": [kernel(0, 10, "a"), kernel(20, 25, "b")]}})
    return tmp_path / "runs"


async def converse(client):
    """What every transport has to carry."""
    from alltrace.mcp.server import NAMES

    assert {tool.name for tool in (await client.list_tools()).tools} == set(NAMES)
    opened = await client.call_tool("open", {"path": "one"})
    assert opened.structured_content["rows"][0]["rank"] == 0
    found = await client.call_tool("recipe", {"run": "one", "name": "kernels", "limit": 1})
    assert found.structured_content["rows"][0]["name"] == "a"
    assert found.structured_content["more"].endswith("offset=1")
    refused = await client.call_tool("recipe", {"run": "one", "name": "kernel"})
    assert refused.is_error
    assert "did you mean kernels" in refused.content[0].text
    assert {str(r.uri) for r in (await client.list_resources()).resources} == {
        "alltrace://tables", "alltrace://recipes", "alltrace://kinds",
    }  # fmt: skip
    text = (await client.read_resource("alltrace://tables")).contents[0].text
    assert "kernels: " in text


def test_in_memory(mcp, folder, tmp_path):
    from alltrace.mcp.server import make_server
    from alltrace.mcp.tools import Tools

    async def ask():
        async with mcp.Client(make_server(Tools([folder], tmp_path / "cache"))) as client:
            await converse(client)
            for uri, word in (("alltrace://recipes", "stats:cuda_gpu_kern_sum"), ("alltrace://kinds", "straggler: ")):
                assert word in (await client.read_resource(uri)).contents[0].text
            for name, word in (("breakdown", "exposed_copy_ns (ns): "), ("stats:cuda_gpu_kern_sum", "StdDev (ns): ")):
                assert word in (await client.read_resource(f"alltrace://recipes/{name}")).contents[0].text
            with pytest.raises(mcp.MCPError, match="no-such"):
                await client.read_resource("alltrace://recipes/no-such")
            tool = next(t for t in (await client.list_tools()).tools if t.name == "recipe")
            assert set(tool.input_schema["required"]) == {"run", "name"}

    anyio.run(ask)


@pytest.mark.slow
def test_over_standard_input_and_output(mcp, folder, tmp_path):
    given = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "alltrace.cli.main", "mcp", str(folder), "--cache-dir", str(tmp_path / "cache")],
        env=dict(os.environ),
    )

    async def ask():
        async with mcp.Client(mcp.stdio_client(given)) as client:
            await converse(client)

    anyio.run(ask)


@pytest.fixture
def over_http(folder, tmp_path):
    """The address of a server and the header that it wants; it has to leave nothing behind."""
    command = [
        sys.executable,
        *"-m alltrace.cli.main mcp --http 0".split(),
        str(folder),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            address, token = (server.stderr.readline().strip() for _ in range(2))
            assert address.startswith("http://127.0.0.1:")
            yield address, {"Authorization": token.partition(": ")[2]}
        finally:
            server.terminate()
    assert server.returncode == 128 + signal.SIGTERM
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
def test_over_http_with_the_token_alone(mcp, over_http):
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    address, headers = over_http

    async def ask():
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            mcp.Client(streamable_http_client(address, http_client=http)) as client,
        ):
            await converse(client)

    anyio.run(ask)
    for wrong in ({}, {"Authorization": "Bearer wrong"}):
        assert httpx2.post(address, json={}, headers=wrong).status_code == 403
    for foreign, status in (
        ({"Host": "elsewhere.test"}, 421),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
    ):
        assert httpx2.post(address, json={}, headers=headers | foreign).status_code == status


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_bodies_over_http_break_nothing(mcp, over_http):
    import httpx2

    from alltrace.mcp.server import NAMES

    address, headers = over_http
    draw = random.Random(5)
    arguments = "run path name options ranks steps limit offset query what run_a run_b term".split()
    methods = ["tools/call"] * 8 + ["resources/read", "tools/list", "ping", "completion/complete", *HOSTILE]

    def message(turn):
        given = {name: draw.choice(["one", value(draw)]) for name in draw.sample(arguments, draw.randrange(6))}
        params = {"name": draw.choice([*NAMES, value(draw)]), "arguments": given}
        if draw.random() < 0.1:
            params = draw.choice(
                [value(draw), {"uri": value(draw)}, {"uri": f"alltrace://recipes/{draw.choice(HOSTILE)}"}]
            )
        return {"jsonrpc": "2.0", "id": turn, "method": draw.choice(methods), "params": params}

    accepts = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    with httpx2.Client(headers=headers | accepts, timeout=60) as http:
        begun = http.post(address, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": start})
        http.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
        http.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        for turn in range(1, 1001):
            text = json.dumps(message(turn) if turn % 10 else value(draw))
            found = http.post(address, content=text if turn % 50 else text[:-1])
            assert found.status_code < 500, (text, found.text)
            assert "Traceback" not in found.text
            if turn % 20 == 0:
                begun = time.monotonic()
                answered = http.post(address, json={"jsonrpc": "2.0", "id": f"ping {turn}", "method": "ping"})
                assert (answered.status_code, time.monotonic() - begun < 1) == (200, True)
