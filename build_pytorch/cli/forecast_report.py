"""What `invoke build --dry-run --caches` prints."""

from __future__ import annotations

from build_pytorch.base.console import Screen, counted, visible
from build_pytorch.nix.binary_caches import CacheReport

_MOST = 10  #: compiled dependencies


def print_caches(screen: Screen, found: CacheReport) -> None:
    """Print where dependencies come from, and the most expensive ones that are compiled."""
    parts = [f"{found.present} here"]
    parts += [f"{number} from {visible(url)}" for url, number in found.downloads.items()]
    size = f" ({found.download_gib:.1f} GiB to download)" if found.downloads else ""
    parts += [f"{counted(found.sources, 'source')} from elsewhere"] if found.sources else []
    parts += [f"{len(found.compiled)} compiled"]
    screen.fold("Dependencies: ", ", ".join(parts) + size, "bold")
    for url, why in found.problems.items():
        screen.fold("  ", f"{visible(url)} cannot be asked: {why}", "yellow", indent=6)
    for each in found.compiled[:_MOST]:
        size = f" ({each.source_mib:.0f} MiB of source)" if each.source_mib else ""
        screen.fold("  compiled ", visible(f"{each.name}{size}: {each.reason}"), indent=6)
    if rest := found.compiled[_MOST:]:
        screen.line(f"  and {len(rest)} more; --json has them")
