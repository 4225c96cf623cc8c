"""Shared compilation of the sources of PyTorch, as Debian packages them, for two CPU ISAs.

`nox -s bench-sharing` runs it. BUILD_PYTORCH_DEBIAN names a root folder of Debian 13 with the build
dependencies and the source of its package pytorch, made once, as root:

    tests/whole/root.sh /srv/trixie
    export BUILD_PYTORCH_DEBIAN=/srv/trixie BUILD_PYTORCH_OBJECTS=90
    nox -s bench-sharing -- -k pytorch_itself

BUILD_PYTORCH_OBJECTS limits the objects: at most two thirds are of c10, the others of all of ATen.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT
from msgspec import Struct

from build_pytorch.matrix.model import Matrix

DEBIAN: Final = os.environ.get("BUILD_PYTORCH_DEBIAN", "")
OBJECTS: Final = int(os.environ.get("BUILD_PYTORCH_OBJECTS", "120"))
ISAS: Final = ("avx2", "avx512")

pytestmark = [
    pytest.mark.skipif(not DEBIAN, reason="BUILD_PYTORCH_DEBIAN names no root folder of Debian"),
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root"),
]

# What Debian builds for CPUs, without what needs hardware or a network
OPTIONS: Final = """
export LC_ALL=C.UTF-8 PYTORCH_BUILD_VERSION=2.6.0 PYTORCH_BUILD_NUMBER=0
export USE_CUDA=0 USE_ROCM=0 USE_MPI=0 USE_GLOO=0 USE_TENSORPIPE=0 USE_DISTRIBUTED=0 USE_FBGEMM=0
export USE_NNPACK=0 USE_KINETO=0 USE_ITT=0 USE_VULKAN=0 USE_SYSTEM_LIBS=1 USE_MKLDNN=1 USE_XNNPACK=1
export USE_PYTORCH_QNNPACK=1 ONNX_NAMESPACE=onnx USE_LLVM= BUILD_TEST=0
export BLAS=Generic GENERIC_BLAS_LIBRARIES=blas
"""
CONFIGURE: Final = """
rm -rf /build/source
mkdir -p /build
cp -a /src/pytorch-*/ /build/source
cd /build/source
(cd torch/csrc/jit/serialization && flatc --cpp --gen-mutable --scoped-enums mobile_bytecode.fbs)
python3 setup.py build --cmake-only
# The code generators, which the first object of ATen needs
ninja -C build -t targets all |
    sed -n 's/^\\(.*\\.o\\): \\(C\\|CXX\\)_COMPILER__.*/\\1/p' >/build/all
CCACHE_DISABLE=1 ninja -C build "$(grep -m 1 /ATen/ /build/all)"
find build -name '*.o' -delete
"""

# The hooks of nix/sharing.nix: of a seed, of a variant that reads seeds, and of both at the end
HOOKS: Final = """
let
  fake.overrideAttrs = change: change { meta.platforms = [ ]; } // { outPath = "$SEED"; };
  nixpkgs.ccache = "/usr";
  shared = import SHARING {
    recipes.p = fake; plain.p = fake;
    seeds.s = { kind = "cxx"; package = "p"; inherit nixpkgs; };
    seedsOf.p = [ "s" ];
  };
in { seed = shared.s.preBuild; variant = shared.p.preBuild; end = shared.p.postBuild; }
"""


class Debian:
    """The root folder, in which PyTorch is configured once for each ISA and compiled often."""

    def __init__(self, flags: dict[str, str]) -> None:
        self.flags = flags
        text = HOOKS.replace("SHARING", str(PROJECT / "nix/sharing.nix"))
        argv = ["nix-instantiate", "--eval", "--json", "--strict", "-E", text]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        self.hooks: dict[str, str] = json.loads(done.stdout)
        self.objects: list[str] = []

    def shell(self, script: str, **variables: str) -> str:
        """Run a script in the root folder. Return its output."""
        env = {"PATH": "/usr/sbin:/usr/bin", "HOME": "/homeless-shelter", "NIX_BUILD_TOP": "/build"}
        argv = ["chroot", DEBIAN, "bash", "-c", f"set -e -o pipefail\n{script}"]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, env={**env, **variables}
        )
        assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def configure(self, isa: str) -> None:
        flags = f"{self.flags[isa]} -I/usr"
        script = f"{OPTIONS}\n{self.hooks['variant']}\n{CONFIGURE}mv /build/source /build/{isa}"
        key = Path(DEBIAN, f"build/{isa}.key")
        if not key.exists() or key.read_text() != flags + script:
            self.shell(f"rm -rf /build/{isa}\n{script}", CFLAGS=flags, CXXFLAGS=flags, SEED="/none")
            key.write_text(flags + script)
        lines = Path(DEBIAN, "build/all").read_text().split()
        core = [line for line in lines if line.startswith("c10/")][: 2 * OBJECTS // 3]
        aten = [line for line in lines if "/ATen/" in line]
        wanted = max(1, OBJECTS - len(core))
        self.objects = [*core, *aten[:: max(1, len(aten) // wanted)][: OBJECTS - len(core)]]

    def compile(self, name: str, isa: str, hook: str, **variables: str) -> Compiled:
        """Compile the objects with a hook before, at the path that all builds in Nix have."""
        Path(DEBIAN, "build/objects").write_text("\n".join(self.objects))
        script = f"""
rm -rf /build/source /build/build-pytorch-ccache
cp -a /build/{isa} /build/source
cd /build/source
{self.hooks[hook]}
export CCACHE_REMOTE_STORAGE="${{STORAGE:-$CCACHE_REMOTE_STORAGE}}"
times >/build/times
ninja -C build -j "$(nproc)" $(cat /build/objects) >/dev/null
times >>/build/times
cd build
xargs sha256sum </build/objects
{self.hooks["end"]}
"""
        output = self.shell(script, **variables)
        _, before, _, after = (
            sum(60 * int(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", line))
            for line in Path(DEBIAN, "build/times").read_text().splitlines()
        )
        found = re.search(r"compiler cache: (\d+) hits, (\d+) misses", output)
        assert found, output[-2000:]
        lines = [line.split() for line in output.splitlines() if line.endswith(".o")]
        result = Compiled(
            hits=int(found[1]),
            misses=int(found[2]),
            seconds=after - before,
            objects={words[1]: words[0] for words in lines if len(words) == 2},
        )
        print(f"{name}: {found[0]}, {result.seconds:.1f} s of CPU time", flush=True)
        return result


class Compiled(Struct, frozen=True):
    """What became of one compilation: `seconds` of CPU time, digests of `objects` by name."""

    hits: int
    misses: int
    seconds: float
    objects: dict[str, str]


def test_pytorch_itself(matrix: Matrix) -> None:
    """Objects from a seed are those of a build without ccache, and cost next to nothing."""
    debian = Debian({isa: " ".join(matrix.cpus[isa].flags) for isa in ISAS})
    for isa in ISAS:
        debian.configure(isa)
    count = len(debian.objects)
    one, two = ISAS
    seeds = {isa: f"/seeds/{isa}" for isa in ISAS}
    debian.shell("rm -rf /seeds; mkdir /seeds")
    plain = debian.compile(f"{one} without ccache", one, "seed", out="/none", CCACHE_DISABLE="1")
    seed = debian.compile(f"seed of {one}", one, "seed", out=seeds[one])
    assert (seed.hits, seed.misses) == (0, count)
    own = debian.compile(f"{one} from its seed", one, "variant", SEED=seeds[one])
    assert (own.hits, own.misses) == (count, 0)
    assert own.objects == plain.objects
    storage = f"file:{seeds[one]}|read-only file:{seeds[two]}"
    other = debian.compile(f"{two} from the seed of {one}", two, "seed", STORAGE=storage, out="/no")
    assert other.hits <= count // 20
    last = debian.compile(f"{two} from its seed", two, "variant", SEED=seeds[two])
    assert (last.hits, last.misses) == (count, 0)
    assert last.objects == other.objects
    different = {name for name in own.objects if own.objects[name] != last.objects[name]}
    print(json.dumps({"objects": count, "differ between ISAs": len(different)}))
    assert own.seconds < plain.seconds / 5
