//! The parameters that arrive from the coordinator.

use std::sync::Arc;

use ata_sums::{apply_differences, decode_parameters};
use ata_types::{CHUNK_VALUES, Iteration};
use ata_wire::{ParameterPart, SetHeader};

use crate::error::SessionError;

/// A complete set, and its iteration.
pub(crate) type CompleteSet = (Iteration, Arc<Vec<f32>>);

/// Assembles sets of parameters.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// The parameters of the last complete set. They are partly overwritten while another set arrives.
    held: Arc<Vec<f32>>,
    /// The iteration of the last complete set.
    iteration: Option<Iteration>,
    /// The set that is arriving.
    arriving: Option<SetHeader>,
    /// Whether a set broke off. Later sets may be differences from it, and are ignored until a whole one arrives.
    is_cut_off: bool,
}

impl Parameters {
    /// Creates `count` parameters, none of which has arrived.
    pub(crate) fn new(count: u64) -> Self {
        Self { held: Arc::new(vec![0.0; count as usize]), iteration: None, arriving: None, is_cut_off: false }
    }

    /// Adds a part of a set. Returns the set, if it is complete with this part.
    pub(crate) fn add(&mut self, part: ParameterPart) -> Result<Option<CompleteSet>, SessionError> {
        let (at, data) = match part {
            ParameterPart::Set(header) => {
                self.begin(header)?;
                return Ok(None);
            }
            ParameterPart::Chunk { at, data } => (at, data),
        };
        let Some(header) = &self.arriving else { return Err(SessionError::protocol("a chunk before its header")) };
        let (base, chunks, iteration) = (header.base, header.chunks, header.iteration);
        if self.is_cut_off {
            return Ok(None);
        }
        let first = at as usize * CHUNK_VALUES;
        // This copies the parameters only if the thread is still using the last set.
        let held = Arc::make_mut(&mut self.held);
        let end = held.len().min(first + CHUNK_VALUES);
        let values = &mut held[first..end];
        if base.is_some() {
            apply_differences(values, &data).map_err(|error| SessionError::parameters(&error))?;
        } else {
            decode_parameters(&data, values).map_err(|error| SessionError::parameters(&error))?;
        }
        if at + 1 < chunks {
            return Ok(None);
        }
        (self.arriving, self.iteration) = (None, Some(iteration));
        Ok(Some((iteration, self.held.clone())))
    }

    fn begin(&mut self, header: SetHeader) -> Result<(), SessionError> {
        if header.chunks != self.held.len().div_ceil(CHUNK_VALUES) as u64 {
            return Err(SessionError::protocol("a set of another size"));
        }
        let is_held = header.base.is_none() || header.base == self.iteration;
        if !is_held && !self.is_cut_off {
            return Err(SessionError::protocol("differences from parameters that were not sent"));
        }
        self.is_cut_off = !is_held;
        self.arriving = Some(header);
        Ok(())
    }

    /// Returns whether a set is arriving.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Drops the set that is arriving, since it will not be complete. Until a whole set arrives, no parameters are held.
    pub(crate) fn cut_off(&mut self) {
        if self.arriving.take().is_some() {
            (self.is_cut_off, self.iteration) = (true, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_sums::{encode_differences, encode_parameters};

    fn set(iteration: u64, base: Option<u64>, chunks: u64) -> ParameterPart {
        ParameterPart::Set(SetHeader {
            iteration: Iteration(iteration),
            base: base.map(Iteration),
            chunks,
            stripe: None,
        })
    }

    fn chunk(at: u64, data: Vec<u8>) -> ParameterPart {
        ParameterPart::Chunk { at, data: data.into() }
    }

    #[test]
    fn whole_sets_and_differences_add_up() {
        let first: Vec<f32> = (0..CHUNK_VALUES + 9).map(|at| at as f32).collect();
        let (mut held, next): (Vec<f32>, Vec<f32>) = (first.clone(), first.iter().map(|value| value + 0.5).collect());
        let mut parameters = Parameters::new(first.len() as u64);
        parameters.add(set(1, None, 2)).unwrap();
        let [one, two] = [&first[..CHUNK_VALUES], &first[CHUNK_VALUES..]].map(encode_parameters);
        assert!(parameters.add(chunk(0, one)).unwrap().is_none());
        let (iteration, whole) = parameters.add(chunk(1, two)).unwrap().unwrap();
        assert_eq!((iteration, &*whole), (Iteration(1), &first));
        parameters.add(set(2, Some(1), 2)).unwrap();
        for (at, range) in [(0, 0..CHUNK_VALUES), (1, CHUNK_VALUES..first.len())] {
            let bytes = encode_differences(&mut held[range.clone()], &next[range]);
            if let Some((iteration, set)) = parameters.add(chunk(at, bytes)).unwrap() {
                assert_eq!((iteration, &*set, &*whole), (Iteration(2), &held, &first));
            }
        }
        assert_eq!(parameters.iteration, Some(Iteration(2)));
    }

    /// The members that send the rest of a set are lost. The coordinator may send differences from the set before it knows that.
    #[test]
    fn a_set_that_breaks_off_is_made_up_for_by_a_whole_one() {
        let mut parameters = Parameters::new(CHUNK_VALUES as u64 + 9);
        let zeros = [CHUNK_VALUES, 9].map(|count| encode_parameters(&vec![0.0; count]));
        let ones = [CHUNK_VALUES, 9].map(|count| encode_parameters(&vec![1.0; count]));
        let mut receive = |iteration, base, chunks: &[Vec<u8>], is_cut_off: bool| {
            parameters.add(set(iteration, base, 2)).unwrap();
            let mut complete = None;
            for (at, data) in (0..).zip(chunks) {
                complete = parameters.add(chunk(at, data.clone())).unwrap();
            }
            if is_cut_off {
                parameters.cut_off();
            }
            complete.map(|(iteration, values)| (iteration.number(), values.iter().all(|value| *value == 1.0)))
        };
        assert_eq!(receive(1, None, &zeros, false), Some((1, false)));
        assert_eq!(receive(2, None, &zeros[..1], true), None);
        assert_eq!(receive(3, Some(2), &zeros, false), None, "nothing is known about the set before");
        assert_eq!(receive(3, None, &ones, false), Some((3, true)));
        assert!(parameters.add(set(5, Some(4), 2)).is_err());
    }

    #[test]
    fn a_set_that_does_not_fit_is_refused() {
        let mut parameters = Parameters::new(10);
        assert!(parameters.add(chunk(0, vec![0; 40])).is_err());
        assert!(parameters.add(set(1, None, 2)).is_err() && parameters.add(set(2, Some(1), 1)).is_err());
        parameters.add(set(1, None, 1)).unwrap();
        assert!(parameters.add(chunk(0, vec![0; 39])).is_err());
    }
}
