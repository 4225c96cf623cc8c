"""What of the dependencies of derivations binary caches have, and what would be compiled and why.

Asks for narinfo files, as Nix does ("Binary cache format" in the manual of Nix's HTTP store).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import requests
from urllib3.exceptions import HTTPError

from build_pytorch.base import files
from build_pytorch.nix import derivations, store
from build_pytorch.nix.derivations import StoredDerivation
from build_pytorch.nix.store import NixSettings

_THREADS: Final = 32  #: requests at once; Nix has 25 connections
_SECONDS: Final = 15.0  #: to wait for an answer
_LARGEST: Final = 64 << 10  #: bytes of a narinfo file
_UNFREE: Final = ("developer.download.nvidia.com", "developer.nvidia.com", "yum.repos.intel.com")
"""Hosts of files whose licences let no public cache hand on what is made from them."""

_ARCHITECTURES: Final = re.compile(r"\b(?:compute|sm)_(\d{2,3}[af]?)\b")
_BIG: Final = "big-parallel"  #: system feature that nixpkgs gives to builds that take long

_Graph = Mapping[str, StoredDerivation]


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency that no cache has, and why; `source_mib`: size of its sources, 0 if unknown."""

    name: str
    reason: str
    is_big: bool  #: nixpkgs says that it takes long
    source_mib: float


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where dependencies come from: counts, and what is compiled, the most expensive first."""

    present: int
    downloads: dict[str, int]  #: by cache
    download_gib: float
    sources: int  #: downloaded from their own places
    compiled: list[Compiled]
    problems: dict[str, str]  #: why a cache cannot be asked


class _Narinfo(msgspec.Struct, frozen=True):
    size: int
    download: int
    keys: frozenset[str]


class BinaryCaches:
    """The caches of Nix's settings; what they have is asked once."""

    def __init__(self, settings: NixSettings) -> None:
        self.problems: dict[str, str] = {}
        self.settings = settings
        self._known: dict[tuple[str, str], _Narinfo | None] = {}
        self._trusted = {key.partition(":")[0] for key in settings.public_keys}
        self._session = requests.Session()

    def ask(self, paths: Collection[str]) -> None:
        """Ask each cache for each store path at once."""
        urls = [url for url in self.settings.substituters if url not in self.problems]
        wanted = [(url, path) for url in urls for path in paths if (url, path) not in self._known]
        pool = ThreadPoolExecutor(_THREADS)
        try:
            self._known |= zip(wanted, pool.map(self._narinfo, wanted), strict=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for thousands

    def _narinfo(self, wanted: tuple[str, str]) -> _Narinfo | None:
        url, path = wanted
        if url in self.problems:
            return None
        name = f"{Path(path).name[:32]}.narinfo"
        try:
            text = self._read(url.partition("?")[0].rstrip("/"), name)
            fields = dict(re.findall(r"(?m)^(\w+): (.*)$", text))
            keys = frozenset(re.findall(r"(?m)^Sig: ([^:\s]+):", text))
            return _Narinfo(int(fields["NarSize"]), int(fields.get("FileSize") or 0), keys)
        except FileNotFoundError:
            return None
        except (OSError, HTTPError) as error:  # those of requests are OSErrors
            self.problems.setdefault(url, type(error).__name__)
        except (ValueError, KeyError):
            self.problems.setdefault(url, "answers what is no narinfo file")
        return None

    def _read(self, url: str, name: str) -> str:
        if url.startswith("file://"):
            return files.read_named(Path(urlsplit(url).path, name), _LARGEST).decode()
        with self._session.get(f"{url}/{name}", timeout=_SECONDS, stream=True) as answer:
            if answer.status_code in {403, 404}:  # S3 says 403 for what it has not
                raise FileNotFoundError
            answer.raise_for_status()
            data = answer.raw.read(_LARGEST + 1, decode_content=True)
        if len(data) > _LARGEST:
            raise ValueError
        return str(data, "utf-8")

    def of(self, path: str) -> str:
        """Return the first cache that has a store path with a trusted signature, or nothing."""
        for url in self.settings.substituters:
            found = self._known.get((url, path))
            if found and (not self.settings.require_sigs or found.keys & self._trusted):
                return url
        return ""

    def downloaded(self, path: str, url: str) -> int:
        """Return the bytes of the compressed file."""
        found = self._known.get((url, path))
        return found.download if found else 0

    def untrusted(self, path: str) -> str:
        """Return the name of the key of a cache that has a path and is not trusted here."""
        found = (self._known.get((url, path)) for url in self.settings.substituters)
        return next((min(f.keys, default="nobody") for f in found if f), "")

    def size(self, path: str) -> int:
        """Return the bytes of a store path that a cache has; 0 if none has."""
        found = (self._known.get((url, path)) for url in self.settings.substituters)
        return next((f.size for f in found if f), 0)


def report(targets: Sequence[str], settings: NixSettings) -> CacheReport:
    """Return where the dependencies of derivations in the store come from.

    What a cache has needs nothing else. Raises ToolError.
    """
    graph = derivations.read(targets, recursive=True)
    caches = BinaryCaches(settings)
    here = 0
    sources: list[str] = []
    built: list[str] = []
    downloads: dict[str, str] = {}  # path, cache
    seen = set(targets)
    level = _inputs(graph, targets, seen)
    while level:
        paths = {drv: graph[drv].paths(names) for drv, names in level.items()}
        there = store.valid_paths([path for several in paths.values() for path in several])
        rest = {drv: several for drv, several in paths.items() if not there.issuperset(several)}
        caches.ask([path for several in rest.values() for path in several])
        here += len(paths) - len(rest)
        missing: list[str] = []
        for drv, several in rest.items():
            found = {path: url for path in several if (url := caches.of(path))}
            if len(found) == len(several):
                downloads |= found
            else:
                (sources if graph[drv].is_source else missing).append(drv)
        built += missing
        level = _inputs(graph, missing, seen)
    size = sum(caches.downloaded(path, url) for path, url in downloads.items())
    number_of = Counter(downloads.values())
    compiled = [_compiled(graph, drv, {*built}, caches, is_known=bool(downloads)) for drv in built]
    compiled.sort(key=lambda each: (not each.is_big, -each.source_mib))
    return CacheReport(
        present=here,
        downloads=dict(number_of),
        download_gib=round(size / (1 << 30), 2),
        sources=len(sources),
        compiled=compiled,
        problems=caches.problems,
    )


def _inputs(graph: _Graph, drvs: Iterable[str], seen: set[str]) -> dict[str, list[str]]:
    """Return the inputs of derivations that were not seen before, with the outputs needed."""
    found = {path: names for drv in drvs for path, names in graph[drv].inputs() if path not in seen}
    seen.update(found)
    return found


def _compiled(
    graph: _Graph, path: str, built: set[str], caches: BinaryCaches, *, is_known: bool
) -> Compiled:
    """Return what is compiled, and why; `is_known`: a cache has something else of the pin."""
    drv = graph[path]
    inputs = [graph[each] for each, _ in drv.inputs()]
    sources = [each for each in inputs if each.is_source]
    urls = " ".join(f"{each.env.get('url', '')} {each.env.get('urls', '')}" for each in sources)
    architectures = sorted(set(_ARCHITECTURES.findall(" ".join(drv.env.values()))))
    needed = next((graph[each].name for each, _ in drv.inputs() if each in built), "")
    key = next(filter(None, map(caches.untrusted, drv.paths())), "")
    if key:
        reason = f"a cache has it, signed with {key}, which is no trusted-public-key here"
    elif any(host in urls for host in _UNFREE):
        reason = "unfree: public caches do not hand it on"
    elif architectures:
        reason = f"for GPU architectures {' '.join(architectures)}, another list than a cache's"
    elif needed:
        reason = f"needs {needed}, which is compiled"
    else:
        reason = "not built by the caches" if is_known else "pin not built by the caches"
    places = [place for each in sources for place in each.paths()]
    size = sum(map(caches.size, places)) or sum(store.sizes(sorted(store.valid_paths(places))))
    return Compiled(
        name=drv.name,
        reason=reason,
        is_big=_BIG in drv.env.get("requiredSystemFeatures", ""),
        source_mib=round(size / (1 << 20), 1),
    )
