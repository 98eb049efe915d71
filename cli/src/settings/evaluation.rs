//! The setting `evaluate_on`: the evaluators of parameters on the test data.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::failure::Failure;

/// The setting `evaluate_on`: the evaluators of parameters on the test data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EvaluateOn {
    /// Workers without tasks, and the coordinator if there are none; the coordinator alone if workers are not trusted.
    #[default]
    Auto,
    /// The coordinator alone.
    Head,
    /// Workers alone, those without tasks first.
    Workers,
}

/// The processes that may evaluate the parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evaluators {
    pub(crate) head: bool,
    pub(crate) workers: bool,
}

impl Settings {
    /// Returns the evaluators of a run. `has_model` says whether the coordinator has the model and the test data.
    pub(crate) fn evaluators(&self, has_model: bool) -> Result<Evaluators, Failure> {
        let trusts_workers = self.verify == 0.0;
        match self.evaluate_on {
            EvaluateOn::Head if !has_model => Err(Failure::usage(format!(
                "evaluate_on = head: this program does not have the model '{}', only its parameters (--init); expected auto or \
                 workers",
                self.model
            ))),
            EvaluateOn::Head => Ok(Evaluators { head: true, workers: false }),
            EvaluateOn::Workers => Ok(Evaluators { head: false, workers: true }),
            EvaluateOn::Auto => Ok(Evaluators { head: has_model, workers: !has_model || trusts_workers }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluators(on: EvaluateOn, has_model: bool, verify: f64) -> Option<(bool, bool)> {
        let settings = Settings { evaluate_on: on, verify, ..Settings::default() };
        settings.evaluators(has_model).ok().map(|evaluators| (evaluators.head, evaluators.workers))
    }

    #[test]
    fn workers_evaluate_unless_they_are_not_trusted() {
        assert_eq!(evaluators(EvaluateOn::Auto, true, 0.0), Some((true, true)));
        assert_eq!(evaluators(EvaluateOn::Auto, true, 0.1), Some((true, false)));
        assert_eq!(evaluators(EvaluateOn::Auto, false, 0.1), Some((false, true)), "there is no other way");
        assert_eq!(evaluators(EvaluateOn::Workers, true, 0.1), Some((false, true)));
        assert_eq!(evaluators(EvaluateOn::Head, true, 0.0), Some((true, false)));
        assert_eq!(evaluators(EvaluateOn::Head, false, 0.0), None);
    }
}
