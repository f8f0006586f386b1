"""The key of a private network: 32 bytes for the handshake, made from a secret that people share.

Whoever is on the network may be dialled by a stranger and thereby give them something to try
guesses of the secret on, one at a time and each at the price of what is computed here. So a
random secret cannot be found, and a short word only at some cost.
"""

from __future__ import annotations

import hashlib

from nacl import pwhash

KEY_BYTES = 32
MAX_SECRET_BYTES = 1024

# RFC 9106, section 4, gives these to machines with little memory (with four lanes, of which
# libsodium knows one): 75 ms on the machine that this was written on.
_PASSES = 3
_MEMORY = 64 * 2**20


def derive_key(network: str, secret: str) -> bytes:
    """The key of `network` under a shared secret: Argon2id, salted with the network's name.

    Takes 64 MiB for a moment, and about a tenth of a second: do it once. Bytes of the secret that
    are no UTF-8 come as surrogates, as Python reads a command line (PEP 383).

    Raises:
        ValueError: the secret is empty or longer than MAX_SECRET_BYTES.
    """
    data = secret.encode("utf-8", "surrogateescape")
    if not 0 < len(data) <= MAX_SECRET_BYTES:
        raise ValueError(f"a network key has 1 to {MAX_SECRET_BYTES} bytes")
    salt = hashlib.sha256(b"diffuse/network-key\x00" + network.encode()).digest()
    return pwhash.argon2id.kdf(
        KEY_BYTES,
        data,
        salt[: pwhash.argon2id.SALTBYTES],
        opslimit=_PASSES,
        memlimit=_MEMORY,
    )
