"""A verdict as HTML for notebooks: the section of its report, with nothing in it that is active."""

from __future__ import annotations

from verax.records.verdict import Verdict
from verax.report.page.build import fragment


def verdict_html(verdict: Verdict) -> str:
    """What `verax report` shows of a verdict, its network as a picture."""
    return fragment(verdict)
