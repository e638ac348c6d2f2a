import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from liken import log


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    handlers, level, raises = logging.root.handlers[:], logging.root.level, logging.raiseExceptions
    yield
    structlog.reset_defaults()
    logging.root.handlers[:], logging.raiseExceptions = handlers, raises
    logging.root.setLevel(level)


def lines(form: str, **values: object) -> list[str]:
    out = io.StringIO()
    log.configure(form=form, stream=out)
    structlog.get_logger("liken.test").info("device.appeared", **values)
    return out.getvalue().splitlines()


def test_a_json_line_is_one_object_with_event_level_and_time() -> None:
    (text,) = lines("json", device="usb-2-1-1-0", nodes=["/dev/ttyUSB0"])
    said = json.loads(text)
    assert said["event"] == "device.appeared"
    assert said["level"] == "info"
    assert said["nodes"] == ["/dev/ttyUSB0"]
    assert said["timestamp"].endswith("Z")


def test_printable_text_stays_as_it_is() -> None:
    assert log.plain("Müller GmbH 日本 [x]") == "Müller GmbH 日本 [x]"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\nlevel=error", "a\\nlevel=error"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202egnp", "\\u202egnp"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\xff"),
        ("\ufffe", "\\ufffe"),
        ("\U000e0001", "\\U000e0001"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
    ],
)
def test_what_is_not_shown_as_itself_is_escaped(hostile: str, shown: str) -> None:
    assert log.plain(hostile) == shown


@settings(max_examples=100, deadline=None)
@given(hostile=st.text(max_size=60), form=st.sampled_from(["json", "console"]))
def test_no_value_can_begin_a_line_of_its_own(hostile: str, form: str) -> None:
    written = lines(form, name=hostile, nested={"list": [hostile], hostile: 1}, error=ValueError(hostile))
    assert len(written) == 1
    assert written[0].isprintable()


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_secret_is_never_rendered(form: str) -> None:
    (text,) = lines(form, token="s3cr3t", headers={"Authorization": "Bearer s3cr3t"}, client_key=b"s3cr3t")
    assert "s3cr3t" not in text
    assert log.HIDDEN in text


def test_lines_below_the_level_are_left_out() -> None:
    out = io.StringIO()
    log.configure(form="json", level="warning", stream=out)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(text)["event"] for text in out.getvalue().splitlines()] == ["loud"]


def test_the_standard_librarys_loggers_take_the_same_way() -> None:
    out = io.StringIO()
    log.configure(form="json", stream=out)
    logging.getLogger("asyncio").warning("task %s\nforged", "\x1b[31m")
    (text,) = out.getvalue().splitlines()
    assert json.loads(text)["event"] == "task \\x1b[31m\\nforged"


def test_an_exceptions_trace_stays_on_its_line() -> None:
    out = io.StringIO()
    log.configure(form="console", stream=out)
    try:
        int("first\nsecond")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert len(out.getvalue().splitlines()) == 1


def test_a_stream_nobody_reads_any_more_does_not_end_the_daemon() -> None:
    out = io.StringIO()
    log.configure(form="json", stream=out)
    out.close()
    structlog.get_logger().info("nobody.reads")
