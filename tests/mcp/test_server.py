"""The server by the client of the official SDK: in memory, over standard input and output, and over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import anyio
import pytest
from tests.making import kernel, make_run

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


@pytest.mark.slow
def test_over_http_with_the_token_alone(mcp, folder, tmp_path):
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    command = [sys.executable, "-m", "alltrace.cli.main", "mcp", "--http", "0", str(folder), "--cache-dir", str(tmp_path / "cache")]
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            address = server.stderr.readline().strip()
            token = server.stderr.readline().strip().partition(": ")[2]
            assert address.startswith("http://127.0.0.1:")

            async def ask():
                async with (
                    httpx2.AsyncClient(headers={"Authorization": token}) as http,
                    mcp.Client(streamable_http_client(address, http_client=http)) as client,
                ):
                    await converse(client)

            anyio.run(ask)
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert httpx2.post(address, json={}, headers=headers).status_code == 403
            assert httpx2.post(address, json={}, headers={"Authorization": token, "Host": "elsewhere.test"}).status_code == 421
        finally:
            server.terminate()
    assert server.returncode == 128 + signal.SIGTERM
    assert not list((tmp_path / "temporary").iterdir())
