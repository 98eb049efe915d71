"""What a report says of measured steps."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from ata.torch.agreement import Times  # noqa: E402
from ata.torch.report import Report  # noqa: E402

# In the last step, rank 1 has no samples, so that nobody knows what even shares would have cost.
TIMES = [Times([6, 2], [0.3, 0.4]), Times([7, 1], [0.7, 0.1]), Times([8, 0], [0.4, 0.0])]


def test_it_compares_with_even_shares() -> None:
    report = Report(TIMES, unit=16)
    assert report.seconds == pytest.approx((0.4 + 0.7) / 2)
    assert report.even_seconds == pytest.approx((4 * 0.2 + 4 * 0.1) / 2)
    assert report.samples == [pytest.approx(16 * 6.5), pytest.approx(16 * 1.5)]
    assert report.busy_seconds == [pytest.approx(0.5), pytest.approx(0.25)]
    assert str(report).splitlines() == [
        "rank  samples  busy, s  samples/s",
        "   0    104.0   0.5000      208.0",
        "   1     24.0   0.2500       96.0",
        "2 steps of 0.5500 s; even shares: about 0.6000 s",
    ]


def test_nothing_measured_is_said() -> None:
    for times in ([], TIMES[2:]):
        report = Report(times)
        assert (report.seconds, report.even_seconds, report.samples, report.busy_seconds) == (0.0, 0.0, [], [])
        assert "no step has been measured yet" in str(report)


def test_it_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, times in (("all.png", TIMES), ("none.png", [])):
        Report(times).save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
