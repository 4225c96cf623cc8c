"""Compile the objects of a build of whole.py on a machine with more cores, for its compiler cache.

`pack FOLDER root nvcc`, at any time: writes the compilers and headers that the sandbox shows, as
archives below 64 MB. `pack FOLDER build`, while ninja compiles: stops it (`kill -CONT` continues),
generates the sources that come late, and writes all sources and jobs.json.
`compile FOLDER WORK CORES`, on the other machine, as root, with Python, tar and xz: compiles in
WORK/root, where paths and variables are those of the sandbox, so that the keys are its keys too.
nvcc.tar.xz may come later; from then on, objects for CUDA are compiled first. Objects that
here.txt names, one a line, are left out: the build has them.
`collect WORK FOLDER`: writes what is new in the cache to FOLDER/cache.NN, 64 MB a call. Here,
`cat cache.* | tar -xJ -C CACHE` adds it; its group has to be that of the users that build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ARCHIVES: Final = ("root", "build", "nvcc")
PROGRAMS: Final = """
bash sh dash env rm ccache gcc g++ gcc-14 g++-14 as x86_64-linux-gnu-gcc x86_64-linux-gnu-g++
x86_64-linux-gnu-gcc-14 x86_64-linux-gnu-g++-14 x86_64-linux-gnu-as
"""
CC1PLUS: Final = "usr/libexec/gcc/x86_64-linux-gnu/14/cc1plus"
OTHERS: Final = """
bin lib lib64 sbin usr/lib64 usr/include usr/lib/gcc usr/lib/linux usr/lib/locale/C.utf8
usr/lib/x86_64-linux-gnu/python3-numpy/numpy/_core/include etc/alternatives etc/ld.so.cache
opt/mkl-dev/include opt/cuda/include opt/cuda/lib64 opt/cutlass opt/cudnn-frontend
"""
NVCC: Final = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")
NVCC_DATA: Final = ("bin/nvcc.profile", "bin/crt", "nvvm/libdevice")
NOT_BUILD: Final = ["*.o", "./tmp*", "./source/docs", "./source/test", "./source/benchmarks"]
UNUSED: Final = ("*.a", "usr/include/llvm*", "usr/include/boost", "usr/include/vulkan")
HOOKS: Final = re.compile(r"(?:pre|post)[A-Z]\w*|\w*[bB]uildInputs|NIX_LOG_FD|CCACHE_UMASK")
CHROOT: Final = "/usr/sbin/chroot"
PIECE: Final = 16_000_000  # bytes


def running_ninja() -> tuple[str, Path, dict[str, str]]:
    """Return the process of the ninja that builds, the folder of the build and its variables."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            raw = (process / "environ").read_text()
        except OSError:
            continue
        pairs = (word.split("=", 1) for word in raw.split("\0") if "=" in word)
        variables = {key: value for key, value in pairs if not HOOKS.fullmatch(key)}
        if command[0].endswith(b"/ninja") and variables.get("NIX_BUILD_TOP") == "/build":
            folder = Path(os.environ["BUILD_PYTORCH_WHOLE"]) / "tmp"
            builds = folder.glob(f"nix-build-{variables['name']}.drv-*")
            return process.name, next(builds), variables
    raise SystemExit("elsewhere.py: no build runs ninja")


def stop_and_generate(process: str, ninja: Path) -> None:
    """Stop ninja, and generate torch's sources in its sandbox, which it does late."""
    os.kill(int(process), signal.SIGSTOP)
    commands = re.findall("COMMAND = (.*/generate_code.py .*)", ninja.read_text())
    enter = f"nsenter --target {process} --user --mount --pid --setuid 1000 --setgid 100 bash -c"
    subprocess.run([*enter.split(), commands[0]], check=True, env={"PATH": os.environ["PATH"]})


def libraries(debian: Path, programs: list[str]) -> set[str]:
    """Return the paths of shared libraries that programs load, and of those behind links."""
    argv = [CHROOT, str(debian), "ldd", *(f"/{program}" for program in programs)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    paths = set()
    for found in re.findall(r"(?:=> |^\t)(/\S+)", done.stdout, re.MULTILINE):
        link = debian / found[1:]
        for path in (link, link.parent / link.readlink()) if link.is_symlink() else (link,):
            folder = path.parent.resolve().relative_to(debian)
            paths.add(f"{folder}/{path.name}")
    return paths


def compile_jobs(debian: Path, build: Path) -> list[tuple[str, str]]:
    """Return object and command of everything that ninja compiles, the longest first."""
    copy = debian / "tmp/elsewhere/CMakeFiles"
    copy.mkdir(parents=True, exist_ok=True)
    for name in ("build.ninja", "CMakeFiles/rules.ninja"):
        (copy.parent / name).write_bytes((build / "source/build" / name).read_bytes())
    argv = [CHROOT, str(debian), "ninja", "-C", "/tmp/elsewhere", "-t", "commands", "install"]  # noqa: S108
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    compiles = re.compile(r"\S+/ccache (?=.* -c \S+\.(?:cu|cpp|cc)(?: |$)).* -o (\S+\.o)(?: |$)")
    commands = done.stdout.splitlines()
    jobs = [(found[1], command) for command in commands if (found := compiles.match(command))]

    def rank(job: tuple[str, str]) -> int:
        order = ("flash_attn.*cu.o|Rowwise|Linear.cu|Indexing.cu", ".cu.o", "Register|generated")
        return next((n for n, words in enumerate(order) if re.search(words, job[0])), len(order))

    jobs.reverse()  # the build itself goes from the front
    return sorted(jobs, key=rank)


def pack(folder: Path, names: Sequence[str]) -> None:
    """Write archives of these names, and with that of the build the list of jobs."""
    debian = Path(os.environ["BUILD_PYTORCH_DEBIAN"]).resolve()
    folder.mkdir(exist_ok=True)
    for name in names:
        archive, top = folder / f"{name}.tar.xz", debian
        nvcc = [f"opt/cuda/{path}" for path in NVCC]
        if name == "root":
            programs = [f"usr/bin/{program}" for program in PROGRAMS.split()] + [CC1PLUS]
            found = libraries(debian, programs + nvcc)
            excluded = [f"--exclude={pattern}" for pattern in UNUSED]
            what = [*excluded, *programs, *OTHERS.split(), *sorted(found)]
        elif name == "nvcc":
            what = [*nvcc, *(f"opt/cuda/{path}" for path in NVCC_DATA)]
        else:
            process, top, variables = running_ninja()
            stop_and_generate(process, top / "source/build/build.ninja")
            jobs = compile_jobs(debian, top)
            (folder / "jobs.json").write_text(json.dumps({"variables": variables, "jobs": jobs}))
            print(f"{len(jobs)} jobs")
            store, ninja = Path(variables["NIX_STORE"]), top / "source/build/build.ninja"
            used = set(re.findall(rf"{store}/([\w.+-]+)", ninja.read_text()))
            inputs = [str(store / word)[1:] for word in sorted(used) if "-source" not in word]
            excluded = [f"--exclude={pattern}" for pattern in NOT_BUILD]
            what = [r"--transform=s,^\.,build,S", *excluded, ".", "-C", "/", *inputs]
        argv = ["tar", "-cJf", str(archive), "-C", str(top), *what]
        subprocess.run(argv, check=False, env=os.environ | {"XZ_DEFAULTS": "-6 -T0"})
        print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")


def unpack(folder: Path, work: Path, name: str) -> bool:
    """Unpack an archive once. Return whether it is there."""
    archive, mark = folder / f"{name}.tar.xz", work / f"{name}.unpacked"
    if not mark.exists() and archive.exists():
        subprocess.run(["tar", "-xJf", str(archive), "-C", str(work / "root")], check=True)
        time.sleep(2)  # ccache does not trust files that are as new as the compilation
        mark.touch()
    return mark.exists()


def compile_one(work: Path, job: tuple[str, str], variables: dict[str, str]) -> str:
    """Compile an object. Return it with seconds, CPU seconds, MiB and exit code."""
    name, command = job
    target = work / "root/build/source/build" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    inside = f"cd /build/source/build && {command}"
    argv = [CHROOT, str(work / "root"), "bash", "-c", inside]
    began = time.monotonic()
    with (work / "output.txt").open("ab") as output:
        process = subprocess.Popen(argv, env=variables, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    target.unlink(missing_ok=True)
    cpu = used.ru_utime + used.ru_stime
    return f"{name} {time.monotonic() - began:.1f} {cpu:.1f} {used.ru_maxrss >> 10} {code}"


def prepare(folder: Path, work: Path) -> None:
    """Make WORK/root."""
    for name in ("proc", "dev", "tmp", "ccache"):
        (work / "root" / name).mkdir(parents=True, exist_ok=True)
    if not all([unpack(folder, work, "root"), unpack(folder, work, "build")]):
        raise SystemExit(f"elsewhere.py: {folder} lacks root.tar.xz or build.tar.xz")
    for name in ("proc", "dev"):
        subprocess.run(["mount", "--bind", f"/{name}", str(work / "root" / name)], check=True)


def compile_all(folder: Path, work: Path, cores: int) -> None:
    """Compile all jobs, and write a line for each to done.txt."""
    prepare(folder, work)
    given, here = json.loads((folder / "jobs.json").read_text()), folder / "here.txt"
    # Objects without compression: all in one archive are smaller than each for itself
    ours = {"CCACHE_DIR": "/ccache", "CCACHE_MAXSIZE": "20G", "CCACHE_NOCOMPRESS": "1"}
    variables = given["variables"] | ours
    jobs: list[tuple[str, str]] = given["jobs"]
    lock = threading.Lock()

    def next_job() -> tuple[str, str] | None:
        known = set(here.read_text().split()) if here.exists() else set()
        jobs[:] = (job for job in jobs if job[0] not in known)
        first = 0
        if not unpack(folder, work, "nvcc"):
            first = next((n for n, job in enumerate(jobs) if not job[0].endswith(".cu.o")), 0)
        return jobs.pop(first) if jobs else None

    def compile_some() -> None:
        while True:
            with lock:
                job = next_job()
            if job is None:
                return
            line = compile_one(work, job, variables)
            with lock, (work / "done.txt").open("a") as done:
                print(line, file=done)

    threads = [threading.Thread(target=compile_some) for _ in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def collect(work: Path, folder: Path) -> None:
    """Write what is new in the cache, in pieces that `cat` joins to a tar.xz, four a call."""
    waiting = work / "pieces"
    waiting.mkdir(exist_ok=True)
    if not any(waiting.iterdir()):
        cache, sent = work / "root/ccache", work / "sent.txt"
        known = set(sent.read_text().split()) if sent.exists() else set()
        paths = (path.relative_to(cache) for path in cache.glob("?/?/*[RM]"))
        names = "".join(f"{path}\n" for path in sorted(paths) if str(path) not in known)
        argv = ["sh", "-c", f"tar -c -C {cache} -T - | xz -7 -T0 | split -d -b {PIECE} - cache."]
        subprocess.run(argv, input=names, text=True, cwd=waiting, check=True)
        with sent.open("a") as done:
            done.write(names)
    pieces = sorted(waiting.iterdir())
    for piece in pieces[:4]:
        shutil.move(piece, folder / piece.name)
    shutil.copy(work / "done.txt", folder)
    print(f"{len(pieces[4:])} pieces are left")


def main(argv: Sequence[str]) -> None:
    """Run a command."""
    match argv:
        case ["pack", folder, *names] if names and not set(names) - set(ARCHIVES):
            pack(Path(folder).resolve(), names)
        case ["compile", folder, work, cores]:
            compile_all(Path(folder).resolve(), Path(work).resolve(), int(cores))
        case ["collect", work, folder]:
            collect(Path(work).resolve(), Path(folder).resolve())
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
