use burn::module::{Module, Param, ParamId};

use super::*;
use crate::model::{Cnn, CnnWidths, ImageClassifier, ImageParameters};
use crate::nn::tests::apart;
use ata_data::{DataSource, Images, Split};

const TASKS: Tasks = Tasks { seed: 1, budget: 8, task_batch: 4 };

/// Returns a learner on the CPU device. If `as_gpu` is set, it keeps its samples there and prepares batches, as on other devices.
fn learner(as_gpu: bool, fused_tasks: u64) -> Box<dyn Learner> {
    let widths: CnnWidths = "4/4/8/16".parse().unwrap();
    let problem = Arc::new(ImageClassifier::new(ImageParameters::default(), move |shape, device: &Device| {
        Cnn::new(widths, shape, device)
    }));
    let samples = Images::open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
    let count = problem.network(&Device::flex()).num_params();
    let on_device = as_gpu.then(|| samples.on_device(&Device::flex()).unwrap().unwrap());
    let data = Arc::new(OpenData { problem, samples });
    let new = BurnLearner::new(data, TASKS, &crate::DeviceChoice::Cpu.open().unwrap());
    let mut learner = BurnLearner { on_device, prepares: as_gpu, fused_tasks, ..new };
    let parameters: Vec<f32> =
        (0..count as u32).map(|at: u32| (at.wrapping_mul(2_654_435_761) as f32).sin() / 9.0).collect();
    learner.load(&parameters);
    Box::new(learner)
}

fn bits(task: &TaskGradient) -> (Vec<u32>, u64) {
    (task.gradient.iter().map(|value| value.to_bits()).collect(), task.loss.to_bits())
}

#[test]
fn gradients_are_the_same_bits_with_samples_on_the_device() {
    let (mut host, mut device) = (learner(false, 8), learner(true, 8));
    for (iteration, index) in [(1, 0), (1, 1), (1, 7), (3, 9)] {
        // The hint is right once.
        device.announce(Iteration(1), TaskRange { first: 0, count: 8 }, 1);
        let expected = host.gradient(Iteration(iteration), index).unwrap();
        assert_eq!(bits(&device.gradient(Iteration(iteration), index).unwrap()), bits(&expected));
    }
}

/// In bf16, every number has a relative error of up to 2⁻⁹, so a gradient is close to that in f32, but not equal.
#[test]
fn gradients_in_bf16_are_near_those_in_f32() {
    for model in ["cnn:widths=4/4/8/16", "resnet20", "resnet20:norm=batch"] {
        let model = crate::builtin_model(model).unwrap();
        let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
        let parameters = model.initial_parameters(1).unwrap();
        let [expected, found] = [Precision::F32, Precision::Bf16].map(|precision| {
            let device = crate::DeviceChoice::Cpu.open().unwrap().with_precision(precision).unwrap();
            let mut learner = data.clone().learner(&device, TASKS);
            learner.load(&parameters);
            learner.fused(Iteration::FIRST, TaskRange { first: 0, count: 2 }).unwrap()
        });
        let error = apart(&found.gradient, &expected.gradient);
        assert!((1e-4..0.1).contains(&error), "{error}");
        assert!((found.loss / expected.loss - 1.0).abs() < 0.01, "{} is not near {}", found.loss, expected.loss);
    }
}

/// The bound is ‖fused − summed‖ ≤ 1e-5 ‖summed‖, which is also what `ata doctor` requires of a GPU.
#[test]
fn a_lease_as_one_batch_is_the_sum_of_its_tasks_but_for_rounding() {
    for (first, count, at_once) in [(0, 8, 8), (3, 5, 8), (0, 8, 3), (2, 1, 8)] {
        let mut learner = learner(true, at_once);
        let fused = learner.fused(Iteration(2), TaskRange { first, count }).unwrap();
        let mut summed = TaskGradient { gradient: vec![0.0; fused.gradient.len()], loss: 0.0 };
        for index in first..first + count {
            let task = learner.gradient(Iteration(2), index).unwrap();
            summed.gradient.iter_mut().zip(task.gradient).for_each(|(sum, value)| *sum += value);
            summed.loss += task.loss;
        }
        let error = apart(&fused.gradient, &summed.gradient);
        assert!(error <= 1e-5, "{count} tasks: {error}");
        assert!((fused.loss / summed.loss - 1.0).abs() <= 1e-5, "{} is not {}", fused.loss, summed.loss);
    }
}

#[test]
fn a_task_in_parts_is_the_whole_but_for_rounding() {
    for (name, is_refused) in [
        ("resnet20:width=8,augment=crop/flip", false),
        ("resnet20:width=8,augment=mixup", true),
        ("resnet20:width=8,norm=batch", true),
    ] {
        let model = crate::builtin_model(name).unwrap();
        let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
        let parameters = model.initial_parameters(1).unwrap();
        let tasks = Tasks { task_batch: 11, ..TASKS };
        let gradient = |micro_batch| {
            let device = crate::DeviceChoice::Cpu.open().unwrap().with_micro_batch(micro_batch);
            let mut learner = data.clone().learner(&device, tasks);
            learner.load(&parameters);
            learner.gradient(Iteration(2), 3)
        };
        let whole = gradient(None).unwrap();
        assert_eq!(bits(&gradient(Some(11)).unwrap()), bits(&whole));
        for most in [1, 3, 10] {
            match gradient(Some(most)) {
                Ok(found) => {
                    assert!(!is_refused && apart(&found.gradient, &whole.gradient) < 1e-5);
                    assert!((found.loss / whole.loss - 1.0).abs() < 1e-5, "{} is not {}", found.loss, whole.loss);
                }
                Err(error) => assert!(is_refused && error.to_string().contains("--micro-batch"), "{error}"),
            }
        }
    }
}

/// A layer of 512 inputs and outputs, whose weight takes 1 MiB.
#[derive(Module, Debug)]
struct OneLayer {
    layer: crate::nn::Linear,
    twice: bool,
    /// Whether the weight of another layer is computed from the weight of this one.
    derived: bool,
}

impl crate::model::Network for OneLayer {
    fn forward(&self, images: burn::tensor::Tensor<4>) -> burn::tensor::Tensor<2> {
        let x = images.flatten::<2>(1, 3).narrow(1, 0, 512);
        let mut y = self.layer.forward(x);
        if self.twice {
            y = self.layer.forward(y);
        }
        if self.derived {
            let weight = Param::initialized(ParamId::new(), self.layer.weight.val() * 2.0);
            y = crate::nn::Linear::new(burn::nn::Linear { weight, bias: None }).forward(y);
        }
        y.narrow(1, 0, 100)
    }
}

/// Sums from factors are bit-identical to sums of gradients, and a weight that is used in several ways has no factors.
#[test]
fn factors_add_up_to_the_same_sum() {
    for (twice, derived) in [(false, false), (true, false), (false, true)] {
        let problem = Arc::new(ImageClassifier::new(ImageParameters::default(), move |_, device: &Device| {
            let layer = burn::nn::LinearConfig::new(512, 512).init(device);
            OneLayer { layer: crate::nn::Linear::new(layer), twice, derived }
        }));
        let samples = Images::open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
        let data = Arc::new(OpenData { problem, samples });
        crate::on_one_thread(|| {
            let mut learner = BurnLearner::new(data, TASKS, &crate::DeviceChoice::Cpu.open().unwrap());
            let parameters: Vec<f32> = (0..513 * 512).map(|at| (at as f32).sin() / 22.0).collect();
            learner.load(&parameters);
            let sizes = ata_sums::TensorSizes::new([512 * 512, 512]);
            let units = ata_sums::Units::from_exponents(&[-30, -30], &sizes).unwrap();
            let quantizer = Quantizer::new(units, sizes.clone(), TASKS.budget, ata_types::WireFormat::F32Exact);
            let (mut sum, mut expected) = (GradientSum::new(&sizes), GradientSum::new(&sizes));
            for task in 0..3 {
                let loss = learner.add(Iteration(1), TaskRange::single(task), &mut sum, &quantizer).unwrap();
                let TaskGradient { gradient, loss: of_task } = learner.gradient(Iteration(1), task).unwrap();
                expected.add(&gradient, 1, &quantizer).unwrap();
                assert_eq!(loss.to_bits(), of_task.to_bits());
            }
            assert!(sum == expected && sum.values.iter().any(|value| *value != 0), "{twice} {derived}");
            assert_eq!(learner.keeps_factors, !twice && !derived);
        });
    }
}

/// Running statistics are averaged parameters, whose parts are compared apart from the gradient.
#[test]
fn normalised_tasks_are_the_same_in_a_batch_but_for_rounding() {
    let model = crate::builtin_model("resnet20:norm=batch,width=8").unwrap();
    let trained = ata_sums::TensorSizes::from(&model.table()).trained_values();
    let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
    let parameters = model.initial_parameters(1).unwrap();
    let of_tasks = |tasks: &[(u64, u64)]| {
        let mut learner = data.clone().learner(&crate::DeviceChoice::Cpu.open().unwrap(), TASKS);
        learner.load(&parameters);
        let mut sum = vec![0.0; parameters.len()];
        for (first, count) in tasks {
            let part = learner.fused(Iteration(2), TaskRange { first: *first, count: *count }).unwrap();
            sum.iter_mut().zip(part.gradient).for_each(|(sum, value)| *sum += value);
        }
        sum
    };
    let alone = of_tasks(&[(0, 1), (1, 1), (2, 1)]);
    for fused in [of_tasks(&[(0, 3)]), of_tasks(&[(0, 1), (1, 2)]), nn::by_burn(|| of_tasks(&[(0, 3)]))] {
        for (what, part) in [("gradient", 0..trained), ("statistics", trained..parameters.len())] {
            let error = apart(&fused[part.clone()], &alone[part]);
            assert!(error <= 1e-4, "{what}: {error}");
        }
    }
    assert!(alone[trained..].iter().all(|value| *value != 0.0), "each task changes each statistic");
}

/// A network with dropout, or with a normalisation of burn.
#[derive(Module, Debug)]
struct OtherNetwork {
    layer: crate::nn::Linear,
    dropout: crate::nn::Dropout,
    norm: Option<burn::nn::BatchNorm>,
}

impl crate::model::Network for OtherNetwork {
    fn forward(&self, images: burn::tensor::Tensor<4>) -> burn::tensor::Tensor<2> {
        let x = self.layer.forward(self.dropout.forward(images.flatten::<2>(1, 3).narrow(1, 0, 64)));
        self.norm.as_ref().map_or_else(|| x.clone(), |norm| norm.forward(x.clone()))
    }
}

fn learner_of(norm: bool) -> Box<dyn Learner> {
    let problem = Arc::new(ImageClassifier::new(ImageParameters::default(), move |_, device: &Device| OtherNetwork {
        layer: crate::nn::Linear::new(burn::nn::LinearConfig::new(64, 100).init(device)),
        dropout: crate::nn::Dropout::new(burn::nn::DropoutConfig::new(0.5).init()),
        norm: norm.then(|| burn::nn::BatchNormConfig::new(100).init(device)),
    }));
    let samples = Images::open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
    let data = Arc::new(OpenData { problem, samples });
    let mut learner = BurnLearner::new(data, TASKS, &crate::DeviceChoice::Cpu.open().unwrap());
    let parameters: Vec<f32> = (0..65 * 100 + 4 * 100 * usize::from(norm)).map(|at| (at as f32).sin() / 9.0).collect();
    learner.load(&parameters);
    Box::new(learner)
}

/// The zeros of dropout depend on (seed, iteration, task) only.
#[test]
fn dropout_is_the_same_in_every_batch() {
    let [mut fresh, mut used] = [(); 2].map(|()| learner_of(false));
    used.gradient(Iteration(1), 3).unwrap();
    let expected = fresh.gradient(Iteration(2), 1).unwrap();
    assert_eq!(used.gradient(Iteration(2), 1).unwrap(), expected);
    let mut sum = fresh.gradient(Iteration(2), 0).unwrap().gradient;
    sum.iter_mut().zip(&expected.gradient).for_each(|(sum, value)| *sum += value);
    let fused = used.fused(Iteration(2), TaskRange { first: 0, count: 2 }).unwrap();
    assert!(apart(&fused.gradient, &sum) <= 1e-5);
}

#[test]
fn a_layer_that_changes_itself_is_refused() {
    learner_of(false).warm_up(1).unwrap();
    let error = learner_of(true).warm_up(1).unwrap_err().to_string();
    assert!(error.contains("replace burn's BatchNorm by ata_learn::nn::BatchNorm"), "{error}");
}

/// While a run goes on, a device compiles nothing: whatever the size of a lease, it is computed in batches that were warmed up.
#[test]
fn batches_have_few_sizes() {
    for most in [1, 2, 5, 16, 21, 512] {
        let sizes: Vec<u64> = (1..=most).filter(|size| batch_size(*size, most) == *size).collect();
        assert!(sizes.len() as f64 <= 2.0 * (most as f64).log2() + 1.0 && sizes[0] == 1, "{sizes:?}");
        for count in 1..2 * most + 40 {
            let batches: Vec<TaskRange> = batches(TaskRange { first: 7, count }, most).collect();
            assert!(batches.iter().all(|batch| sizes.contains(&batch.count) && batch.count <= count), "{batches:?}");
            assert_eq!(batches.iter().map(|batch| batch.count).sum::<u64>(), count);
            assert!(batches.windows(2).all(|pair| pair[0].end() == pair[1].first));
            // After whole batches, each one takes at least half of what is left.
            assert!(batches.len() as u64 <= count / most + u64::from(most.ilog2()) + 1, "{batches:?}");
        }
    }
}
