//! The form in which gradients are sent.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use ata_sums::{GradientSum, Units, add_sums, encode_sums};
use ata_types::{CHUNK_VALUES, VectorId, WireFormat};
use ata_wire::{GradientHeader, SessionToken, units_crc32c};
use bytes::Bytes;

/// A vector to send: the total of `sums`.
pub(crate) struct CollectedSum {
    pub(crate) vector: VectorId,
    pub(crate) sums: Vec<Arc<GradientSum>>,
    pub(crate) units: Units,
}

impl CollectedSum {
    pub(crate) fn header(&self, session: SessionToken) -> GradientHeader {
        let Self { vector, sums, units } = self;
        GradientHeader {
            session,
            vector: *vector,
            maxima: maxima(sums),
            units: units.exponents().to_vec(),
            units_crc32c: units_crc32c(units.exponents(), units.shifts()),
            saturated: sums.iter().map(|sum| sum.saturated).sum(),
            vanished: sums.iter().map(|sum| sum.vanished).sum(),
        }
    }
}

fn maxima(sums: &[Arc<GradientSum>]) -> Vec<f32> {
    let mut all = sums.iter().map(|sum| sum.maxima.clone());
    let first = all.next().unwrap_or_default();
    all.fold(first, |mut most, other| {
        most.iter_mut().zip(other).for_each(|(most, other)| *most = most.max(other));
        most
    })
}

/// A chunk of a sum, which is sent without a copy.
struct SentChunk {
    sum: Arc<GradientSum>,
    values: Range<usize>,
}

impl AsRef<[u8]> for SentChunk {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.sum.values[self.values.clone()])
    }
}

/// Returns the chunks of the total. Each is added up and encoded when it is needed.
pub(crate) fn chunks(
    sums: Vec<Arc<GradientSum>>,
    first: u64,
    format: WireFormat,
) -> impl Iterator<Item = Bytes> + Send {
    let values = sums.first().map_or(0, |sum| sum.values.len());
    (first..values.div_ceil(CHUNK_VALUES) as u64).map(move |at| match &sums[..] {
        [sum] if format == WireFormat::F32Exact => {
            Bytes::from_owner(SentChunk { sum: sum.clone(), values: chunk_range(at, values) })
        }
        _ => encode_sums(format, &total(&sums, at)).into(),
    })
}

fn chunk_range(at: u64, values: usize) -> Range<usize> {
    let from = at as usize * CHUNK_VALUES;
    from..values.min(from + CHUNK_VALUES)
}

/// Returns a chunk of the total of these sums.
pub(crate) fn total(sums: &[Arc<GradientSum>], at: u64) -> Cow<'_, [i32]> {
    let (one, others) = sums.split_first().expect("a vector has values");
    let range = chunk_range(at, one.values.len());
    let mut total = Cow::Borrowed(&one.values[range.clone()]);
    for other in others {
        add_sums(total.to_mut(), &other.values[range.clone()]);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_sums::decode_sums;

    #[test]
    fn the_sum_of_all_is_sent_from_a_chunk_on() {
        let values = 2 * CHUNK_VALUES + 5;
        let sum = |factor: i32| GradientSum {
            values: (0..).take(values).map(|at: i32| at * factor).collect(),
            maxima: vec![factor as f32],
            saturated: 1,
            vanished: 2,
            tasks: 1,
        };
        let sums = vec![Arc::new(sum(1)), Arc::new(sum(-3)), Arc::new(sum(5))];
        assert_eq!(maxima(&sums), [5.0]);
        let alone = vec![Arc::new(sum(3))];
        for (first, sums) in [(0, &sums), (2, &sums), (0, &alone), (2, &alone)] {
            for format in [WireFormat::F32Exact, WireFormat::Compact] {
                let mut from = first as usize * CHUNK_VALUES;
                for chunk in chunks(sums.clone(), first, format) {
                    let (count, mut read) = ((values - from).min(CHUNK_VALUES), Vec::new());
                    decode_sums(format, &chunk, count, &mut read).unwrap();
                    assert!(
                        read.iter().zip(from..).all(|(read, at)| i64::from(*read) == 3 * i64::try_from(at).unwrap())
                    );
                    from += count;
                }
                assert_eq!(from, values);
            }
        }
    }
}
