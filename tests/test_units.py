"""Bytes and seconds as text and back."""

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccomm import units
from hpccomm.errors import OptionError
from hpccomm.units import format_bytes, format_seconds, format_us, parse_bytes, rate_gbps

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def test_the_examples_in_the_docstrings_hold():
    result = doctest.testmod(units)
    assert result.attempted and not result.failed


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (32 * 2**20, "32 MiB"),
        (2**30, "1 GiB"),
        (3 * 2**40, "3 TiB"),
        (2**60, "1048576 TiB"),
        (2**60 + 1, "1048576.00 TiB"),
    ],
)
def test_format_bytes(count, text):
    assert format_bytes(count) == text


@given(st.integers(1, 2**62))
def test_a_written_size_is_exact_or_rounded_to_two_decimals(count):
    text = format_bytes(count)
    number, unit = text.split()
    scale = 1024 ** UNITS.index(unit)
    assert 1 <= float(number) < 1024 or unit == "TiB"
    if "." in number:
        assert abs(float(number) - count / scale) <= 0.005 * (1 + 1e-9)
    else:
        assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8", 8),
        ("8b", 8),
        ("64K", 2**16),
        ("64k", 2**16),
        ("64KB", 2**16),
        ("64Ki", 2**16),
        (" 64 KiB ", 2**16),
        ("1.5M", 3 * 2**19),
        ("2GiB", 2**31),
        ("1t", 2**40),
        ("0.5K", 512),
        ("0", 0),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_parse_bytes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "K",
        "8X",
        "8iB",
        "1.3",
        "0.1K",
        "1.00000000000000001T",
        "-1",
        "+1",
        "1e3",
        ".5K",
        "1 2",
        "9" * 400,
        "\u0663",
        "8\u212a",
    ],
)
def test_what_is_no_size_is_refused_and_named(text):
    with pytest.raises(OptionError) as caught:
        parse_bytes(text)
    assert repr(text) in caught.value.asked


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0.004, "0.00"),
        (1.924, "1.92"),
        (9.99, "9.99"),
        (9.996, "10.0"),
        (24.08, "24.1"),
        (999.94, "999.9"),
        (999.96, "1000"),
        (5380.2, "5380"),
        (1234567.0, "1234567"),
        (math.nan, "nan"),
    ],
)
def test_format_us(time_us, text):
    assert format_us(time_us) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.35, "350 ms"),
        (0.9984, "998 ms"),
        (0.9999, "1 s"),
        (1, "1 s"),
        (12.5, "12.5 s"),
        (59.9, "59.9 s"),
        (59.97, "1 min 0 s"),
        (119.6, "2 min 0 s"),
        (200, "3 min 20 s"),
        (1800, "30 min 0 s"),
        (math.inf, "inf s"),
    ],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@given(st.floats(0, 10**6))
def test_no_duration_or_time_is_written_with_an_exponent_above_its_unit(value):
    assert "e+" not in format_seconds(value)
    assert "e" not in format_us(value)


def test_a_rate_is_bytes_over_time_in_powers_of_ten():
    assert rate_gbps(10**9, 1e6) == 1.0
    assert rate_gbps(4096, 2.0) == pytest.approx(4096 / 2e-6 / 1e9)
