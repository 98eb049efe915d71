//! The law of one worker, and the drawing of times from it.

use rand::Rng;
use rand_distr::{Distribution, Exp1, Gamma, LogNormal, StandardNormal, Uniform, Weibull};

use super::trace::Trace;
use super::{LONGEST, LawError};

#[derive(Debug)]
pub(super) struct LawKind {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [&'static str],
    /// The number of parameters, at the end of the list, that may be left out.
    pub(super) optional: usize,
}

pub(super) const KINDS: &[LawKind] = &[
    LawKind { name: "const", parameters: &["x"], optional: 0 },
    LawKind { name: "exp", parameters: &["mean"], optional: 0 },
    LawKind { name: "shifted_exp", parameters: &["shift", "mean"], optional: 0 },
    LawKind { name: "uniform", parameters: &["lo", "hi"], optional: 0 },
    LawKind { name: "half_normal", parameters: &["shift", "sigma"], optional: 0 },
    LawKind { name: "lognormal", parameters: &["shift", "mu", "sigma"], optional: 0 },
    LawKind { name: "gamma", parameters: &["shift", "shape", "scale"], optional: 0 },
    LawKind { name: "weibull", parameters: &["shift", "shape", "scale"], optional: 0 },
    LawKind { name: "scale", parameters: &["x"], optional: 0 },
    LawKind { name: "affine", parameters: &["o", "s", "cv", "k"], optional: 2 },
    LawKind { name: "trace", parameters: &[], optional: 0 },
];

/// The law of the times of one worker's tasks. It is small, because there may be a million: data for only a few laws is boxed.
#[derive(Clone, Debug)]
pub struct WorkerLaw {
    shift: f64,
    noise: LawNoise,
    mean: f64,
}

#[derive(Clone, Debug)]
enum LawNoise {
    None,
    /// Exponential times of this mean.
    Exponential(f64),
    Uniform(Box<Uniform<f64>>),
    /// The absolute value of normal numbers of this standard deviation.
    HalfNormal(f64),
    LogNormal(Box<LogNormal<f64>>),
    Gamma(Box<Gamma<f64>>),
    Weibull(Box<Weibull<f64>>),
    /// Times that are a multiple of the real computation time.
    Scale,
    /// A device that computes several tasks as one batch.
    Batch(Box<BatchLaw>),
    Trace(Box<Trace>),
}

/// The time (o + max(a, k)·s)·x of a batch of a tasks, where x has mean 1 and a given variance.
#[derive(Clone, Debug)]
struct BatchLaw {
    fixed: f64,
    per_task: f64,
    /// The number of tasks up to which a batch takes as long as one of so many, k.
    knee: f64,
    noise: Option<Gamma<f64>>,
}

impl BatchLaw {
    fn sample(&self, tasks: u64, rng: &mut impl Rng) -> f64 {
        let noise = self.noise.as_ref().map_or(1.0, |noise| noise.sample(rng));
        noise * (self.fixed + self.knee.max(tasks as f64) * self.per_task)
    }
}

impl WorkerLaw {
    pub(super) fn new(kind: &LawKind, values: &[f64], worker: u32, workers: u32) -> Result<Self, LawError> {
        let bad = |parameter: &str, value: f64, expected: &str| {
            let place = format!("'{}', worker {worker} of {workers}", kind.name);
            LawError::Invalid(format!("{place}: {parameter} is {value}, expected {expected}"))
        };
        let wrong = |index: usize, expected: &str| bad(kind.parameters[index], values[index], expected);
        let (shift, noise, mean) = parts(kind, values, wrong)?;
        // Regret and policies need a mean.
        let has_mean = mean > 0.0 && is_time(mean);
        if has_mean { Ok(Self { shift, noise, mean }) } else { Err(bad("its mean", mean, POSITIVE)) }
    }

    pub(super) fn from_trace(trace: Trace) -> Self {
        Self { shift: 0.0, mean: trace.mean, noise: LawNoise::Trace(Box::new(trace)) }
    }

    /// Prepares laws that depend on the iteration for iteration `iteration`, counted from 1.
    pub fn begins(&mut self, iteration: u64) {
        if let LawNoise::Trace(trace) = &mut self.noise {
            trace.begins(iteration);
        }
    }

    /// Returns whether times depend on the iteration, so that [`WorkerLaw::begins`] must be called for each.
    pub fn is_by_iteration(&self) -> bool {
        matches!(&self.noise, LawNoise::Trace(trace) if trace.by_iteration)
    }

    /// Replaces a trace with blocks by another one that could have been recorded as well; does nothing to other laws.
    pub fn resample(&mut self, seed: u64) {
        if let LawNoise::Trace(trace) = &mut self.noise {
            trace.resample(seed);
        }
    }

    /// Returns the mean time of a task computed on its own; for `scale(x)`, this is the factor x.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the rate of exponential times, one over their mean; `None` for any other law.
    pub fn exponential_rate(&self) -> Option<f64> {
        match self.noise {
            LawNoise::Exponential(mean) if self.shift == 0.0 => Some(1.0 / mean),
            _ => None,
        }
    }

    /// Returns whether times are multiples of the real computation time, so that [`WorkerLaw::sample`] needs it.
    pub fn is_relative(&self) -> bool {
        matches!(self.noise, LawNoise::Scale)
    }

    /// Returns whether it is the law of a device that computes a lease as one batch, for less than its tasks one by one.
    pub fn fuses(&self) -> bool {
        matches!(self.noise, LawNoise::Batch(_))
    }

    /// Draws the time of the next `tasks` tasks as one batch, if the real computation of it took `computed`.
    pub fn sample_batch(&mut self, tasks: u64, computed: f64, rng: &mut impl Rng) -> f64 {
        match &self.noise {
            LawNoise::Batch(batch) => batch.sample(tasks, rng),
            LawNoise::Scale => self.sample(computed, rng),
            _ => (0..tasks).map(|_| self.sample(computed, rng)).sum(),
        }
    }

    /// Draws the time of the next task, if the real computation took `computed` (which only `scale(x)` uses).
    pub fn sample(&mut self, computed: f64, rng: &mut impl Rng) -> f64 {
        let noise = match &mut self.noise {
            LawNoise::None => 0.0,
            LawNoise::Exponential(mean) => *mean * Distribution::<f64>::sample(&Exp1, rng),
            LawNoise::Uniform(uniform) => uniform.sample(rng),
            LawNoise::HalfNormal(sigma) => *sigma * Distribution::<f64>::sample(&StandardNormal, rng).abs(),
            LawNoise::LogNormal(noise) => noise.sample(rng),
            LawNoise::Gamma(noise) => noise.sample(rng),
            LawNoise::Weibull(noise) => noise.sample(rng),
            LawNoise::Scale => self.mean * computed,
            LawNoise::Batch(batch) => batch.sample(1, rng),
            LawNoise::Trace(trace) => trace.draw(),
        };
        // A law with a heavy tail may draw an infinite time.
        (self.shift + noise).min(LONGEST)
    }
}

const POSITIVE: &str = "a positive number of at most 1e100";

fn is_time(value: f64) -> bool {
    (0.0..=LONGEST).contains(&value)
}

/// Returns a law's shift, noise and mean; `wrong` creates the error about a parameter with an unexpected value.
fn parts(
    kind: &LawKind,
    values: &[f64],
    wrong: impl Fn(usize, &str) -> LawError,
) -> Result<(f64, LawNoise, f64), LawError> {
    let of = |index: usize, good: bool, expected: &str| {
        if good { Ok(values[index]) } else { Err(wrong(index, expected)) }
    };
    let positive = |index: usize| of(index, values[index] > 0.0 && is_time(values[index]), POSITIVE);
    let not_negative = |index: usize| of(index, is_time(values[index]), "a number from 0 to 1e100");
    let finite = |index: usize| of(index, values[index].is_finite(), "a finite number");
    Ok(match kind.name {
        "const" => (positive(0)?, LawNoise::None, positive(0)?),
        "exp" => (0.0, LawNoise::Exponential(positive(0)?), positive(0)?),
        "shifted_exp" => {
            let (shift, mean) = (not_negative(0)?, positive(1)?);
            (shift, LawNoise::Exponential(mean), shift + mean)
        }
        "uniform" => {
            let (lo, hi) = (not_negative(0)?, positive(1)?);
            let uniform = Uniform::new_inclusive(lo, hi).map_err(|_| wrong(1, "at least lo"))?;
            (0.0, LawNoise::Uniform(Box::new(uniform)), f64::midpoint(lo, hi))
        }
        "half_normal" => {
            let (shift, sigma) = (not_negative(0)?, positive(1)?);
            (shift, LawNoise::HalfNormal(sigma), shift + sigma * std::f64::consts::FRAC_2_PI.sqrt())
        }
        "lognormal" => {
            let (shift, mu, sigma) = (not_negative(0)?, finite(1)?, not_negative(2)?);
            let noise = LogNormal::new(mu, sigma).map_err(|_| wrong(2, "a number of at least 0"))?;
            (shift, LawNoise::LogNormal(Box::new(noise)), shift + (mu + sigma * sigma / 2.0).exp())
        }
        "gamma" => {
            let (shift, shape, scale) = (not_negative(0)?, positive(1)?, positive(2)?);
            let noise = Gamma::new(shape, scale).map_err(|_| wrong(1, "a positive number"))?;
            (shift, LawNoise::Gamma(Box::new(noise)), shift + shape * scale)
        }
        "weibull" => {
            let (shift, shape, scale) = (not_negative(0)?, positive(1)?, positive(2)?);
            let noise = Weibull::new(scale, shape).map_err(|_| wrong(1, "a positive number"))?;
            (shift, LawNoise::Weibull(Box::new(noise)), shift + scale * libm::tgamma(1.0 + 1.0 / shape))
        }
        "scale" => (0.0, LawNoise::Scale, positive(0)?),
        "affine" => {
            let (fixed, per_task) = (not_negative(0)?, positive(1)?);
            let cv = if values.len() > 2 { not_negative(2)? } else { 0.0 };
            let noise = (cv > 0.0).then(|| Gamma::new(1.0 / (cv * cv), cv * cv)).transpose();
            let noise = noise.map_err(|_| wrong(2, "a number of at least 0"))?;
            let knee = if values.len() > 3 { not_negative(3)?.max(1.0) } else { 1.0 };
            (0.0, LawNoise::Batch(Box::new(BatchLaw { fixed, per_task, knee, noise })), fixed + per_task * knee)
        }
        _ => unreachable!("the parser takes no other law with numbers"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::TimeLaws;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

    /// Every law's formula for the mean is compared with the mean of its draws (5 standard errors of 40,000 draws).
    #[test]
    fn means_are_those_of_the_draws() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for text in [
            "const(3*i)",
            "exp(2)",
            "shifted_exp(29*i, 29*i)",
            "uniform(1, 4)",
            "half_normal(1, 2)",
            "lognormal(1, 0.5, 0.5)",
            "gamma(1, 0.5, 3)",
            "weibull(1, 0.8, 2)",
            "affine(2*i, 0.5)",
            "affine(2, 0.5, 0.2)",
            "affine(2, 0.5, 0.2, 8)",
        ] {
            let mut law = text.parse::<TimeLaws>().unwrap().of_worker(2, 3).unwrap();
            let draws: Vec<f64> = (0..40_000).map(|_| law.sample(f64::NAN, &mut rng)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            let error = 5.0 * (variance / draws.len() as f64).sqrt() + 1e-9;
            assert!((mean - law.mean()).abs() <= error, "{text}: {mean} for {}", law.mean());
            assert!(draws.iter().all(|x| *x >= 0.0));
        }
    }

    #[test]
    fn a_batch_costs_a_constant_and_a_time_for_each_task() {
        let law = |text: &str| text.parse::<TimeLaws>().unwrap().of_worker(1, 1).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        assert_eq!([1, 100].map(|tasks| law("affine(20, 0.5)").sample_batch(tasks, 0.0, &mut rng)), [20.5, 70.0]);
        let times = [1, 64, 100].map(|tasks| law("affine(20, 0.5, 0, 64)").sample_batch(tasks, 0.0, &mut rng));
        assert_eq!(times, [52.0, 52.0, 70.0], "up to the knee, a batch takes as long as one of 64");
        let mut noisy = law("affine(20, 0.5, 0.2)");
        let draws: Vec<f64> = (0..40_000).map(|_| noisy.sample_batch(100, 0.0, &mut rng) / 70.0).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 1.0).abs() < 0.005 && (variance.sqrt() - 0.2).abs() < 0.005, "{mean} {variance}");
        assert!(noisy.fuses() && !law("const(4)").fuses());
        assert_eq!(law("const(4)").sample_batch(3, 0.0, &mut rng), 12.0, "any other law: one task after the other");
        assert_eq!(law("scale(2)").sample_batch(3, 5.0, &mut rng), 10.0);
    }

    #[test]
    fn parameters_without_meaning_are_refused() {
        for (text, message) in [
            ("const(0)", "x is 0, expected a positive number"),
            ("const(ln(0-1))", "x is NaN"),
            ("exp(1/(i-2))", "mean is inf"),
            ("exp(0-1)", "mean is -1"),
            ("shifted_exp(0-1, 1)", "shift is -1, expected a number from 0 to 1e100"),
            ("uniform(3, 2)", "hi is 2, expected at least lo"),
            ("gamma(0, 0, 1)", "shape is 0"),
            ("weibull(0, 1, 0)", "scale is 0"),
            ("lognormal(0, 1, -1)", "sigma is -1"),
            ("half_normal(0, 0)", "sigma is 0"),
            ("affine(0-1, 1)", "o is -1, expected a number from 0 to 1e100"),
            ("lognormal(0, 0, 40)", "its mean is inf, expected a positive number"),
            ("lognormal(0, 0-1000, 0)", "its mean is 0, expected a positive number"),
            ("const(1e101)", "expected a positive number of at most 1e100"),
            ("exp(1e308*i)", "expected a positive number of at most 1e100"),
            ("affine(1, 0)", "s is 0, expected a positive number"),
            ("affine(1, 1, 0-1)", "cv is -1, expected a number from 0 to 1e100"),
            ("affine(1, 1, 0, 0-1)", "k is -1, expected a number from 0 to 1e100"),
        ] {
            let error = text.parse::<TimeLaws>().unwrap().of_worker(2, 3).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("worker 2 of 3"), "{text}: {error}");
        }
    }
}
