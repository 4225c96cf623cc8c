"""Tests as signed statements, which count on other machines.

Each is a statement of in-toto in an envelope of DSSE, both read on 2026-11-23:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and
https://github.com/secure-systems-lab/dsse/blob/master/protocol.md. Its subject is a store path, its
predicate the line of the ledger with `SignedFacts`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from build_pytorch.base import digest, files, foreign_json, git, paths
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import ToolError
from build_pytorch.base.versions import own_version
from build_pytorch.matrix.field_types import converted
from build_pytorch.nix import signing_key, store
from build_pytorch.nix.signing_key import SigningKey
from build_pytorch.results.ledger import HOST, RunFacts, SignedFacts, Tested

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_LONGEST: Final = 32 << 10  #: bytes of a statement


_NAR_HASH: Final = "narHash"  #: our name: in-toto knows no hash of a store path


class _Subject(Struct, frozen=True):
    name: str
    digest: dict[str, str]


class _Statement(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    type_: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(
        default="https://in-toto.io/Statement/v1", name="_type"
    )
    subject: Annotated[
        tuple[_Subject, ...], Meta(min_length=1, max_length=1, description="one subject")
    ]
    predicate_type: Literal["https://github.com/build-pytorch/build-pytorch/test/v1"] = (
        "https://github.com/build-pytorch/build-pytorch/test/v1"
    )
    predicate: dict[str, Any]


class _Signature(Struct, frozen=True):
    sig: str
    keyid: Annotated[str, Meta(max_length=100)] = ""


class _Envelope(Struct, frozen=True, rename="camel"):
    payload: str
    payload_type: Annotated[str, Meta(max_length=100)]
    signatures: Annotated[
        tuple[_Signature, ...], Meta(min_length=1, max_length=16, description="1 to 16 signatures")
    ]


def sign(root: Path, event: Tested, report: bytes, run: RunFacts, key: SigningKey) -> bytes:
    """Return a line with the signed statement of a test, whose report has these bytes.

    Raises ToolError if Nix cannot tell the hash of the result.
    """
    nar_hash = store.nar_hashes([event.output]).get(event.output)
    if not nar_hash:
        raise ToolError(f"{event.output}: Nix does not know its hash, so it cannot be signed")
    has_commit = not git.refusal(root)
    facts = SignedFacts(
        **asdict(run),
        nar_hash=nar_hash,
        report=digest.of_bytes(report),
        suite=_suite(event.by),
        matrix=digest.of_bytes(files.read_below(root, paths.MATRIX)),
        version=own_version(),
        commit=git.run(root, "rev-parse", "HEAD").stdout.strip() if has_commit else "",
        dirty=not has_commit or bool(git.uncommitted(root)),
    )
    statement = _Statement(
        subject=(_Subject(event.output, {_NAR_HASH: nar_hash}),),
        predicate=msgspec.to_builtins(
            replace(event, host=HOST, signed=facts, reason=shortened(event.reason, _LONGEST // 8))
        ),
    )
    payload = msgspec.json.encode(statement)
    signature = base64.b64encode(key.sign(_signed_bytes(PAYLOAD_TYPE, payload))).decode()
    envelope = _Envelope(
        payload=base64.b64encode(payload).decode(),
        payload_type=PAYLOAD_TYPE,
        signatures=(_Signature(signature, key.name),),
    )
    return msgspec.json.encode(envelope) + b"\n"


def opened(document: object, trusted_keys: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the predicate in an envelope and the trusted key that signed it.

    Raises ValueError with the reason if none did, DocumentError if it is no statement of ours.
    """
    envelope = converted(document, _Envelope)
    payload = _decoded(envelope.payload)
    message = _signed_bytes(envelope.payload_type, payload)
    named = {each.keyid for each in envelope.signatures}
    names = shortened(" and ".join(sorted(named)), 100) or "a key without a name"
    keys = [key for key in trusted_keys if named & {"", key.partition(":")[0]}]
    if not keys:
        missing = "trusted_keys of matrix.toml has no such key; add it if you trust it"
        raise ValueError(f"signed by {names}, and {missing}")
    signatures = [_decoded(each.sig) for each in envelope.signatures]
    signed_by = (k for k in keys for s in signatures if signing_key.is_signed(k, message, s))
    if (key := next(signed_by, None)) is None:
        other = "signed with another key of that name; get the file again"
        raise ValueError(f"not what {names} signed, or {other}")
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ValueError(f"signed, and no statement of in-toto: {envelope.payload_type}")
    statement = converted(foreign_json.decode(payload, max_bytes=_LONGEST), _Statement)
    (subject,), predicate = statement.subject, statement.predicate
    facts = predicate.get("signed")
    found = predicate.get("output"), isinstance(facts, dict) and facts.get("nar_hash")
    if found != (subject.name, subject.digest.get(_NAR_HASH)):
        raise ValueError("signed, and the test is not one of its subject")
    return predicate, key


def _signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """Return what a signature of DSSE is made of: its pre-authentication encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _decoded(text: str) -> bytes:
    """Return the bytes of Base64 of either alphabet, as DSSE requires. Raises ValueError."""
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        raise ValueError("payload or signature is not Base64") from None


def _suite(test: str) -> str:
    """Return the digest of the program behind a test: the room of its name."""
    room = Path(__file__).parents[1] / test
    names = [name for name in files.walk_below(room, "") if name.endswith((".py", ".toml"))]
    return digest.of_bytes(b"\0".join(files.read_below(room, name) for name in names))
