//! Time laws, which determine how long a worker's tasks take.
//!
//! A law is written like `shifted_exp(29*i, 29*i)`, where i is the worker's 1-based number and n the number of workers; a
//! `;`-separated list gives workers different laws in turn. `affine(o, s)` is the law of a device that computes a lease as one
//! batch, in o plus s for each of its tasks.

mod expression;
mod parser;
mod trace;
mod worker_law;

pub use trace::columns as trace_columns;
pub use worker_law::WorkerLaw;

use std::str::FromStr;

use ata_types::did_you_mean;
use expression::Expression;
use parser::Parser;
use trace::TraceArguments;
use worker_law::{KINDS, LawKind};

/// The longest time: sums of all times of a run, and of their squares, are still finite.
pub(crate) const LONGEST: f64 = 1e100;

/// The reason why a time law is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LawError {
    /// The text does not parse, or a parameter is out of range.
    #[error("time law {0}")]
    Invalid(String),
    /// A trace cannot be used.
    #[error("trace {0}")]
    Trace(String),
}

/// The laws of a cluster, as written.
#[derive(Clone, Debug)]
pub struct TimeLaws(Vec<(&'static LawKind, LawArguments)>);

#[derive(Clone, Debug)]
enum LawArguments {
    Numbers(Vec<Expression>),
    Trace(TraceArguments),
}

impl TimeLaws {
    /// Returns the law of worker `worker` (1-based) of `workers`.
    ///
    /// # Panics
    /// If `worker` is 0.
    pub fn of_worker(&self, worker: u32, workers: u32) -> Result<WorkerLaw, LawError> {
        let turn = worker.checked_sub(1).expect("workers are numbered from 1") as usize;
        let (kind, arguments) = &self.0[turn % self.0.len()];
        match arguments {
            LawArguments::Trace(arguments) => Ok(WorkerLaw::from_trace(arguments.of_worker(worker)?)),
            LawArguments::Numbers(expressions) => {
                let values: Vec<f64> =
                    expressions.iter().map(|e| e.evaluate(f64::from(worker), f64::from(workers))).collect();
                WorkerLaw::new(kind, &values, worker, workers)
            }
        }
    }

    /// Returns whether any worker's times are multiples of the real computation time.
    pub fn is_relative(&self) -> bool {
        self.0.iter().any(|(kind, _)| kind.name == "scale")
    }

    /// Returns the mean time of each of `workers` workers, if they can be compared: either all laws give absolute times, or all
    /// give multiples of the real computation time.
    pub fn means(&self, workers: u32) -> Result<Option<Vec<f64>>, LawError> {
        let laws = (1..=workers).map(|worker| self.of_worker(worker, workers)).collect::<Result<Vec<_>, _>>()?;
        let relative = laws.iter().filter(|law| law.is_relative()).count();
        let comparable = relative == 0 || relative == laws.len();
        Ok(comparable.then(|| laws.iter().map(WorkerLaw::mean).collect()))
    }
}

impl FromStr for TimeLaws {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        let mut parser = Parser::new(text);
        let mut laws = Vec::new();
        loop {
            laws.push(parse_law(&mut parser)?);
            if parser.at_end() {
                return Ok(Self(laws));
            }
            parser.expect(';')?;
        }
    }
}

fn parse_law(parser: &mut Parser<'_>) -> Result<(&'static LawKind, LawArguments), LawError> {
    let start = parser.position();
    let name = parser.word();
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let hint = did_you_mean(name, names.iter().copied());
        return Err(parser.error_at(start, &format!("a time law: {}{hint}", names.join(", "))));
    };
    parser.expect('(')?;
    let arguments = if kind.name == "trace" {
        LawArguments::Trace(TraceArguments::parse(parser)?)
    } else {
        let mut expressions = vec![Expression::parse(parser)?];
        let needed = kind.parameters.len() - kind.optional;
        for (at, parameter) in kind.parameters.iter().enumerate().skip(1) {
            if !parser.accept(',') {
                if at >= needed {
                    break;
                }
                return Err(parser.error(&format!("',' and {parameter}")));
            }
            expressions.push(Expression::parse(parser)?);
        }
        LawArguments::Numbers(expressions)
    };
    parser.expect(')')?;
    Ok((kind, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_take_turns() {
        let laws: TimeLaws = "scale(1); scale(2) ;scale(2+i)".parse().unwrap();
        assert_eq!(laws.means(5).unwrap(), Some(vec![1.0, 2.0, 5.0, 1.0, 2.0]));
        let unlike: TimeLaws = "scale(1); const(5)".parse().unwrap();
        assert_eq!(unlike.means(2).unwrap(), None, "they cannot be compared");
    }

    #[test]
    fn mistakes_are_located() {
        for (text, position, expected) in [
            ("", 1, "a time law: const, exp,"),
            ("gaussian(1)", 1, "a time law"),
            ("exp 3", 5, "'('"),
            ("exp(3", 6, "')'"),
            ("exp(3, 4)", 6, "')'"),
            ("uniform(1)", 10, "',' and hi"),
            ("affine(1)", 9, "',' and s"),
            ("affine(1, 2, 3, 4, 5)", 18, "')'"),
            ("exp(2*)", 7, "a number, i, n"),
            ("exp(x)", 5, "a number, i, n"),
            ("exp(1..2)", 5, "a number"),
            ("exp(1); ", 9, "a time law"),
            ("exp(1) exp(2)", 8, "';'"),
        ] {
            let error = text.parse::<TimeLaws>().unwrap_err().to_string();
            let place = format!("time law '{text}': at character {position}, expected {expected}");
            assert!(error.starts_with(&place), "{error}");
        }
    }
}
