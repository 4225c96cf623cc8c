"""Faults of a PyTorch that the smoke tests must notice, and missing parts that they must skip.

    python tests/smoke_faults.py cpu cuda torchvision > faults.json

Run it with a Python that has torch; the words choose tests by their names. Each fault is put into
torch in a process of its own, then one test runs. Exit code 0: every test noticed its fault.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(__file__).parents[1] / "build_pytorch/smoke/script.py"
_TABLE = runpy.run_path(str(SCRIPT))
ROWS = _TABLE["tests"](_TABLE["smoke_tests"].COMPANIONS)


class Fault(NamedTuple):
    """The name of a test, the change of torch that it must notice, and a part of what it says."""

    test: str
    change: str
    outcome: str = "failed"
    says: str = ""


ONE_ELEMENT = """
real = test.call
def wrong(*args):
    got = real(*args).contiguous()
    got.view(-1)[0] = 2 * got.abs().max() + 1
    return got
test = test._replace(call=wrong, reference=test.reference or real)
"""
# 10 bits of mantissa in place of 23, as tensor cores compute unless FP32 is requested.
TF32 = """
real = torch.Tensor.__matmul__
def rounded(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
def tf32(a, b):
    return real(rounded(a), rounded(b)) if a.dtype == torch.float32 else real(a, b)
torch.Tensor.__matmul__ = tf32
"""
JITERATOR = """
real = torch.cuda.jiterator._create_jit_fn
torch.cuda.jiterator._create_jit_fn = lambda code: real(code.replace({}))
"""
CHANGES = {
    "training": """
real = torch.Tensor.backward
torch.Tensor.backward = lambda x: real(x * (1 + 1e-3 * (x.dtype == torch.float32)))
""",
    "fft": """
real = torch.fft.fft
torch.fft.fft = lambda x: real(x) * (1 + 1e-4 * (x.dtype == torch.float32))
""",
    "compile": "import torch._dynamo.config\ntorch._dynamo.config.disable = True",
    "cpu matmul fp32": TF32,
    "cuda matmul fp32": """
real = torch.set_float32_matmul_precision
torch.set_float32_matmul_precision = lambda name: real('high')
""",
    "cuda matmul fp8 rowwise": """
real = torch._scaled_mm
def unscaled(a, b, scale_a, scale_b, out_dtype):
    return real(a, b, scale_a=scale_a, scale_b=torch.ones_like(scale_b), out_dtype=out_dtype)
torch._scaled_mm = unscaled
""",
    "cuda grouped matmul bf16": """
real = torch._grouped_mm
torch._grouped_mm = lambda a, b, offs: real(a, b, offs=(offs - 16).clamp(min=16))
""",
    "cuda nvrtc": JITERATOR.format('"+ y", "- y"'),
    "cuda nccl all-reduce": """
real = torch.distributed._make_nccl_premul_sum
torch.distributed._make_nccl_premul_sum = lambda factor: real(factor + 0.5)
""",
}
"""Changes by the name of a test, or by its end: on both devices."""
CPU_PROFILER = """
real = torch.profiler.profile
cpu = [torch.profiler.ProfilerActivity.CPU]
torch.profiler.profile = lambda activities: real(activities=cpu)
"""
NO_COMPILER = "import shutil\nshutil.which = lambda _: ''"
FAULTS = (
    *(Fault(test.name, ONE_ELEMENT) for test in ROWS if "pairing" not in test.name),
    *(Fault(it.name, CHANGES[key]) for it in ROWS for key in CHANGES
      if key in {it.name, it.name.partition(" ")[2]}),
    Fault("cpu compile", NO_COMPILER, "skipped", "no C++ compiler"),
    Fault("cuda nvrtc", JITERATOR.format('"return", "retrun"'), says="retrun"),
    Fault("cuda profiler", CPU_PROFILER, says="no kernel was recorded"),
)  # fmt: skip
RUN = """
import json, sys, time
sys.path.insert(0, {folder!r})
import script, torch
(test,) = [test for test in script.tests(script.smoke_tests.COMPANIONS) if test.name == {name!r}]
{change}
print(json.dumps(script.tested(torch, test.device, test, time.monotonic() + 250)))
"""


def noticed(python: str, fault: Fault) -> dict[str, Any]:
    """Run the test of a fault; the answer has the result and whether it is as it must be."""
    code = RUN.format(folder=str(SCRIPT.parent), name=fault.test, change=fault.change)
    env = {**os.environ, "USE_PYTORCH_KERNEL_CACHE": "0"}
    done = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    result: dict[str, Any] = {"outcome": "", "message": done.stderr[-1000:]}
    if done.returncode == 0:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    is_right = result["outcome"] == fault.outcome and fault.says in result["message"]
    return {"test": fault.test, "change": fault.change.strip(), "noticed": is_right, **result}


if __name__ == "__main__":
    faults = [it for it in FAULTS if set(sys.argv[1:]).intersection(it.test.split())]
    results = [noticed(sys.executable, fault) for fault in faults]
    print(json.dumps(results, indent=1))
    sys.exit(not all(result["noticed"] for result in results))
