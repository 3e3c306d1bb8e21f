"""How jobs of tests must have ended."""

from __future__ import annotations

import socket

from harness import Result


def assert_success(result: Result) -> None:
    """See that a job ended well by itself, and left nothing behind."""
    assert result.returncode == 0, result
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert "ended without a word" not in result.stderr, result


def assert_ended_by_rank_1(result: Result, status: int, text: str) -> None:
    """See that the second of two ranks ended the job with a status, said why, and that no rank went on."""
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode == status, result
    assert "went on" not in result.stdout, result
    assert "ended without a word" not in result.stderr, result
    tag = f"[rank 1/2 on {socket.gethostname()}] "
    assert [line for line in result.stderr.splitlines() if line.startswith(tag) and text in line], result
