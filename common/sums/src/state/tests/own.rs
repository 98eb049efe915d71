//! An optimizer that the program brings, against the built-in one with the same rule.

use super::*;

/// Gradient descent with momentum 0.5, which keeps its velocity.
#[derive(Debug, Default)]
struct Momentum(Vec<f32>);

impl OwnOptimizer for Momentum {
    fn step(&mut self, step: crate::OwnStep<'_>) -> Result<f64, String> {
        if step.time == 9 {
            return Err("out of luck".into());
        }
        self.0.resize(step.gradient.len(), 0.0);
        for ((velocity, value), gradient) in self.0.iter_mut().zip(step.values).zip(step.gradient) {
            *velocity = 0.5 * *velocity + gradient;
            *value -= *velocity * (0.1 * step.rate_factor) as f32;
        }
        Ok(0.1 * step.rate_factor)
    }

    fn state(&self) -> Result<Vec<u8>, String> {
        Ok(self.0.iter().flat_map(|velocity| velocity.to_le_bytes()).collect())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        self.0 = state.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Ok(())
    }
}

#[test]
fn an_optimizer_of_the_program_takes_the_steps_and_is_restored() {
    for format in [F32Exact, Compact] {
        let (mut own, mut ours) =
            (state(Rule::Own, format), state(Rule::Sgd { momentum: 0.5, nesterov: false }, format));
        ours.trained.config.optimizer.weight_decay = 0.0;
        own.set_own(Box::<Momentum>::default()).unwrap();
        let length = own.parameters().len();
        for time in 1..9 {
            let gradient: Vec<f32> = (0..length).map(|at| ((at * 7 + time) as f32).sin()).collect();
            let (outcome, found) = own.step_whole(gradient.clone(), 4, 0.5, false).unwrap();
            let (_, expected) = ours.step_whole(gradient, 4, 0.05, false).unwrap();
            assert_eq!((outcome.own_rate, own.needs_whole(false)), (Some(0.05), true));
            assert!(found[0].differences.is_some() == (format == Compact) && found.len() == expected.len());
            own.commit_step(&MAXIMA);
            ours.commit_step(&MAXIMA);
            let saved = own.saved().unwrap();
            assert!(saved.clone().set_own(Box::<Momentum>::default()).is_ok() && own.own_state().is_none());
            own = saved;
            own.set_own(Box::<Momentum>::default()).unwrap();
        }
        for (own, ours) in [(own.parameters(), ours.parameters()), (own.ema().unwrap(), ours.ema().unwrap())] {
            assert!(own.iter().zip(ours).all(|(own, ours)| (own - ours).abs() < 1e-6));
        }
        assert_eq!(own.step_whole(vec![0.0; length], 4, 0.5, false).unwrap_err(), "out of luck");
        assert!(own.clone().set_own(Box::<Momentum>::default()).unwrap_err().contains("its state is missing"));
    }
}
