//! Tests that invalid input in place of a vector is refused with the reason.

use ata_net::Peer;
use ata_types::Iteration;
use ata_wire::limits::{MAX_CHUNK_BYTES, MESSAGE_BYTES};
use ata_wire::proto::{Chunk, GradientPart, gradient_part, parameter_part};
use ata_wire::{GradientUpload, ParameterPart, ParameterStream, ReceiveError, SetHeader, chunk, proto};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tokio::task::yield_now;
use tokio_stream::StreamExt;
use tonic::Status;
use tonic::body::Body;

/// A part of a call, for both kinds of vectors.
#[derive(Clone, Debug)]
enum Part {
    Header,
    Chunk(Chunk),
    Empty,
}

fn good(size: usize) -> Part {
    Part::Chunk(chunk(vec![7; size].into()))
}

fn damaged(size: usize) -> Part {
    let Chunk { crc32c, data } = chunk(vec![7; size].into());
    Part::Chunk(Chunk { crc32c: crc32c ^ 1, data })
}

fn prefixed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat()
}

fn set_header() -> SetHeader {
    SetHeader { iteration: Iteration(7), chunks: 2, ..SetHeader::default() }
}

/// Encodes a part of parameters, in sets of two chunks.
fn of_parameters(part: &Part) -> Vec<u8> {
    prefixed(&proto::ParameterPart {
        kind: match part {
            Part::Header => Some(parameter_part::Kind::Header(set_header().into())),
            Part::Chunk(chunk) => Some(parameter_part::Kind::Chunk(chunk.clone())),
            Part::Empty => None,
        },
    })
}

fn of_gradient(part: &Part) -> Vec<u8> {
    prefixed(&GradientPart {
        kind: match part {
            Part::Header => Some(gradient_part::Kind::Header(proto::GradientHeader::default())),
            Part::Chunk(chunk) => Some(gradient_part::Kind::Chunk(chunk.clone())),
            Part::Empty => None,
        },
    })
}

/// Returns a body whose bytes arrive in pieces of `piece` bytes, for each of which the receiver must wait.
fn body(bytes: &[u8], piece: usize) -> Body {
    let pieces: Vec<_> = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
    let pieces = tokio_stream::iter(pieces).then(async |piece| {
        yield_now().await;
        yield_now().await;
        Ok::<_, Status>(Frame::data(piece))
    });
    Body::new(StreamBody::new(pieces))
}

/// Awaits `step` until it is ready, and drops the future whenever it has to wait, as `select!` does.
async fn in_steps<T>(mut step: impl AsyncFnMut() -> T) -> T {
    loop {
        tokio::select! {
            biased;
            done = step() => return done,
            () = yield_now() => {}
        }
    }
}

/// Returns how many chunks of parameters arrive, and the error that ends them.
async fn parameters(body: Body) -> (u64, ReceiveError) {
    let mut stream = ParameterStream::from_body(body);
    let (mut received, mut expected) = (0, 0..0);
    loop {
        match in_steps(async || stream.next().await).await {
            Ok(ParameterPart::Set(header)) => {
                assert_eq!(expected.next(), None, "the last set is complete");
                expected = 0..header.chunks;
            }
            Ok(ParameterPart::Chunk { at, data }) => {
                assert_eq!(expected.next(), Some(at));
                assert!((1..=MAX_CHUNK_BYTES).contains(&data.len()));
                received += 1;
            }
            Err(error) => return (received, error),
        }
    }
}

/// Returns how many chunks of a gradient arrive, and the error that ends them, if any.
async fn gradient(body: Body) -> (u64, Option<ReceiveError>) {
    let mut upload = GradientUpload::from_body(body, Peer::default());
    if let Err(error) = in_steps(async || upload.header().await).await {
        return (0, Some(error));
    }
    let mut received = 0;
    loop {
        match in_steps(async || upload.chunk(|_| ()).await).await {
            Ok(Some(_)) => received += 1,
            Ok(None) => return (received, None),
            Err(error) => return (received, Some(error)),
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_vector_is_found() {
    use Part::{Empty, Header};
    let end = "the coordinator sends no more parameters";
    for (parts, chunks, of_parameters_error, of_gradient_error) in [
        (vec![Header, good(10), good(MAX_CHUNK_BYTES)], 2, end, None),
        (vec![Header, good(10)], 1, end, None),
        (vec![good(10)], 0, "expected a header", Some("expected a header")),
        (vec![], 0, end, Some("expected a header")),
        (vec![Header, Header], 0, "expected a chunk", Some("expected a chunk")),
        (vec![Header, good(10), Header], 1, "expected a chunk", Some("expected a chunk")),
        (vec![Header, Empty], 0, "an empty one", Some("an empty one")),
        (vec![Header, damaged(10)], 0, "checksum in chunk 0", Some("checksum in chunk 0")),
        (vec![Header, good(10), damaged(MAX_CHUNK_BYTES)], 1, "checksum in chunk 1", Some("checksum in chunk 1")),
        (vec![Header, good(0)], 0, "chunk of 0 bytes", Some("chunk of 0 bytes")),
        (vec![Header, good(MAX_CHUNK_BYTES + 1)], 0, "chunk of 131329 bytes", Some("chunk of 131329 bytes")),
    ] {
        for piece in [1000, usize::MAX] {
            let bytes: Vec<u8> = parts.iter().flat_map(of_parameters).collect();
            let (received, error) = parameters(body(&bytes, piece)).await;
            assert_eq!(received, chunks, "{parts:?}");
            assert!(error.to_string().contains(of_parameters_error), "{parts:?}: {error}");
            let bytes: Vec<u8> = parts.iter().flat_map(of_gradient).collect();
            let (received, error) = gradient(body(&bytes, piece)).await;
            assert_eq!(received, chunks, "{parts:?}");
            let error = error.map(|error| error.to_string());
            match (&error, of_gradient_error) {
                (Some(found), Some(expected)) => assert!(found.contains(expected), "{parts:?}: {found}"),
                (found, expected) => assert_eq!(found.as_deref(), expected, "{parts:?}"),
            }
        }
    }
    // The encoding leaves out a checksum that is 0.
    let zero = Part::Chunk(chunk(vec![0xab, 0x9b, 0xe0, 0x9b].into()));
    assert!(matches!(&zero, Part::Chunk(Chunk { crc32c: 0, .. })));
    let parts = [Header, zero, good(2), good(3)];
    let bytes: Vec<u8> = parts.iter().flat_map(of_parameters).collect();
    let (received, error) = parameters(body(&bytes, 1)).await;
    assert_eq!((received, error.to_string().contains("expected a header")), (2, true), "a chunk after the last");
    let (received, error) = parameters(body(&bytes[..bytes.len() - 20], 1)).await;
    assert_eq!((received, error.to_string().contains("within a message")), (1, true), "half a chunk: {error}");
}

#[tokio::test]
async fn any_encoding_of_a_chunk_is_read_and_what_is_no_message_is_refused() {
    let header = of_gradient(&Part::Header);
    let Chunk { crc32c, data } = chunk(vec![1, 2, 3].into());
    // A conforming encoder may write fields in any order.
    let reversed = [&[2 << 3 | 2, 3][..], &data, &[1 << 3 | 5], &crc32c.to_le_bytes()].concat();
    let part = [&[2 << 3 | 2, reversed.len() as u8][..], &reversed].concat();
    assert_eq!(GradientPart::decode(&part[..]).unwrap().encode_to_vec().len(), part.len());
    let bytes = [&header[..], &[0, 0, 0, 0, part.len() as u8], &part, &of_gradient(&good(5))].concat();
    for piece in [1, 4, usize::MAX] {
        let (received, error) = gradient(body(&bytes, piece)).await;
        assert!(received == 2 && error.is_none(), "{error:?}");
    }
    let long = [&[0], &(MESSAGE_BYTES as u32 + 1).to_be_bytes()[..]].concat();
    for (bad, said) in
        [(&long[..], "expected at most"), (&[1, 0, 0, 0, 1, 0], "compressed"), (&[0, 0, 0, 0, 1, 9], "decoded")]
    {
        let (received, error) = gradient(body(&[&header[..], bad].concat(), usize::MAX)).await;
        assert!(received == 0 && error.unwrap().to_string().contains(said), "{said}");
    }
}
