"""Credentials in URLs: in texts, names of captures, and errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from analysis.answers import ANSWERS
from analysis.cli import main
from analysis.diagnosis import run
from analysis.diagnosis.catalog import RULES
from analysis.report import sections
from dissector import CaptureError, open_capture
from dissector.redaction import without_credentials
from tests.captures.recorded import CAPTURES

SIGNATURE = "5f1c-made-up"
URL = f"memory://reader:pass-word@bucket/kafka.pcap.zst?X-Amz-Signature={SIGNATURE}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@h:8081/a?b=c&d=e#f", "https://u:[redacted]@h:8081/a?b=[redacted]&d=[redacted]#f"),
        ("read 'https://h/a?sig=x': no", "read 'https://h/a?sig=[redacted]': no"),
        ("s3://u:p@ss@h/a: s3://h/b?t=u: no", "s3://u:[redacted]@h/a: s3://h/b?t=[redacted]: no"),
        ("https://h/a?sig=a=b/c+d==", "https://h/a?sig=[redacted]"),
        # neither a password nor a parameter
        ("s3://user@h:80/day-?/*.pcap", "s3://user@h:80/day-?/*.pcap"),
        ("hdfs://h/a:b@c", "hdfs://h/a:b@c"),
        ("/a:b@c?d=e", "/a:b@c?d=e"),
    ],
)  # fmt: skip
def test_credentials_of_urls(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    assert without_credentials(shown) == shown


@pytest.fixture
def url() -> str:
    """A capture behind a URL with credentials."""
    system, path = fsspec.core.url_to_fs(URL)
    system.pipe(path, (CAPTURES / "kafka-4-quotas.pcap.zst").read_bytes())
    return URL


COMMANDS = (
    ["summary"], ["diagnose"], ["show", "--format", "json", "--timeline"], ["clients"],
    ["export", "-o", "all/exchanges.csv"], ["report", "-o", "all/page.html"],
    ["cut", "-o", "all/cut.pcapng"],
)  # fmt: skip


def test_commands_show_no_credentials(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # All rules and answers take seconds.
    monkeypatch.setattr(run, "RULES", {"throttling": RULES["throttling"]})
    names = ("throttle", "groups")
    monkeypatch.setattr(sections, "ANSWERS", {name: ANSWERS[name] for name in names})
    Path("all").mkdir()
    for command in COMMANDS:
        assert main([*command, url]) == 0
    assert main(["compare", url, url]) == 0
    assert main(["summary", url.replace("kafka.", "missing.")]) == 1
    output, errors = capfd.readouterr()
    files = [path.read_text("utf-8", "replace") for path in Path("all").iterdir()]
    assert len(files) == 3
    for text in (output, errors, *files):
        assert SIGNATURE not in text
        assert "pass-word" not in text
    assert "memory://reader:[redacted]@bucket" in output
    assert "missing.pcap.zst?X-Amz-Signature=[redacted]" in errors


def test_exceptions_show_no_credentials() -> None:
    with pytest.raises(CaptureError) as caught:
        open_capture(URL.replace("kafka.", "missing."))
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert SIGNATURE not in repr(error)
        assert "reader:[redacted]@bucket" in str(error)
        assert str(error).endswith("[redacted]: No such file or directory")
