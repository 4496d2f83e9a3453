"""What `verax cache` does: the compiled programs that are kept on disk."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from verax.base.caching import FOLDER, SIZE
from verax.base.machine.memory import shown_bytes
from verax.cli.console import can_write, output, write_json
from verax.compiler.artifacts.cache import CERTIFICATE, INTACT, PROGRAM, RECORD, default_cache
from verax.runners.environments.managed import managed_environments, remove_environments


def perform(
    *,
    clear: bool,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.cache`."""
    can_write(json)
    cache = default_cache()
    if cache is None:
        output.print(f"the cache is off ({FOLDER})")
        write_json(json, "verax.cache/1", {"folder": None})
        return
    removed = cache.clear() if clear else 0
    removed_environments = remove_environments() if clear else 0
    entries = cache.entries()
    suffixes = [path.suffix for path, _, _ in entries]
    programs, certificates = suffixes.count(PROGRAM), suffixes.count(CERTIFICATE)
    records = suffixes.count(RECORD) + suffixes.count(INTACT)
    weights = len(suffixes) - programs - certificates - records
    used_bytes = sum(size for _, size, _ in entries)
    environments = managed_environments()
    if clear:
        more = f" and {removed_environments} environments" if removed_environments else ""
        output.print(f"removed {removed} files{more}")
    output.print(
        Text(
            f"{cache.folder}: {programs} programs, {certificates} certificates, {records} "
            f"records of models and {weights} files of weights, {shown_bytes(used_bytes)} of "
            f"{shown_bytes(cache.limit)} ({SIZE})"
        ),
        soft_wrap=True,
    )
    for folder, size in environments:
        output.print(Text(f"{folder}: {shown_bytes(size)}"), soft_wrap=True)
    facts = {
        "folder": str(cache.folder),
        "programs": programs,
        "certificates": certificates,
        "records": records,
        "weights": weights,
        "bytes": used_bytes,
        "limit": cache.limit,
        "removed": removed,
        "environments": {folder.name: size for folder, size in environments},
        "removed_environments": removed_environments,
    }
    write_json(json, "verax.cache/1", facts)
