"""Faults of a PyTorch that the smoke tests must notice, and missing parts that they must skip.

    python tests/smoke_faults.py [cpu] [cuda] [torchvision] [torchaudio] > faults.json

Run it with a Python that has torch, and the companions that are named. Each fault is put into
torch in a process of its own, then one test runs. Exit code 0: every test noticed its fault.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(__file__).parents[1] / "build_pytorch/smoke/script.py"


class Fault(NamedTuple):
    """A change of torch, the test that must notice it, and a part of what it must say."""

    device: str
    test: str
    change: str
    outcome: str = "failed"
    says: str = ""


ONE_ELEMENT = """
real = {function}
def wrong(*args, **kwargs):
    got = real(*args, **kwargs).contiguous()
    if args[0].dtype not in (torch.float64, torch.int64):
        got.view(-1)[7] = -got.view(-1)[7]
    return got
{function} = wrong
"""
ATTENTION = """
real = torch.ops.aten._scaled_dot_product_{}
def wrong(*inputs):
    got, *rest = real(*inputs)
    got = got.contiguous()
    got.view(-1)[7] = -got.view(-1)[7]
    return got, *rest
torch.ops.aten._scaled_dot_product_{} = wrong
"""
MATMUL = ONE_ELEMENT.format(function="torch.Tensor.__matmul__")
EXP = ONE_ELEMENT.format(function="torch.exp")
SDPA = ONE_ELEMENT.format(function="torch.nn.functional.scaled_dot_product_attention")
NO_COMPILE = "import torch._dynamo.config\ntorch._dynamo.config.disable = True"
BOTH = (
    ("matmul fp32", MATMUL),
    ("matmul bf16", MATMUL),
    ("matmul fp16", MATMUL),
    ("convolution", ONE_ELEMENT.format(function="torch.nn.functional.conv2d")),
    ("sparse matmul", MATMUL),
    ("elementwise", EXP),
    ("attention bf16", SDPA),
    ("training", "torch.optim.SGD.step = lambda self: None"),
    ("matmul fp32", "torch.set_float32_matmul_precision = None"),
    (
        "fft",
        "real = torch.fft.fft\n"
        "torch.fft.fft = lambda x: real(x) * (1 + 1e-4 * (x.dtype == torch.float32))",
    ),
    ("compile", ONE_ELEMENT.format(function="torch.sqrt")),
)
SOLVE = ONE_ELEMENT.format(function="torch.linalg.solve")
ALWAYS_TF32 = """\
real = torch.set_float32_matmul_precision
torch.set_float32_matmul_precision = lambda name: real('high')"""
UNSCALED = """
real = torch._scaled_mm
def unscaled(a, b, scale_a, scale_b, out_dtype):
    return real(a, b, scale_a=scale_a, scale_b=torch.ones_like(scale_b), out_dtype=out_dtype)
torch._scaled_mm = unscaled
"""
SHIFTED_GROUPS = """
real = torch._grouped_mm
torch._grouped_mm = lambda a, b, offs: real(a, b, offs=(offs - 16).clamp(min=16))
"""
JITERATOR = """
real = torch.cuda.jiterator._create_jit_fn
torch.cuda.jiterator._create_jit_fn = lambda code: real(code.replace({}))
"""
CPU_PROFILER = """
real = torch.profiler.profile
cpu = [torch.profiler.ProfilerActivity.CPU]
torch.profiler.profile = lambda activities: real(activities=cpu)
"""
OTHER_FACTOR = """
real = torch.distributed._make_nccl_premul_sum
torch.distributed._make_nccl_premul_sum = lambda factor: real(factor + 0.5)
"""
NO_CUDNN = "torch.backends.cuda.can_use_cudnn_attention = lambda params: False"
NO_CXX = "script.shutil.which = (lambda name: None)"
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
FAULTS = (
    Fault("cpu", "matmul fp32", TF32),
    Fault("cpu", "matmul fp32", f"{TF32}\ntest = test._replace(tolerance=3e-3)", "passed"),
    *(Fault(device, test, change) for device in ("cpu", "cuda") for test, change in BOTH),
    Fault("cpu", "matmul int8", ONE_ELEMENT.format(function="torch._int_mm")),
    Fault("cpu", "solve", SOLVE),
    Fault("cuda", "solve magma", SOLVE),
    Fault("cuda", "solve cusolver", SOLVE),
    Fault("cuda", "matmul fp32", ALWAYS_TF32),
    Fault("cpu", "flash attention bf16", ATTENTION.replace("{}", "flash_attention_for_cpu")),
    Fault("cuda", "flash attention bf16", ATTENTION.replace("{}", "flash_attention")),
    Fault("cuda", "cudnn attention bf16", ATTENTION.replace("{}", "cudnn_attention")),
    Fault("cpu", "compile", NO_COMPILE),
    Fault("cuda", "compile", NO_COMPILE),
    Fault("cuda", "matmul fp8", ONE_ELEMENT.format(function="torch._scaled_mm")),
    Fault("cuda", "matmul fp8 rowwise", UNSCALED),
    Fault("cuda", "grouped matmul bf16", SHIFTED_GROUPS),
    Fault("cuda", "nvrtc", JITERATOR.format('"+ y", "- y"')),
    Fault("cuda", "nvrtc", JITERATOR.format('"return", "retrun"'), says="retrun"),
    Fault("cuda", "profiler", CPU_PROFILER, says="no kernel was recorded"),
    Fault("cuda", "nccl all-reduce", OTHER_FACTOR),
    Fault("cuda", "cudnn attention bf16", NO_CUDNN, "skipped", "does not use cuDNN"),
    Fault("cpu", "compile", NO_CXX, "skipped", "no C++ compiler"),
)
VISION = "import torchvision, torchvision.ops\n"
AUDIO = "import torchaudio, torchaudio.functional\n"
LESS = """
real = {function}
def less(*args, **kwargs):
    got = real(*args, **kwargs)
    return got[:-1]
{function} = less
"""
SHIFTED = """
real = torchaudio.functional.forced_align
def shifted(*args):
    path, scores = real(*args)
    return path.roll(1, dims=1), scores
torchaudio.functional.forced_align = shifted
"""
BOTH_OF_COMPANIONS = (
    ("torchvision nms", VISION + LESS.format(function="torchvision.ops.nms")),
    ("torchaudio forced_align", AUDIO + SHIFTED),
)
COMPANION_FAULTS = tuple(
    Fault(device, test, change) for device in ("cpu", "cuda") for test, change in BOTH_OF_COMPANIONS
)
RUN = """
import json, sys
sys.path.insert(0, {folder!r})
import script, torch
(test,) = [test for test in script.tests() if test.name == {name!r}]
script.companions.update(torchvision="", torchaudio="")
{change}
print(json.dumps(script.run_test(torch, {device!r}, test)))
"""


def noticed(python: str, fault: Fault) -> dict[str, Any]:
    """Run the test of a fault; the answer has the result and whether it is as it must be."""
    device = "cuda:0" if fault.device == "cuda" else "cpu"
    name = f"{fault.device} {fault.test}"
    code = RUN.format(folder=str(SCRIPT.parent), name=name, change=fault.change, device=device)
    env = {**os.environ, "USE_PYTORCH_KERNEL_CACHE": "0"}
    done = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    result: dict[str, Any]
    last = (done.stdout.strip().splitlines() or ["{}"])[-1]
    result = json.loads(last) if done.returncode == 0 else {"message": done.stderr[-1000:]}
    is_right = result.get("outcome") == fault.outcome and fault.says in result["message"]
    if result.get("error") is not None:
        is_above = result["error"] > result["tolerance"]
        is_right = is_right and is_above == (fault.outcome == "failed")
    return {"test": name, "change": fault.change.strip(), "noticed": is_right, **result}


def main() -> int:
    """Try the faults of torch on the devices, or of companions; print the results as JSON."""
    chosen = sys.argv[1:] or ["cpu", "cuda"]
    devices = [name for name in chosen if name in {"cpu", "cuda"}] or ["cpu", "cuda"]
    faults = [fault for fault in FAULTS if {"cpu", "cuda"}.intersection(chosen)]
    faults += [fault for fault in COMPANION_FAULTS if fault.test.split()[0] in chosen]
    faults = [fault for fault in faults if fault.device in devices]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        results = list(pool.map(partial(noticed, sys.executable), faults))
    missed = sum(not result["noticed"] for result in results)
    print(json.dumps({"faults": len(results), "missed": missed, "results": results}, indent=1))
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
