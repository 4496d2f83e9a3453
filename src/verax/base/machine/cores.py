"""How many threads this process should use: what it may run on, its share of time, what is asked.

Three limits, looked at in this order; the smallest counts, the first of equal ones decides. The
cores that it may run on (its affinity mask; where systems have none, the cores there are). The CPU
quota of its cgroup and of those above (version 2's cpu.max, version 1's cpu.cfs_quota_us): with
more threads than that it would be stopped for a part of every period. OMP_NUM_THREADS, which is how
users and schedulers speak to numeric programs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc/self")
VARIABLE = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Limit:
    """At most so many threads, and why, in words."""

    threads: int
    reason: str


def limits() -> list[Limit]:
    """The limits that hold, in the order of the module's docstring; there is at least the first."""
    candidates = [_cores(), _quota(), _openmp_limit()]
    return [limit for limit in candidates if limit is not None]


def deciding() -> Limit:
    """The limit that counts: how many threads to use unless a number is given explicitly."""
    return min(limits(), key=lambda limit: limit.threads)


def available_cores() -> int:
    """Cores that this process may run on."""
    return _cores().threads


def _cores() -> Limit:
    if hasattr(os, "sched_getaffinity"):  # macOS and Windows have no such mask
        return Limit(max(1, len(os.sched_getaffinity(0))), "cores that this process may run on")
    return Limit(os.cpu_count() or 1, "cores of this machine")


def _openmp_limit() -> Limit | None:
    """OMP_NUM_THREADS: the first of its numbers, one for each level of nesting. What is no number
    above 0 is no wish, as OpenMP says."""
    text = os.environ.get(VARIABLE, "").partition(",")[0].strip()
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        return None
    return Limit(int(text), VARIABLE)


def _quota() -> Limit | None:
    """Whole cores of the smallest CPU quota, at least 1."""
    shares = [cores for folder in _cgroups() if (cores := _share(folder)) is not None]
    if not shares:
        return None
    share = min(shares)
    return Limit(max(1, int(share)), f"CPU quota of the cgroup: {share:g} cores")


def _share(folder: Path) -> float | None:
    """Cores' worth of time that a cgroup gets: quota by period; None without a quota."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()[:2]
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        share = int(quota) / int(period)  # "max" and -1: none
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def _cgroups() -> list[Path]:
    """Folders of the cgroups that this process is in and of those above, as far as they are seen
    from here (inside of a container the mount may begin anywhere)."""
    try:
        memberships = (PROC / "cgroup").read_text().splitlines()
        mounts = (PROC / "mountinfo").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in memberships:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in mounts:
            head, _, tail = mount.partition(" - ")
            before, after = head.split(), tail.split()
            if len(before) < 5 or len(after) < 3:
                continue
            kind = "cgroup" if controllers else "cgroup2"
            if after[0] != kind or (controllers and "cpu" not in after[2].split(",")):
                continue
            root, mount_point = before[3], Path(_unescaped(before[4]))
            inner = path.removeprefix(root) if root != "/" and path.startswith(root) else path
            folder = mount_point / inner.strip("/")
            folders += [f for f in (folder, *folder.parents) if f.is_relative_to(mount_point)]
    return list(dict.fromkeys(folders))


def _unescaped(text: str) -> str:
    """A path of mountinfo, in which blanks and the like are octal."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text
