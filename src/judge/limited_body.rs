//! Bodies of answers, read up to a limit: what an endpoint sends without end, or packed to many times its size, is not read whole.

use futures::{Stream, StreamExt};

/// The longest answer that is read into memory, in bytes, after it was unpacked. The largest reply that may be asked for, and a list
/// of a hundred batches, have less.
pub(super) const LONGEST_ANSWER: usize = 16 << 20;
/// As much of an error's text as is read, in bytes, after it was unpacked.
pub(super) const LONGEST_ERROR: usize = 64 << 10;

/// The first `most` bytes of a body, and whether that is all of it. What follows is not read.
pub(super) async fn beginning<B: AsRef<[u8]>, E>(
    body: impl Stream<Item = Result<B, E>>,
    most: usize,
) -> Result<(Vec<u8>, bool), E> {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece?;
        let (piece, room) = (piece.as_ref(), most - bytes.len());
        match piece.get(..room) {
            Some(last) if piece.len() > room => {
                bytes.extend_from_slice(last);
                return Ok((bytes, false));
            }
            _ => bytes.extend_from_slice(piece),
        }
    }
    Ok((bytes, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str], most: usize) -> (String, bool, usize) {
        let mut taken = 0;
        let body = futures::stream::iter(pieces).map(|piece| {
            taken += 1;
            Ok::<_, ()>(piece.as_bytes())
        });
        let read = futures::executor::block_on(beginning(body, most));
        let (bytes, whole) = read.unwrap();
        (String::from_utf8(bytes).unwrap(), whole, taken)
    }

    #[test]
    fn no_more_of_a_body_is_read_than_may_be() {
        let pieces = ["abc", "", "de", "fg"];
        assert_eq!(read(&pieces, 7), ("abcdefg".into(), true, 4));
        assert_eq!(read(&pieces, 6), ("abcdef".into(), false, 4));
        assert_eq!(read(&pieces, 5), ("abcde".into(), false, 4));
        assert_eq!(read(&pieces, 4), ("abcd".into(), false, 3));
        assert_eq!(read(&pieces, 0), (String::new(), false, 1));
        assert_eq!(read(&[], 0), (String::new(), true, 0));
        let broken = futures::stream::iter([Ok("ab"), Err("lost")]);
        let broken = futures::executor::block_on(beginning(broken, 9));
        assert_eq!(broken, Err("lost"));
    }
}
