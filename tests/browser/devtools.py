"""A headless Chromium driven through its DevTools protocol: open a page, ask it things, take its picture."""

import base64
import itertools
import pathlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio

QUIET = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--remote-debugging-port=0",
]


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.console: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json()
            if message.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.console.append(str(message["params"]))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str, limit_s: float = 10.0) -> None:
        """Wait until an expression is true."""
        with anyio.fail_after(limit_s):
            while not await self.value(expression):
                await anyio.sleep(0.02)

    async def key(self, name: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    async def picture(self, target: pathlib.Path) -> None:
        answer = await self.call("Page.captureScreenshot", format="png")
        target.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def chromium(url: str, *, width: int = 1000, height: int = 800) -> AsyncIterator[Page]:
    """A browser with one tab on `url`; ended, with its profile, at the end."""
    binary = shutil.which("chromium")
    assert binary
    profile = pathlib.Path(tempfile.mkdtemp(prefix="liken-chromium-"))
    command = [binary, *QUIET, f"--user-data-dir={profile}", f"--window-size={width},{height}", url]
    process = await anyio.open_process(command, stdout=-3, stderr=-3, start_new_session=True)
    try:
        port_file = profile / "DevToolsActivePort"
        with anyio.fail_after(40):
            while not (port_file.exists() and port_file.read_text().count("\n")):
                await anyio.sleep(0.05)
            port = int(port_file.read_text().split()[0])
            async with aiohttp.ClientSession() as session:
                tabs: list[dict[str, Any]] = []
                while not tabs:
                    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                        tabs = [tab for tab in await answer.json(content_type=None) if tab["type"] == "page"]
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket,
        ):
            page = Page(socket)
            await page.call("Page.enable")
            await page.call("Log.enable")
            await page.call("Runtime.enable")
            yield page
    finally:
        process.send_signal(signal.SIGTERM)
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await process.wait()
        if process.returncode is None:
            process.kill()
        shutil.rmtree(profile, ignore_errors=True)
