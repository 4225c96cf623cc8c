"""Signed tests: what `--sign` writes, what is refused of it, and what it counts for elsewhere."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from conftest import Project, copied_project, error_line, needs_nix, unfolded

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.nix import signing_key
from build_pytorch.nix.quoting import to_sri
from build_pytorch.publish.publication import decide
from build_pytorch.results import ledger, ledger_file, signed_test
from build_pytorch.results.evidence import recipe_digest
from build_pytorch.results.ledger import RunFacts
from build_pytorch.results.package_state import package_states

pytestmark = needs_nix

ID = "cpu-avx2"
LINK = "result-pytorch-python313-cpu-avx2"
NIX_KEY = ("nix", "--extra-experimental-features", "nix-command", "key")

Document = dict[str, Any]

NOT_REPEATABLE = """derivation {
  name = "python3.13-pytorch210-2.10.0";
  system = builtins.currentSystem;
  builder = "/bin/sh";
  args = [ "-c" "read id < /proc/sys/kernel/random/uuid; echo $id > $out" ];
}
"""
"""A build whose files differ each time, at the same store path."""


def new_key(folder: Path, name: str = "gpu-1") -> tuple[Path, str]:
    """A secret key that Nix wrote, and its public half."""
    secret = subprocess.run(
        [*NIX_KEY, "generate-secret", "--key-name", name], check=True, capture_output=True
    ).stdout
    public = subprocess.run(
        [*NIX_KEY, "convert-secret-to-public"], input=secret, check=True, capture_output=True
    ).stdout
    path = folder / f"{name}.secret"
    path.write_bytes(secret)
    return path, public.decode().strip()


class GpuMachine:
    """A machine with a result of cpu-avx2 in a Nix store, whose test is signed as gpu-1."""

    def __init__(self, folder: Path) -> None:
        self.project = copied_project(folder / "project")
        (self.package,) = select(matrix_reader.load(self.project.root), [ID])
        self.secret, self.public = new_key(folder)
        self.env = {
            "NIX_REMOTE": "local",
            "NIX_STORE_DIR": f"{folder}/nix/store",
            "NIX_STATE_DIR": f"{folder}/nix/state",
            "NIX_LOG_DIR": f"{folder}/nix/log",
            "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
        }
        (folder / "pytorch.nix").write_text(NOT_REPEATABLE)
        self.output = self.nix("nix-build", "--no-out-link", str(folder / "pytorch.nix"))
        self.nar_hash = str(to_sri(self.nix("nix-store", "-q", "--hash", self.output)))
        (self.project.root / LINK).symlink_to(self.output)
        self.line = self.signed()

    def nix(self, *argv: str) -> str:
        env = {**os.environ, **self.env}
        return subprocess.run(
            argv, check=True, capture_output=True, text=True, env=env
        ).stdout.strip()

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            yield

    def test(self, **values: Any) -> ledger.Tested:
        package = self.package
        common = {
            "at": "2026-11-20T10:00:00.000+00:00",
            "release": package.release_name,
            "variant": package.short_id,
            "digest": recipe_digest(self.project.root, package),
            "by": "smoke",
            "outcome": "passed",
            "output": self.output,
            "host": "gpu-box",
        }
        return ledger.Tested(**{**common, **values})

    def signed(self, secret: Path | None = None, **values: Any) -> bytes:
        """The line that --sign would write of a test."""
        run = RunFacts(counts={"passed": 14, "skipped": 2}, gpu="NVIDIA H200", driver="580.159.04")
        with self.environment(), mock.patch.object(signed_test, "HOST", "gpu-box"):
            key = signing_key.read(secret or self.secret, "--sign")
            return signed_test.sign(self.project.root, self.test(**values), b"{}", run, key)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> GpuMachine:
    return GpuMachine(tmp_path_factory.mktemp("machine"))


def statement_of(line: bytes) -> Document:
    return dict(json.loads(base64.b64decode(json.loads(line)["payload"])))


def message_of(line: bytes) -> bytes:
    """What DSSE signs: written again from its specification."""
    envelope = json.loads(line)
    kind, body = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"])
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(body)).encode(), body])


def openssl(*argv: str, folder: Path, **files: bytes) -> subprocess.CompletedProcess[bytes]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    argv = ("openssl", "pkeyutl", *argv, "-rawin", "-keyform", "DER", "-in", "message")
    return subprocess.run(argv, cwd=folder, capture_output=True, check=False)


# --- the formats ---


def test_openssl_verifies_what_we_sign_and_we_verify_what_openssl_signs(
    machine: GpuMachine, tmp_path: Path
) -> None:
    """An independent implementation; the prefixes are those of RFC 8410."""
    raw = base64.b64decode(machine.public.partition(":")[2])
    seed = base64.b64decode(machine.secret.read_text().partition(":")[2])[:32]
    message = message_of(machine.line)
    public = bytes.fromhex("302a300506032b6570032100") + raw
    private = bytes.fromhex("302e020100300506032b657004220420") + seed
    signature = base64.b64decode(json.loads(machine.line)["signatures"][0]["sig"])
    verify = ("-verify", "-pubin", "-inkey", "public", "-sigfile", "signature")
    files = {"message": message, "public": public, "signature": signature}
    assert openssl(*verify, folder=tmp_path, **files).returncode == 0
    assert openssl(*verify, folder=tmp_path, message=message + b" ").returncode != 0
    theirs = openssl(
        "-sign", "-inkey", "private", folder=tmp_path, message=message, private=private
    )
    assert signing_key.is_signed(machine.public, message, theirs.stdout)
    assert theirs.stdout == signature


def test_the_encoding_is_that_of_the_specification() -> None:
    """The example of DSSE's protocol.md."""
    encoded = signed_test._signed_bytes("http://example.com/HelloWorld", b"hello world")  # noqa: SLF001
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_statement_has_the_fields_of_in_toto_and_what_a_stranger_asks(
    machine: GpuMachine,
) -> None:
    envelope = json.loads(machine.line)
    assert envelope.keys() == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert [each["keyid"] for each in envelope["signatures"]] == ["gpu-1"]
    found = statement_of(machine.line)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["subject"] == [{"name": machine.output, "digest": {"narHash": machine.nar_hash}}]
    predicate = found["predicate"]
    assert (predicate["event"], predicate["host"]) == ("tested", "gpu-box")
    assert predicate["signed"].keys() == {
        "nar_hash", "report", "suite", "matrix", "version", "commit", "dirty", "counts", "gpu",
        "driver", "cpu", "key",
    }  # fmt: skip
    assert predicate["signed"]["dirty"] is True  # no commit


def test_a_long_reason_is_cut_so_that_every_statement_can_be_read(
    machine: GpuMachine, tmp_path: Path
) -> None:
    path = tmp_path / "signed.json"
    path.write_bytes(machine.signed(outcome="failed", reason="\x1b" * 9_000))
    (found,) = ledger_file.signed_tests(path, [machine.public])
    assert not isinstance(found, str)
    assert len(found.reason) == 4096


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_keys_of_both_commands_of_nix_are_taken_whatever_their_mode(
    tmp_path: Path, mode: int
) -> None:
    """As Nix itself does: it makes one of them readable by all, and signs with both."""
    subprocess.run(
        ["nix-store", "--generate-binary-cache-key", "box-2", "secret", "public"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    for path, public in (
        (tmp_path / "secret", (tmp_path / "public").read_text()),
        new_key(tmp_path, "box-3"),
    ):
        path.chmod(mode)
        signature = signing_key.read(path, "--sign").sign(b"text")
        assert signing_key.is_signed(public.strip(), b"text", signature)


def halves_of_two_keys(text: str) -> str:
    name, _, data = text.partition(":")
    raw = base64.b64decode(data)
    return f"{name}:{base64.b64encode(raw[:32] + bytes(32)).decode()}"


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "",
        lambda text: text.partition(":")[2],
        lambda text: text[:-8],
        lambda text: text.replace(":", " : "),
        lambda text: f"{text}{text}",
        lambda _: "\xff",
        halves_of_two_keys,
    ],
)
def test_what_is_no_secret_key_is_one_line_without_its_content(
    machine: GpuMachine, tmp_path: Path, change: Callable[[str], str]
) -> None:
    path = tmp_path / "key"
    path.write_text(change(machine.secret.read_text()), encoding="latin-1")
    with pytest.raises(BuildPytorchError) as raised:
        signing_key.read(path, "--sign")
    how = "make one with `nix-store --generate-binary-cache-key NAME SECRET PUBLIC`"
    assert str(raised.value) == f"--sign {path}: not a signing key; {how}"


@pytest.mark.parametrize("command", ["smoke", "inspect", "compare"])
def test_a_wrong_key_ends_before_anything_is_tested(machine: GpuMachine, command: str) -> None:
    done = machine.project.invoke(command, ID, "--sign", str(machine.project.root / "none"))
    assert done.returncode == 2
    assert "none: cannot be read: No such file" in error_line(done)


def test_a_secret_key_among_the_trusted_ones_is_named_by_its_place_and_not_shown(
    machine: GpuMachine, project: Project
) -> None:
    secret = machine.secret.read_text()
    project.edit("matrix.toml", "repository = ", f'trusted_keys = ["{secret}"]\nrepository = ')
    line = error_line(project.invoke("status"))
    assert (
        line
        == "matrix.toml:19: trusted_keys[0]: found 94 characters; allowed: at most 88 characters"
    )
    project.edit("matrix.toml", secret, "gpu-1")
    line = error_line(project.invoke("status"))
    assert 'trusted_keys[0]: found "gpu-1"; allowed: a public key as Nix writes it' in line


# --- what is refused ---

Change = Callable[[Document], object]
"""Changes a statement in place, or returns another one."""


def put(path: str, value: object) -> Change:
    """Set a value of a document by its path, such as `subject.0.name`."""

    def change(document: Document) -> None:
        *folders, last = (int(step) if step.isdigit() else step for step in path.split("."))
        place: Any = document
        for step in folders:
            place = place[step]
        place[last] = value

    return change


def twice(document: Document) -> None:
    document["subject"] *= 2


def no_hash(document: Document) -> None:
    put("subject.0.digest.narHash", "sha256:x")(document)
    put("predicate.signed.nar_hash", "sha256:x")(document)


OTHER_HASH = f"sha256-{base64.b64encode(bytes(32)).decode()}"
CHANGES: dict[str, Change] = {
    "another store path": put("subject.0.name", "/nix/store/x-pytorch"),
    "other files": put("subject.0.digest.narHash", OTHER_HASH),
    "a second subject": twice,
    "no subject": put("subject", []),
    "another kind of statement": put("predicateType", "https://slsa.dev/provenance/v1"),
    "another version of in-toto": put("_type", "https://in-toto.io/Statement/v0.1"),
    "another outcome": put("predicate.outcome", "failed"),
    "another test": put("predicate.by", "inspect"),
    "another variant": put("predicate.variant", "cpu-avx512"),
    "another recipe": put("predicate.digest", f"sha256:{'0' * 64}"),
    "another result": put("predicate.output", "/nix/store/x-pytorch"),
    "another time": put("predicate.at", "2026-11-21T10:00:00.000+00:00"),
    "another host": put("predicate.host", "other"),
    "another GPU": put("predicate.signed.gpu", "NVIDIA B200"),
    "another driver": put("predicate.signed.driver", "1"),
    "other counts": put("predicate.signed.counts", {"passed": 15}),
    "another suite": put("predicate.signed.suite", f"sha256:{'0' * 64}"),
    "another matrix": put("predicate.signed.matrix", f"sha256:{'0' * 64}"),
    "another version": put("predicate.signed.version", "9"),
    "a clean checkout": put("predicate.signed.dirty", value=False),
}
"""Changes of a statement after it was signed."""


def sealed(statement: Document, kind: str = signed_test.PAYLOAD_TYPE) -> Document:
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    return {"payload": payload, "payloadType": kind, "signatures": []}


def why_refused(line: Document, keys: list[str], folder: Path) -> str:
    """The one reason for which `attest verify` and `ledger merge` refuse a line."""
    path = folder / "signed.json"
    path.write_text(json.dumps(line) + "\n")
    (found,) = ledger_file.signed_tests(path, keys)
    assert isinstance(found, str), "it holds"
    assert "\n" not in found
    with pytest.raises(BuildPytorchError) as raised:
        list(ledger_file.read(path, keys))
    assert str(raised.value).startswith(f"{path}:1: ")
    assert str(raised.value).endswith("; nothing was merged")
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_statement_that_was_changed_after_it_was_signed_is_refused(
    machine: GpuMachine, tmp_path: Path, change: Change
) -> None:
    envelope, statement = json.loads(machine.line), statement_of(machine.line)
    change(statement)
    envelope["payload"] = sealed(statement)["payload"]
    reason = "not what gpu-1 signed, or signed with another key of that name; get the file again"
    assert why_refused(envelope, [machine.public], tmp_path) == reason


def other_bit(text: str, place: int) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[place] ^= 1
    return base64.b64encode(raw).decode()


ENVELOPES: dict[str, tuple[Change, str]] = {
    "another type": (put("payloadType", "application/json"), "not what gpu-1 signed"),
    "another name of the key": (put("signatures.0.keyid", "gpu-2"), "signed by gpu-2, and"),
    "a long name": (
        put("signatures.0.keyid", "x" * 301),
        "signatures[0].keyid: found 301 characters; allowed: at most 100 characters",
    ),
    "no signature": (put("signatures", []), "signatures: found []; allowed: 1 to 16 signatures"),
    "a signature of nothing": (put("signatures.0.sig", ""), "not what gpu-1 signed"),
    "no Base64": (put("signatures.0.sig", "é"), "payload or signature is not Base64"),
    "a number as payload": (put("payload", 1), "payload: found 1; allowed: string"),
    "no payload": (put("payload", ""), "not what gpu-1 signed"),
    "a bit of R": (
        lambda e: put("signatures.0.sig", other_bit(e["signatures"][0]["sig"], 0))(e),
        "not what gpu-1 signed",
    ),
    "a bit of S": (
        lambda e: put("signatures.0.sig", other_bit(e["signatures"][0]["sig"], 40))(e),
        "not what gpu-1 signed",
    ),
}


@pytest.mark.parametrize(("change", "reason"), ENVELOPES.values(), ids=ENVELOPES)
def test_a_changed_envelope_is_refused(
    machine: GpuMachine, tmp_path: Path, change: Change, reason: str
) -> None:
    envelope = json.loads(machine.line)
    change(envelope)
    assert reason in why_refused(envelope, [machine.public], tmp_path)


def test_only_the_trusted_key_itself_opens_a_statement(machine: GpuMachine, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    forger, other = new_key(tmp_path / "other")  # the same name
    name, _, data = machine.public.partition(":")
    not_signed = (
        "not what gpu-1 signed, or signed with another key of that name; get the file again"
    )
    for keys in ([other], [f"{name}:{other_bit(data, 0)}"], [f"{name}:{other_bit(data, 31)}"]):
        assert why_refused(json.loads(machine.line), keys, tmp_path) == not_signed
    no_key = (
        "signed by gpu-1, and trusted_keys of matrix.toml has no such key; add it if you trust it"
    )
    for keys in ([], [f"gpu-10:{data}"], [f"gpu:{data}"]):
        assert why_refused(json.loads(machine.line), keys, tmp_path) == no_key
    forged = json.loads(machine.signed(forger))
    assert why_refused(forged, [machine.public], tmp_path) == not_signed
    both = {**forged, "signatures": forged["signatures"] + json.loads(machine.line)["signatures"]}
    path = tmp_path / "both.json"
    path.write_text(json.dumps(both))
    (found,) = ledger_file.signed_tests(path, [machine.public])
    assert not isinstance(found, str)  # one of several signatures is enough
    assert found.signed
    assert found.signed.key == machine.public


MISTAKES: dict[str, tuple[Change, str]] = {
    "a second subject": (twice, "allowed: one subject"),
    "a hash of another kind": (
        put("subject.0.digest", {"sha1": "x"}),
        "the test is not one of its subject",
    ),
    "a hash that is none": (no_hash, 'nar_hash: found "sha256:x"; allowed: a hash'),
    "other files than its subject": (
        put("subject.0.digest.narHash", OTHER_HASH),
        "the test is not one of its subject",
    ),
    "a result that is not its subject": (
        put("subject.0.name", "/nix/store/x"),
        "the test is not one of its subject",
    ),
    "a build": (put("predicate.event", "started"), "attempt: missing"),
    "an unknown key": (put("predicate.colour", "red"), 'unknown key "colour"'),
    "an unknown fact": (put("predicate.signed.colour", "red"), "signed.colour: unknown key"),
    "no facts": (put("predicate.signed", None), "the test is not one of its subject"),
    "text in place of a path": (put("predicate.digest", "a b\x1b"), "digest: found"),
    "a time to come": (put("predicate.at", "2199-01-01T00:00:00+00:00"), "in the future"),
    "too much text": (
        put("predicate.signed.gpu", "x" * 301),
        "signed.gpu: found 301 characters; allowed: at most 300",
    ),
    "too many bytes": (put("predicate.reason", "x" * 40_000), "larger than 32 KiB"),
    "provenance": (
        put("predicateType", "https://slsa.dev/provenance/v1"),
        'predicateType: found "https://slsa.dev/provenance/v1"; allowed: https://',
    ),
}


@pytest.mark.parametrize(("change", "reason"), MISTAKES.values(), ids=MISTAKES)
def test_what_a_trusted_machine_signed_is_read_strictly(
    machine: GpuMachine, tmp_path: Path, change: Change, reason: str
) -> None:
    statement = statement_of(machine.line)
    change(statement)
    envelope = signed_again(machine, sealed(statement))
    assert reason in why_refused(envelope, [machine.public], tmp_path)


def signed_again(machine: GpuMachine, envelope: Document) -> Document:
    key = signing_key.read(machine.secret, "--sign")
    signature = key.sign(message_of(json.dumps(envelope).encode()))
    sig = base64.urlsafe_b64encode(signature).decode()  # DSSE allows both alphabets
    return {**envelope, "signatures": [{"keyid": "gpu-1", "sig": sig}]}


def test_signed_text_of_another_type_is_no_statement(machine: GpuMachine, tmp_path: Path) -> None:
    envelope = signed_again(machine, sealed(statement_of(machine.line), "text/plain"))
    reason = "signed, and no statement of in-toto: text/plain"
    assert why_refused(envelope, [machine.public], tmp_path) == reason


# --- what it counts for ---


class Publisher:
    """A checkout with the same result, built here, that trusts the key of another machine."""

    def __init__(self, project: Project, machine: GpuMachine) -> None:
        self.project = project
        self.machine = machine
        (project.root / LINK).symlink_to(machine.output)
        project.edit("matrix.toml", "repository = ", "trusted_keys = []\nrepository = ")
        self.trust(machine.public)
        test = machine.test()
        ledger.Ledger(project.root).append(
            ledger.Ended(
                at="2026-11-20T09:00:00.000+00:00", release=test.release, variant=test.variant,
                digest=test.digest, attempt="1", outcome="built", seconds=1.0,
                outputs=(machine.output,),
            )
        )  # fmt: skip

    def trust(self, *keys: str) -> None:
        path = self.project.root / "matrix.toml"
        lines = path.read_text().splitlines(keepends=True)
        (number,) = (n for n, line in enumerate(lines) if line.startswith("trusted_keys"))
        lines[number] = f"trusted_keys = {json.dumps(keys)}\n"
        path.write_text("".join(lines))

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.project.run("invoke", *argv, env=self.machine.env)

    def merge(self, *lines: bytes) -> subprocess.CompletedProcess[str]:
        path = self.project.root / "signed.json"
        path.write_bytes(b"".join(lines))
        return self.run("ledger", "merge", str(path))

    def said(self) -> tuple[str, str, str]:
        """The smoke test, the missing evidence, and what `publish` makes of them."""
        package = self.machine.package
        with self.machine.environment():
            state = package_states(self.project.root, [package])[package.id]
        decided = decide(state, "", without_evidence=False, system=package.platform)
        return state.smoke, state.missing_evidence, decided.reason


@pytest.fixture
def publisher(project: Project, machine: GpuMachine) -> Publisher:
    return Publisher(project, machine)


def test_a_signed_test_is_evidence_as_long_as_its_key_is_trusted(
    publisher: Publisher, machine: GpuMachine
) -> None:
    done = publisher.merge(machine.line)
    assert (done.returncode, done.stdout[-17:]) == (0, ": 1 event, 1 new\n")
    assert publisher.merge(machine.line).stdout.endswith(": 1 event, 0 new\n")
    digest = machine.test().digest[:19]
    wanted = ("passed", "", f"recipe {digest}, passed smoke test, signed by gpu-1")
    assert publisher.said() == wanted
    status = json.loads(publisher.run("status", ID, "--json").stdout)
    assert status["variants"][0]["smoke"] == "passed"
    assert "passed at 2026-11-20T10:00:00.000+00:00; signed by gpu-1" in unfolded(
        publisher.run("show", ID).stdout
    )
    publisher.trust(new_key(publisher.project.root, "gpu-2")[1])
    why = "signed by gpu-1, and trusted_keys of matrix.toml has not this key"
    missing = f"no smoke test or inspection passed yet ({why})"
    outcome, said, reason = publisher.said()
    assert (outcome, said) == ("skipped", missing)
    assert reason.startswith(f"{missing}; `invoke smoke {ID}`")
    publisher.trust(machine.public)
    assert publisher.said() == wanted


@pytest.mark.parametrize("name", ["gpu-token", "sk-machine-with-a-gpu-1"])
def test_a_key_whose_name_looks_like_that_of_a_secret_counts(
    publisher: Publisher, machine: GpuMachine, tmp_path: Path, name: str
) -> None:
    secret, public = new_key(tmp_path, name)
    publisher.trust(public)
    assert publisher.merge(machine.signed(secret)).returncode == 0
    assert publisher.said()[0] == "passed"


def test_a_failed_signed_test_forbids_to_publish(publisher: Publisher, machine: GpuMachine) -> None:
    publisher.merge(machine.line, machine.signed(outcome="failed", reason="NaN in matmul"))
    assert publisher.said()[2].startswith("its smoke test failed: NaN in matmul; fix that")


def test_where_keys_are_trusted_unsigned_tests_of_other_machines_do_not_count(
    publisher: Publisher, machine: GpuMachine
) -> None:
    """Also where the file says that it is of this machine, or that a key signed it."""
    raw = {**statement_of(machine.line)["predicate"]["signed"], "key": machine.public}
    facts = msgspec.convert(raw, ledger.SignedFacts)
    lines = [
        msgspec.json.encode(machine.test(host=host, signed=signed)) + b"\n"
        for host in ("gpu-box", "", ledger.HOST)
        for signed in (None, facts)
    ]
    assert publisher.merge(*lines).returncode == 0
    assert publisher.said()[0] == "skipped"
    assert "without a signature, which trusted_keys" in publisher.said()[2]
    publisher.trust()
    assert publisher.said()[0] == "passed"
    ledger.Ledger(publisher.project.root).append(machine.test(host=""))
    publisher.trust(machine.public)
    assert publisher.said()[0] == "passed"  # tested here


def test_a_test_of_another_build_of_the_same_recipe_does_not_count(
    project: Project, tmp_path: Path
) -> None:
    """One store path, other files: Nix knows a path by what it is built from."""
    (tmp_path / "gpu").mkdir()
    machine = GpuMachine(tmp_path / "gpu")
    publisher = Publisher(project, machine)
    publisher.merge(machine.line)
    assert publisher.said()[0] == "passed"
    (project.root / "signed.json").write_bytes(machine.line)
    machine.nix("nix-store", "--delete", "--ignore-liveness", machine.output)
    built = machine.nix("nix-build", "--no-out-link", str(tmp_path / "gpu/pytorch.nix"))
    assert built == machine.output
    assert publisher.said()[0] == "skipped"
    assert f"gpu-1 tested other files: {machine.nar_hash}, here sha256-" in publisher.said()[2]
    done = publisher.run("attest", "verify", "signed.json")
    assert done.returncode == 1
    assert "signed.json:1: does not hold: gpu-1 tested other files" in unfolded(done.stdout)


def test_a_file_that_lost_its_last_newline_is_merged(
    publisher: Publisher, machine: GpuMachine
) -> None:
    path = publisher.project.root / "signed.json"
    path.write_bytes(machine.line.rstrip(b"\n"))
    done = publisher.run("ledger", "merge", str(path))
    assert (done.returncode, "1 event, 1 new" in done.stdout) == (0, True)


def test_verify_says_who_tested_what_and_where(publisher: Publisher, machine: GpuMachine) -> None:
    root = publisher.project.root
    (root / "signed.json").write_bytes(machine.line)
    done = publisher.run("attest", "verify", str(root / "signed.json"))
    assert done.returncode == 0
    assert f"cuda13_0/{ID}: smoke passed at 2026-11-20T10:00:00.000+00:00" in done.stdout
    said = unfolded(done.stdout)
    for fact in (
        f"result {machine.output} ({machine.nar_hash}, the same here)",
        "signed by gpu-1, which matrix.toml trusts",
        "on gpu-box, NVIDIA H200, driver 580.159.04",
        "tests 14 passed, 2 skipped; suite sha256:",
        "(no commit); recipe sha256:",
    ):
        assert fact in said
    document = json.loads(publisher.run("attest", "verify", "signed.json", "--json").stdout)
    assert document["exit_code"] == 0
    (test,) = document["tests"]
    assert (test["problem"], test["test"]["signed"]["key"]) == ("", machine.public)


def test_a_result_of_another_store_stops_no_command(
    publisher: Publisher, machine: GpuMachine
) -> None:
    (publisher.project.root / "signed.json").write_bytes(machine.line)
    assert publisher.run("ledger", "merge", "signed.json").returncode == 0
    env = {**machine.env, "NIX_STORE_DIR": str(publisher.project.root / "store")}
    for command in (("attest", "verify", "signed.json"), ("status",)):
        done = publisher.project.run("invoke", *command, env=env)
        assert (done.returncode, done.stderr) == (0, "")


def test_verify_names_each_line_that_does_not_hold(
    publisher: Publisher, machine: GpuMachine
) -> None:
    lines = [machine.line.rstrip()]
    for change in CHANGES.values():
        envelope, statement = json.loads(machine.line), statement_of(machine.line)
        change(statement)
        lines.append(json.dumps({**envelope, "payload": sealed(statement)["payload"]}).encode())
    lines += [b'{"event": "tested"}', b"[]"]
    (publisher.project.root / "all.json").write_bytes(b"\n".join(lines))
    done = publisher.run("attest", "verify", "all.json")
    assert done.returncode == 1
    named = [line for line in done.stdout.splitlines() if line.startswith("all.json:")]
    assert [line.split(":")[1] for line in named] == [str(n) for n in range(2, len(lines) + 1)]


@pytest.mark.parametrize("text", ["", "# Text\n\n" * 99, "\x1b[31m", "[" * 50_000, "x" * 70_000])
def test_a_file_of_another_kind_is_one_line(machine: GpuMachine, text: str) -> None:
    path = machine.project.root / "text"
    path.write_text(text)
    done = machine.project.invoke("attest", "verify", "text")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert done.stdout.count("does not hold") == 1
    reason = "text:1: does not hold: not a file that --sign wrote: "
    assert unfolded(done.stdout).startswith(reason)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "write `invoke attest verify FILE...`: files that --sign wrote"),
        (["verify"], "write `invoke attest verify FILE...`"),
        (["sign", "x"], "write `invoke attest verify FILE...`"),
        (["verify", "none.json"], "none.json: cannot be read: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(machine: GpuMachine, argv: list[str], says: str) -> None:
    done = machine.project.invoke("attest", *argv)
    assert done.returncode == 2
    assert error_line(done).startswith(says)
