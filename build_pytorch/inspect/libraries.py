"""ELF facts of built libraries: completeness, sections, and the owner of each range of code.

Owners are bodies of code that may hold instructions above the CPU ISA of a variant, because they
check the CPU at run time. Most were found in official wheels, the others in PyTorch's sources.

ELF is read with struct: the 546,122 symbols of libtorch_cpu.so 2.15.0 take 0.3 s of CPU time,
with pyelftools 13 s, with LIEF 83 s and 0.9 GiB of memory.
"""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final, Literal, NamedTuple

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.inspection import Findings, PartRun, error, has_libtorch

_HEADER: Final = Layout("<16sHHIQQQIHHHHHH")
"""ELF64, little-endian, as of both platforms (System V ABI, chapters 4 and 5)."""
_SEGMENT: Final = Layout("<IIQQQQQQ")
_SECTION: Final = Layout("<IIQQQQIIQQ")
_SYMBOL: Final = Layout("<IBBHQQ")
_MAGIC: Final = b"\x7fELF\x02\x01"
_PROGBITS, _SYMTAB, _NOBITS, _DYNSYM = 1, 2, 8, 11
_EXECUTABLE: Final = 4
_NOTYPE, _FUNC, _FILE, _IFUNC = 0, 2, 4, 10

Depth = Literal["files", "names", "exported"]
"""files: .symtab with FILE symbols, which name the source of each local function.
names: .symtab without them (strip -S, as Nix does). Most of ATen's kernels have internal linkage
and no capability in their names, but one copy for each capability; of other functions with
internal linkage the compiler flags are unknown.
exported: .dynsym only (strip). Code outside exported functions has no name."""


class Section(NamedTuple):
    """A row of the section header table. `name` is an offset into the names of sections."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class ElfFile(Struct, frozen=True):
    """The headers of an ELF file."""

    path: Path
    machine: int
    sections: tuple[Section, ...]
    section_names: bytes

    def code(self) -> list[Section]:
        """Return the sections that hold instructions, by address."""
        found = (s for s in self.sections if s.type == _PROGBITS and s.flags & _EXECUTABLE)
        return sorted((s for s in found if s.size), key=attrgetter("address"))


def read_elf(path: Path) -> ElfFile:
    """Read the headers of an ELF file and check that nothing they refer to is cut off.

    Raises ToolError with the reason if it is not a complete 64-bit little-endian ELF file.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a FIFO would wait for a writer
            raise ToolError("not a regular file")
        with path.open("rb") as file:
            return _read_headers(path, file, status.st_size)
    except OSError as fault:
        raise ToolError(fault.strerror or "cannot be read") from None


def _read_headers(path: Path, file: BinaryIO, size: int) -> ElfFile:
    head = file.read(_HEADER.size)
    if not head.startswith(_MAGIC):
        raise ToolError("it begins with other bytes" if head else "it is empty")
    if len(head) < _HEADER.size:
        raise ToolError("its header is cut off")
    fields = _HEADER.unpack(head)

    def table(layout: Layout, at: int, count: int, row_size: int) -> Iterator[tuple[int, ...]]:
        if count and (row_size != layout.size or at + count * layout.size > size):
            raise ToolError("its tables are cut off")
        file.seek(at if count else 0)
        return layout.iter_unpack(file.read(count * layout.size))

    segments = table(_SEGMENT, fields[5], fields[10], fields[9])
    sections = tuple(Section(*row) for row in table(_SECTION, fields[6], fields[12], fields[11]))
    ends = [row[2] + row[5] for row in segments]
    ends += [s.offset + s.size for s in sections if s.type != _NOBITS]
    if (needed := max(ends, default=0)) > size:
        raise ToolError(f"{size} bytes of {needed}")
    names = _content(file, sections[fields[13]]) if fields[13] < len(sections) else b""
    return ElfFile(path, fields[2], sections, names)


def _content(file: BinaryIO, section: Section) -> bytes:
    if section.type == _NOBITS:
        return b""
    file.seek(section.offset)
    return file.read(section.size)


def look(run: PartRun) -> Findings:
    """Find the libraries that are not complete ELF files. Only headers are read."""
    run.progress("libraries", 0, 0)
    libraries, folder = run.target.libraries(), run.target.folder
    run.subjects += [library.name for library in libraries]
    if not has_libtorch(folder):
        found = f"not in {folder}, nor in the closure"
        yield error("libtorch_cpu.so", found, "PyTorch's library")
    for library in libraries:
        try:
            read_elf(library)
        except ToolError as fault:
            found = f"not a complete ELF file: {fault}"
            yield error(library.name, found, "a shared library of 64 bits, little-endian")


class Owner(NamedTuple):
    """A body of code that selects its functions at run time.

    `symbol` is searched in mangled names that contain one of the `hints` (20 times as fast as the
    pattern alone), `file` in the names of source files (FILE symbols).
    """

    name: str
    hints: tuple[str, ...]
    symbol: str
    file: str = r"(?!)"


ATEN: Final = "ATen kernels"

OWNERS: Final = (
    # aten/src/ATen/native/cpu is compiled once for each CPU capability, and DispatchStub selects
    # by cpuinfo. DEFAULT is compiled with the variant's flags only and is not exempt.
    Owner(
        ATEN,
        ("AVX", "SVE"),
        r"(?<!\d)(?:4AVX2|6AVX512|11AVX512_VNNI|3SVE|6SVE128|6SVE256)(?=[^a-z])",
        r"\.(?:AVX2|AVX512|AVX512_VNNI|SVE|SVE128|SVE256)\.(?:cpp|cc)$",
    ),
    # fbgemmHasAvx2Support and similar functions select; asmjit generates more at run time.
    Owner(
        "FBGEMM",
        ("fbgemm", "asmjit"),
        "6fbgemm|6asmjit|fbgemm",
        r"^(?:Fbgemm|QuantUtils|Embedding|Transpose|Group|Utils|Fused|Optimized|Sparse|Refe)"
        r".*Avx(?:2|512)\w*\.cc$",
    ),
    # mayiuse() guards each kernel; Xbyak generates most of them at run time.
    Owner("oneDNN", ("dnn", "Xbyak"), "4dnnl|dnnl_|mkldnn|5Xbyak"),
    # One function for each ISA; ATen's kernels call those of their own capability.
    Owner(
        "SLEEF",
        ("Sleef_", "_ZGV", "disp_"),
        "Sleef_|^_ZGV[a-z]|^disp_(?:sin|cos|tan|asin|acos|atan|log|exp|pow|sinh|cosh|tanh|cbrt"
        "|asinh|acosh|atanh|erf|gamma|lgamma|tgamma|hypot|fmod|trunc|floor|ceil|round|rint|next"
        "|fr|ldexp|ilog|fma|sqrt|fabs|copysign|fmax|fmin|fdim|mod|remainder|get)",
        r"^(?:sleefsimd[sd]p\.c|disp(?:avx|sse|scalar)?\w*\.c)$",
    ),
    # Each function has a version for each CPU, selected by MKL's own dispatcher.
    Owner("MKL", ("mkl_", "MKL", "fti", "vml", "vsl"), "^_?(?:mkl_|MKL|[dD]fti|vml|vsl|lapacke)"),
    # These four check cpuinfo, three of them in nnp_initialize, pytorch_qnnp_initialize and
    # XNNPACK's configuration, KleidiAI's callers before each call.
    Owner("NNPACK", ("nnp",), r"^_?nnp_|^nnp\w*__"),
    Owner("QNNPACK", ("qnnp", "pytorch_"), "qnnp|^pytorch_(?:q|x|u|hgemm|sgemm|sconv)"),
    Owner("XNNPACK", ("xnn_",), "^_?xnn_"),
    Owner("KleidiAI", ("kai_",), "^_?kai_"),
    # CPUInfo selects the kernel.
    Owner("Arm Compute Library", ("arm_",), "11arm_compute|8arm_gemm|8arm_conv"),
    # caffe2/perfkernels selects by cpuinfo.
    Owner(
        "Caffe2 kernels",
        ("__avx", "__sve"),
        r"__avx(?:2_fma|2|512|_f16c|)(?:$|[^a-z0-9])|__sve\b",
        r"_(?:avx|avx2|avx512|sve)\.cc$",
    ),
    # -moutline-atomics: each checks __aarch64_have_lse_atomics.
    Owner("libgcc atomics", ("__aarch64_",), "^__aarch64_(?:cas|swp|ld)"),
    Owner("cpuinfo", ("cpuinfo",), "cpuinfo"),
)

_ARCHIVES: Final = {"MKL", "KleidiAI"}
"""Linked as one block: a C function between two of their functions belongs to them."""

COMMON: Final = "common code"
"""C++ without an owner: compiled with the variant's flags."""
FOREIGN: Final = "other C code"
"""A C or Fortran function without an owner."""
UNKNOWN: Final = "unattributed code"
NO_NAME: Final = "(no name)"

_RANKS: Final = {name: n for n, name in enumerate((*(o.name for o in OWNERS), COMMON, FOREIGN))}
"""Of several symbols at one address the one with the lowest rank determines the owner."""
_CLONE: Final = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv|clone|_omp_fn)\b.*$")
_KERNEL: Final = re.compile("2at6native|_GLOBAL__N_1")
"""ATen's namespace, or an anonymous one (Itanium C++ ABI, as gcc and clang mangle it)."""


class CodeRange(NamedTuple):
    """Code of one function, or code without a name. `name` is mangled, `offset` in the file."""

    start: int
    end: int
    offset: int
    owner: str
    name: str


def owner_of(name: str) -> str | None:
    """Return the owner of a function by its mangled name."""
    for owner in OWNERS:
        for hint in owner.hints:
            if hint in name and re.search(owner.symbol, name):
                return owner.name
    return None


def code_ranges(elf: ElfFile) -> tuple[Depth, list[CodeRange]]:
    """Return what the symbols name, and all code divided at its functions, by address.

    Raises OSError. Memory: about 0.5 KiB for each function.
    """
    depth, functions = _functions(elf)
    ranges = []
    for section in elf.code():
        first, end = section.address, section.address + section.size
        rows = [row for row in functions if first <= row[0] < end]
        marks = [(first, UNKNOWN, NO_NAME)]
        for index, (start, last, owner, name) in enumerate(rows):
            marks.append((start, owner, name))
            following = rows[index + 1][0] if index + 1 < len(rows) else end
            if depth == "exported" and last < following:
                marks.append((last, UNKNOWN, NO_NAME))
        for (start, owner, name), (stop, *_) in pairwise([*marks, (end, "", "")]):
            if start < stop:
                offset = section.offset + start - first
                ranges.append(CodeRange(start, stop, offset, owner, name))
    return depth, ranges


def _functions(elf: ElfFile) -> tuple[Depth, list[tuple[int, int, str, str]]]:
    """Return what the symbols name, and start, end, owner and name of each function, by address."""
    found: dict[int, tuple[int, int, str, str]] = {}
    internal: list[tuple[int, str]] = []
    has_files, source_owner = False, None
    for kind, is_internal, start, size, name in _symbols(elf):
        if kind == _FILE:
            has_files = True
            source_owner = next((o.name for o in OWNERS if re.search(o.file, name)), None)
            continue
        owner = owner_of(name) or (source_owner if is_internal else None)
        if owner is None:
            owner = COMMON if name.startswith("_Z") else FOREIGN
            if is_internal and owner == COMMON:
                internal.append((start, name))
        row = (start, start + size, owner, name)
        if (before := found.get(start)) is not None:
            best = min(before, row, key=lambda r: _RANKS[r[2]])
            row = (start, max(row[1], before[1]), *best[2:])
        found[start] = row
    depth: Depth = "files" if has_files else "exported"
    if not has_files and any(section.type == _SYMTAB for section in elf.sections):
        depth = "names"
        copies = Counter(name for _, name in internal)
        for start, name in internal:
            if found[start][2] == COMMON:
                has_copies = copies[name] > 1 or copies[_CLONE.sub("", name)] > 1
                owner = ATEN if has_copies and _KERNEL.search(name) else UNKNOWN
                found[start] = (*found[start][:2], owner, name)
    return depth, _with_archives(sorted(found.values()))


def _symbols(elf: ElfFile) -> Iterator[tuple[int, bool, int, int, str]]:
    """Yield type, internal linkage, address, size and name of FILE symbols and symbols of code."""
    code = {number for number, section in enumerate(elf.sections) if section in elf.code()}
    with elf.path.open("rb") as file:
        for table in elf.sections:
            if table.type not in {_SYMTAB, _DYNSYM} or table.link >= len(elf.sections):
                continue
            names, rows = _content(file, elf.sections[table.link]), _content(file, table)
            whole = len(rows) // _SYMBOL.size * _SYMBOL.size
            for at, info, other, section, value, size in _SYMBOL.iter_unpack(rows[:whole]):
                kind, is_local = info & 15, info >> 4 == 0
                is_function = kind in {_NOTYPE, _FUNC, _IFUNC} and section in code
                if not is_function and not (kind == _FILE and is_local):
                    continue
                name = names[at : names.find(b"\0", at)].decode(errors="replace")
                if name and not name.startswith("$"):  # $x, $d: mapping symbols of aarch64
                    # Hidden functions (STV_HIDDEN) are local too, and not of the last FILE.
                    yield kind, is_local and other & 3 == 0, value, size, name.partition("@")[0]


def _with_archives(rows: list[tuple[int, int, str, str]]) -> list[tuple[int, int, str, str]]:
    """Assign the C functions between two functions of one archive to that archive."""
    before, first = "", 0
    for index, row in enumerate(rows):
        if row[2] == FOREIGN:
            continue
        if row[2] == before and before in _ARCHIVES:
            for number in range(first, index):
                rows[number] = (*rows[number][:2], before, rows[number][3])
        before, first = row[2], index + 1
    return rows
