"""A signature vouches for every byte of a .vx file, and only the right key's counts."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import MissingPackageError, ModelError, TrustError, UsageError
from verax.compiler.artifacts.save import save, signer
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.runtime import signature
from verax.runtime.program_binary import PAGE, ProgramBinary, Segment, Signature, contract
from verax.runtime.signature import SIZE, SigningKey, TrustedKey
from verax.runtime.vx import load_binary, save_binary

needs_cryptography = pytest.mark.skipif(
    importlib.util.find_spec("cryptography") is None,
    reason="needs the optional package cryptography (the extra `sign`)",
)


class Invalid(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A key for both sides, where `cryptography` is not installed: the same checks of the file."""

    secret: bytes

    def sign(self, data: bytes) -> bytes:
        return hmac.digest(self.secret, data, "sha512")

    def verify(self, signed: bytes, data: bytes) -> None:
        if not hmac.compare_digest(signed, self.sign(data)):
            raise Invalid


def stand_ins(number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[SigningKey, TrustedKey]:
    monkeypatch.setattr(
        signature, "optional", lambda name, why: SimpleNamespace(InvalidSignature=Invalid)
    )
    public = hashlib.sha256(bytes([number])).digest()
    return SigningKey(StandIn(public), public), TrustedKey(StandIn(public), public)


@pytest.fixture
def binary() -> ProgramBinary:
    rng = np.random.default_rng(81)
    bare = ProgramBinary(
        "avx2", b"", rng.integers(0, 256, 5003, np.uint8), 256,
        (Signature("x", "float32", (2, 3)),), (Signature("y", "float32", (3, 2)),), (),
    )  # fmt: skip
    return bare


def test_every_byte_is_vouched_for(
    binary: ProgramBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign, trust = stand_ins(1, monkeypatch)
    path = tmp_path / "net.vx"
    save_binary(path, binary, {"graph": "text"}, sign)
    whole = path.read_bytes()
    assert len(whole) % PAGE == SIZE
    assert load_binary(path, trust)[1] == load_binary(path)[1] == {"graph": "text"}
    rng = np.random.default_rng(82)
    places = [*range(64), *rng.integers(0, len(whole), 150), *range(len(whole) - SIZE, len(whole))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises((TrustError, ModelError)):
            load_binary(path, trust)


def test_a_file_put_together_anew_is_not_the_signed_one(
    binary: ProgramBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights, right checksums, the old signature."""
    sign, trust = stand_ins(1, monkeypatch)
    path = tmp_path / "net.vx"
    save_binary(path, binary, {}, sign)
    end = path.read_bytes()[-SIZE:]
    save_binary(path, dataclasses.replace(binary, weights=binary.weights[::-1].copy()), {})
    unsigned = path.read_bytes()
    path.write_bytes(unsigned + end)
    assert load_binary(path)[0].weights[0] == binary.weights[-1]
    with pytest.raises(TrustError, match="changed after it was signed"):
        load_binary(path, trust)
    path.write_bytes(unsigned)
    with pytest.raises(TrustError, match="is not signed"):
        load_binary(path, trust)
    for extra in (end[:-1], end + b"\0", bytes(SIZE), end + end):
        path.write_bytes(unsigned + extra)
        with pytest.raises(ModelError, match="bytes where"):
            load_binary(path)


def test_another_key_is_named(
    binary: ProgramBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign, _ = stand_ins(1, monkeypatch)
    _, other = stand_ins(2, monkeypatch)
    path = tmp_path / "net.vx"
    save_binary(path, binary, {}, sign)
    with pytest.raises(TrustError) as caught:
        load_binary(path, other)
    for public in (sign.public, other.public):
        assert signature.fingerprint(public) in str(caught.value)
    forged = SigningKey(sign.key, other.public)  # says that it is the trusted key
    save_binary(path, binary, {}, forged)
    with pytest.raises(TrustError, match="changed after it was signed"):
        load_binary(path, other)


def test_code_of_another_image_is_refused(binary: ProgramBinary, tmp_path: Path) -> None:
    """The digest in the code, not the file's own, which is right here."""
    whole = dataclasses.replace(binary, schedule=(Segment("segment_0"),))
    whole = dataclasses.replace(whole, object_code=b"code " + contract(whole))
    path = tmp_path / "net.vx"
    save_binary(path, whole, {})
    load_binary(path)
    for change in (
        {"arena_bytes": 320},
        {"inputs": (Signature("x", "float32", (2, 2)),)},
        {"weights": binary.weights[::-1].copy()},
    ):
        save_binary(path, dataclasses.replace(whole, **change), {})
        with pytest.raises(ModelError, match="compiled for another header or other weights"):
            load_binary(path)


def test_without_the_package_there_is_one_line_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for read in (signature.signing_key, signature.trusted_key):
        with pytest.raises(MissingPackageError) as caught:
            read(tmp_path / "key.pem")
        assert caught.value.next_step == "pip install cryptography"


# With real keys


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Files with a private and a public key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def program() -> Any:
    b = Builder("program")
    x = b.input("x", TensorType(DType.float32, (2, 3)))
    return compile(b.graph([b.add(REGISTRY["Relu"](), [x], ["y"])]))


@needs_cryptography
def test_signed_programs_run_for_who_trusts_the_key(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "ours")
    _, others = key_pair(tmp_path, "theirs")
    path = tmp_path / "net.vx"
    save(program(), path, private)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for loaded in (verax.load(path, trust_key=public), verax.load(path)):
        assert isinstance(loaded, SavedExecutable)
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], np.maximum(x, 0))
    with pytest.raises(TrustError, match=signer(private)):
        verax.load(path, trust_key=others)
    save(program(), path)
    with pytest.raises(TrustError, match="is not signed"):
        verax.load(path, trust_key=public)


@needs_cryptography
def test_keys_that_are_none(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private, public = key_pair(tmp_path, "ours")
    pem = serialization.Encoding.PEM
    kinds = serialization.PrivateFormat.PKCS8
    curve = ec.generate_private_key(ec.SECP256R1())
    wrong = {
        "empty": b"",
        "text": b"hello",
        "cut": private.read_bytes()[:60],
        "garbled": private.read_bytes().replace(b"MC4", b"!!!"),
        "of another kind": curve.private_bytes(pem, kinds, serialization.NoEncryption()),
        "encrypted": curve.private_bytes(
            pem, kinds, serialization.BestAvailableEncryption(b"secret")
        ),
        "public": public.read_bytes(),
        "huge": b"x" * (1 << 20),
    }
    for label, content in wrong.items():
        path = tmp_path / "key"
        path.write_bytes(content)
        with pytest.raises(UsageError) as caught:
            save(program(), tmp_path / "net.vx", path)
        assert caught.value.place == str(path), label
        assert label == "huge" or caught.value.next_step, label
        assert not (tmp_path / "net.vx").exists()
    save(program(), tmp_path / "net.vx", private)
    for content in (b"", b"hello", private.read_bytes(), public.read_bytes()[:50]):
        path.write_bytes(content)
        with pytest.raises(UsageError):
            verax.load(tmp_path / "net.vx", trust_key=path)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError):
            verax.load(tmp_path / "net.vx", trust_key=missing)


def test_only_programs_are_signed(tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    with pytest.raises(UsageError, match="is not signed; compiled programs can be"):
        verax.load(digits, trust_key=tmp_path / "key")
    with pytest.raises(UsageError, match="is not signed; compiled programs can be"):
        verax.load(digits.read_bytes(), trust_key=tmp_path / "key")
