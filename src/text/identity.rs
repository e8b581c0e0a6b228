//! A text's identity: what makes "embed once" safe.

/// 128 bits of BLAKE3 over the text's UTF-8 bytes. Two texts of one run share an embedding if and
/// only if their identities are equal; the hash is cryptographic, so that nobody can write a trace
/// that borrows another text's vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(u128);

impl TextId {
    /// The identity of a text.
    pub fn of(text: &str) -> Self {
        let hash = blake3::hash(text.as_bytes());
        let mut first = [0u8; 16];
        first.copy_from_slice(&hash.as_bytes()[..16]);
        Self(u128::from_le_bytes(first))
    }

    /// As it is stored.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}
