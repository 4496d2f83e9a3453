"""Who compiled a .vx file: an Ed25519 signature (RFC 8032) at its end.

Signed are the file's first bytes up to the end of its header. They hold the SHA-256 of every
section, and a file has nothing else but zeros between sections, so that no byte that is used is
left out. Keys are PEM files as OpenSSL writes them:

    openssl genpkey -algorithm ed25519 -out sign.pem     (keep it secret)
    openssl pkey -in sign.pem -pubout -out trust.pem     (give it to who runs programs)
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import Any

from verax.base.errors import TrustError, UsageError
from verax.base.optional import optional
from verax.base.storage.reading import plain_bytes

_LAYOUT = struct.Struct("<8s32s64s")
SIZE = _LAYOUT.size
"""Bytes of a signature: a mark, the public key of the signer, the signature itself."""
_MARK = b"VERAXSIG"
_PURPOSE = b"Verax: this program was compiled by the holder of this key, 1\0"
"""Signed before the file's bytes, so that a signature for anything else is none for a program."""
_KEY_LIMIT = 1 << 16
_MAKE = (
    "make a pair with: openssl genpkey -algorithm ed25519 -out sign.pem; "
    "openssl pkey -in sign.pem -pubout -out trust.pem"
)


@dataclass(frozen=True)
class SigningKey:
    """A private key; `public` is the other half of the pair, 32 bytes."""

    key: Any
    public: bytes


@dataclass(frozen=True)
class TrustedKey:
    """A public key; `public` is it in 32 bytes."""

    key: Any
    public: bytes


def signing_key(path: str | os.PathLike[str]) -> SigningKey:
    """The private key in a PEM file. Raises `UsageError` when there is none in it,
    `MissingPackageError` without `cryptography`."""
    key = _loaded(path, private=True)
    return SigningKey(key, key.public_key().public_bytes_raw())


def trusted_key(path: str | os.PathLike[str]) -> TrustedKey:
    """The public key in a PEM file. Raises `UsageError` when there is none in it,
    `MissingPackageError` without `cryptography`."""
    key = _loaded(path, private=False)
    return TrustedKey(key, key.public_bytes_raw())


def _loaded(path: str | os.PathLike[str], *, private: bool) -> Any:
    location, kind = os.fspath(path), "private" if private else "public"
    purpose = "to sign programs" if private else "to check who signed a program"
    serialization = optional("cryptography.hazmat.primitives.serialization", purpose)
    ed25519 = optional("cryptography.hazmat.primitives.asymmetric.ed25519", purpose)
    text = plain_bytes(path, "key", limit=_KEY_LIMIT)
    wrong_marker = b"PUBLIC KEY-----" if private else b"PRIVATE KEY-----"
    if wrong_marker in text:
        raise UsageError(
            f"this is the {'public' if private else 'private'} key of a pair, and the {kind} one "
            "is needed",
            place=location,
            next_step="programs are signed with the private key and checked with the public one; "
            "openssl pkey -in sign.pem -pubout -out trust.pem makes the public one",
        )
    try:
        if private:
            key = serialization.load_pem_private_key(text, password=None)
        else:
            key = serialization.load_pem_public_key(text)
    except TypeError as error:
        raise UsageError(
            "the key is encrypted",
            place=location,
            next_step="decrypt it to a file that only you can read: openssl pkey -in FILE -out KEY",
        ) from error
    except Exception as error:  # `cryptography` names no base class of what it may raise
        raise UsageError(
            f"this is no {kind} key in PEM form", place=location, next_step=_MAKE
        ) from error
    key_type = ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey
    if not isinstance(key, key_type):
        raise UsageError("the key is not of the kind Ed25519", place=location, next_step=_MAKE)
    return key


def fingerprint(public: bytes) -> str:
    """A public key in short, to tell keys apart."""
    return hashlib.sha256(public).hexdigest()[:16]


def signature(sign: SigningKey, covered: bytes) -> bytes:
    """What is put at the end of a file that begins with `covered`."""
    return _LAYOUT.pack(_MARK, sign.public, sign.key.sign(_PURPOSE + covered))


def is_signature(trailer: memoryview) -> bool:
    """True if the bytes after the last section have the size and the mark of a signature."""
    return len(trailer) == SIZE and trailer[: len(_MARK)] == _MARK


def verify(trust: TrustedKey, covered: memoryview, end: memoryview, location: str) -> None:
    """Raise `TrustError` unless `end`, the file's last bytes, sign `covered` with the key."""
    if not is_signature(end):
        raise TrustError(
            "the program is not signed",
            place=location,
            next_step="compile it with --sign KEY, or run it without --trust-key if you trust "
            "whoever sent it",
        )
    _, public, signed = _LAYOUT.unpack(end)
    if public != trust.public:
        raise TrustError(
            f"the program is signed by the key {fingerprint(public)}, trusted is "
            f"{fingerprint(trust.public)}",
            place=location,
            next_step="give the public key of whoever compiled it, if you trust them",
        )
    invalid = optional("cryptography.exceptions", "to check who signed a program").InvalidSignature
    try:
        trust.key.verify(signed, _PURPOSE + covered)
    except invalid as error:
        raise TrustError(
            "the signature does not fit: the program was changed after it was signed",
            place=location,
            next_step="get it again from whoever signed it",
        ) from error
