"""Generated text in docs: numbers and tables come from the matrix, prose is never touched."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from conftest import PROJECT, Project

from build_pytorch.matrix.model import Matrix

NOTES = "docs/explanation/build-notes-2.10-cuda13.md"


def test_text_outside_the_markers_is_never_touched(project: Project) -> None:
    page = project.root / "README.md"
    before = page.read_text()
    ours = before.replace("## Documentation", "## Our pages  \n\n<!-- mine -->")
    page.write_text(ours)
    project.edit("matrix.toml", 'title = "GPU x86"', 'title = "GPUs"')
    assert project.invoke("phase5").returncode == 0
    after = page.read_text()
    assert "Python 3.13: 36 GPUs, " in after
    assert re.sub(r"(?s)<!-- begin.*?<!-- end", "", after) == re.sub(
        r"(?s)<!-- begin.*?<!-- end", "", ours
    )


def test_new_markers_are_filled_and_half_a_pair_is_refused(project: Project) -> None:
    readme = project.root / "README.md"
    wanted = readme.read_text()
    empty = r"(?s)(<!-- begin generated: [^\n]*\n).*?(\n<!-- end)"
    readme.write_text(re.sub(empty, r"\1\2", wanted))
    assert "44 variants" not in readme.read_text()
    assert project.invoke("phase5").returncode == 0
    assert readme.read_text() == wanted
    for old in ("<!-- end generated: counts -->", "<!-- begin generated: counts"):
        half = wanted.replace(old, "<!-- counts")
        readme.write_text(half)
        done = project.invoke("phase5")
        assert done.returncode == 1
        assert "lacks a marker of counts" in done.stdout
        assert readme.read_text() == half


def test_the_page_of_releases_has_every_variant_and_why_one_is_impossible(
    matrix: Matrix, project: Project
) -> None:
    page = (project.root / "docs/reference/releases.md").read_text()
    groups = {variant.group.title: variant for variant in matrix.variants[::-1]}
    for variant in matrix.variants:
        line, *rows = (
            page.partition(f"- {variant.group.title}, ")[2].partition("\n- ")[0].split("\n")
        )
        first, _, cells = line.rpartition(" on: ")
        gpus, _, isas = cells.rpartition(", each with ")
        assert variant.cpu_key in isas.split(", ")
        assert variant.gpu_label in gpus.split(", ")
        told = [row for row in rows if variant.short_id in re.split(r"[ ,:]+", row)]
        reasons = [row.rpartition(" cannot be built: ")[2] for row in told]
        assert reasons == [variant.impossible] * bool(variant.impossible)
        if variant is groups[variant.group.title]:
            assert first.endswith(f", from `{variant.package}`")


def test_the_notes_have_a_section_for_each_fix_with_its_signature() -> None:
    notes = (PROJECT / NOTES).read_text()
    for signature in (
        "has no member named 'clockRate'",
        "cccl/cuda/std/utility: No such file or directory",
        "TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0",
        "file INSTALL cannot find",
        "PyTorch: CUDA cannot be found.",
    ):
        assert signature in notes
    fixes = [int(number) for number in re.findall(r"(?m)^### (\d)\. ", notes)]
    assert fixes == list(range(1, len(fixes) + 1))


# --- the Flox environment ---


def test_the_flox_manifest_is_what_flox_reads() -> None:
    manifest = tomllib.loads((PROJECT / ".flox/env/manifest.toml").read_text())
    assert manifest["version"] == 1
    assert {"git", "nix-prefetch"} <= set(manifest["install"])
    assert manifest["install"]["python3"]["pkg-path"] == "python313"
    assert all(set(package) == {"pkg-path"} for package in manifest["install"].values())
    assert manifest["options"]["systems"] == ["x86_64-linux", "aarch64-linux"]


def test_the_activation_hook_makes_a_working_environment_once(project: Project) -> None:
    """The hook itself, with pip replaced by a script that records and installs nothing."""
    manifest = tomllib.loads((project.root / ".flox/env/manifest.toml").read_text())
    cache = project.root.parent / "cache"
    cache.mkdir()
    tools = project.root.parent / "tools"
    tools.mkdir()
    (tools / "python3").write_text(
        f'#!/bin/sh\nset -e\n"{sys.executable}" -m venv --without-pip "$3"\n'
        'printf "#!/bin/sh\\necho pip \\"\\$@\\"\\n" > "$3/bin/pip"\nchmod +x "$3/bin/pip"\n'
    )
    (tools / "python3").chmod(0o755)
    script = manifest["hook"]["on-activate"] + '\ncommand -v python; echo "end"'

    def activate() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eu", "-c", script],
            env={
                "PATH": f"{tools}:/usr/bin:/bin",
                "FLOX_ENV_CACHE": str(cache),
                "FLOX_ENV_PROJECT": str(project.root),
            },
            capture_output=True,
            text=True,
            check=True,
        )

    first = activate()
    assert f"pip install --quiet --editable {project.root}" in first.stdout
    assert f"{cache}/venv/bin/python\nend" in first.stdout
    assert "pip install" not in activate().stdout
    (project.root / "pyproject.toml").write_text("# changed\n")
    assert "pip install" in activate().stdout
