//! Compares the results of two workers for the same tasks.

use crate::reduction::Partial;

/// Largest relative difference between two devices, in the L2 norm: tensor cores round inputs to the 11 bits of TF32, which
/// is 5·10⁻⁴, and plain f32 stays below 10⁻⁵.
const TOLERANCE: f64 = 1e-3;

impl Partial {
    /// Whether another worker's result for the same tasks agrees: bit by bit, or within the rounding of different devices.
    pub fn agrees(&self, other: &Self, exactly: bool) -> bool {
        if self.gradient.len() != other.gradient.len() {
            return false;
        }
        let pairs = || self.gradient.iter().zip(&other.gradient);
        if exactly {
            return self.loss.to_bits() == other.loss.to_bits() && pairs().all(|(a, b)| a.to_bits() == b.to_bits());
        }
        let square = |value: f32| f64::from(value) * f64::from(value);
        let [mut apart, mut ours, mut theirs] = [0.0; 3];
        for (&a, &b) in pairs() {
            let difference = f64::from(a) - f64::from(b);
            apart += difference * difference;
            ours += square(a);
            theirs += square(b);
        }
        let losses = (self.loss - other.loss).abs() <= TOLERANCE * self.loss.abs().max(other.loss.abs());
        losses && apart.sqrt() <= TOLERANCE * f64::max(ours, theirs).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(gradient: &[f32], loss: f64) -> Partial {
        Partial { first: 0, count: 1, gradient: gradient.into(), loss }
    }

    #[test]
    fn one_bit_is_a_difference_only_between_like_devices() {
        let one = partial(&[3.0, -4.0], 1.0);
        for (other, exactly, roughly) in [
            (partial(&[3.0, -4.0], 1.0), true, true),
            (partial(&[3.0, -4.0_f32.next_up()], 1.0), false, true),
            (partial(&[3.0, -4.0], 1.0 + 1e-12), false, true),
            (partial(&[3.0, -4.004], 1.0), false, true),
            (partial(&[3.0, -4.006], 1.0), false, false),
            (partial(&[3.0, -4.0], 1.01), false, false),
            (partial(&[-3.0, 4.0], 1.0), false, false),
            (partial(&[3.0], 1.0), false, false),
        ] {
            assert_eq!((one.agrees(&other, true), one.agrees(&other, false)), (exactly, roughly), "{other:?}");
        }
        let zero = partial(&[0.0], 0.0);
        assert!(zero.agrees(&zero.clone(), false) && zero.agrees(&zero.clone(), true));
    }
}
