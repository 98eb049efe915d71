//! Tests models on packed images: they adapt to them, and compute the same wherever their shards come from.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ata_data::{
    DataError, DataSource, ImageChecksummer, Packing, Shard, ShardFile, ShardStore, Split, Tasks, Unpacked, hex,
};
use ata_learn::{DeviceChoice, builtin_model};
use ata_types::Iteration;
use image::{Rgb, RgbImage};
use tempfile::TempDir;

/// A folder with 50 training images and 20 test images of each of three classes.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        for (split, count) in [("train", 50), ("test", 20)] {
            for (number, class) in ["ant", "bee", "cat"].into_iter().enumerate() {
                let folder = place.0.path().join("images").join(split).join(class);
                fs::create_dir_all(&folder).unwrap();
                for at in 0..count {
                    let colour = Rgb([50 * number as u8, at, 7]);
                    RgbImage::from_pixel(16, 16, colour).save(folder.join(format!("{at:03}.png"))).unwrap();
                }
            }
        }
        place
    }

    fn out(&self) -> PathBuf {
        self.0.path().join("out")
    }

    fn pack(&self, size: usize, shard_bytes: Option<u64>) {
        drop(fs::remove_dir_all(self.out()));
        let unpacked = Unpacked::find(&self.0.path().join("images")).unwrap().unwrap();
        unpacked.pack(&self.out(), Packing { size, skip_bad: false, shard_bytes }, &mut |_, _| ()).unwrap();
    }
}

/// A store that cuts shards out of a packed file, and records their numbers.
#[derive(Debug)]
struct Cutter {
    packed: Vec<u8>,
    folder: TempDir,
    opened: Mutex<BTreeSet<u64>>,
    expected: Mutex<BTreeSet<u64>>,
}

impl Cutter {
    fn new(packed: &Path) -> Self {
        let [opened, expected] = [const { Mutex::new(BTreeSet::new()) }; 2];
        Self { packed: fs::read(packed).unwrap(), folder: TempDir::new().unwrap(), opened, expected }
    }
}

impl ShardStore for Cutter {
    fn open(&self, shard: &Shard) -> Result<ShardFile, DataError> {
        let path = self.folder.path().join(hex(&shard.sha256));
        self.opened.lock().unwrap().insert(shard.number);
        let bytes = &self.packed[shard.offset as usize..][..shard.bytes as usize];
        fs::write(&path, bytes).unwrap();
        let mut images = ImageChecksummer::new(shard);
        images.add(bytes);
        Ok(ShardFile::new(File::open(path).unwrap(), images.finish()))
    }

    fn recheck(&self, _: &Shard) {}

    fn expect(&self, shards: &[Shard]) {
        *self.expected.lock().unwrap() = shards.iter().map(|shard| shard.number).collect();
    }
}

/// A model takes classes and size from the data. A worker that has its specification and a file computes the same gradients.
#[test]
fn a_model_is_adapted_to_packed_images() {
    let place = Place::new();
    place.pack(16, None);
    let adapted = builtin_model("cnn:widths=4/4/8/16").unwrap().adapt(&place.out(), &mut |_, _| ()).unwrap().unwrap();
    assert_eq!((adapted.parameters.join(","), adapted.data), ("classes=3,size=16".to_owned(), place.out()));
    let (model, there) = (adapted.model, builtin_model("cnn:widths=4/4/8/16,classes=3,size=16").unwrap());
    assert_eq!(
        (model.class_names(), model.parameter_count()),
        (["ant", "bee", "cat"].map(String::from).into(), there.parameter_count())
    );
    assert_eq!(model.metadata()["classes"], "ant,bee,cat");
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let tasks = Tasks { seed: 1, budget: 2, task_batch: 8 };
    let parameters = model.initial_parameters(1).unwrap();
    let [here, there] = [model, there].map(|model| {
        let source = DataSource::File(model.locate(&place.out(), Split::Train).unwrap());
        let mut learner = model.open(&source, Split::Train).unwrap().learner(&cpu, tasks);
        learner.load(&parameters);
        learner.gradient(Iteration(1), 1).unwrap()
    });
    assert!(here == there && here.gradient.iter().any(|value| *value != 0.0));
    // The loss of an untrained model is ln 3 = 1.10.
    assert!((0.8..1.6).contains(&here.loss), "{}", here.loss);

    let refused =
        builtin_model("cnn:classes=4").unwrap().open(&DataSource::File(place.out().join("train.packed")), Split::Train);
    assert!(refused.err().unwrap().to_string().contains("the data has 3 classes of 16 × 16 pixels"));
}

/// Evaluation batches shrink, since activations grow with the number of pixels.
#[test]
fn evaluation_batches_of_larger_images_have_fewer() {
    let place = Place::new();
    for (size, expected) in [(16, 250), (64, 128)] {
        place.pack(size, None);
        let model = builtin_model(&format!("cnn:classes=3,size={size}")).unwrap();
        let test = model.open(&DataSource::File(place.out().join("test.packed")), Split::Test).unwrap();
        let evaluator = test.evaluator(&DeviceChoice::Cpu.open().unwrap());
        assert_eq!(evaluator.batches().batch_samples, expected, "{size}");
    }
}

#[test]
fn a_test_of_other_classes_is_refused() {
    let place = Place::new();
    place.pack(16, None);
    let adapted = builtin_model("cnn").unwrap().adapt(&place.out(), &mut |_, _| ()).unwrap().unwrap();
    let test = place.out().join("test.packed");
    let mut bytes = fs::read(&test).unwrap();
    let name = bytes.windows(3).position(|name| name == b"bee").unwrap();
    bytes[name] = b'B';
    fs::write(&test, bytes).unwrap();
    let error = adapted.model.open(&DataSource::File(test), Split::Test).err().unwrap().to_string();
    assert!(error.contains("are not those of the training images"), "{error}");
}

/// A worker computes the same gradients from shards that it obtains as from the file, and only opens announced shards.
#[test]
fn gradients_do_not_depend_on_where_shards_come_from() {
    let place = Place::new();
    // A shard has 25 images.
    place.pack(8, Some(25 * (2 + 3 * 8 * 8)));
    let out = place.out();
    let model = builtin_model("cnn:widths=4/4/8/16,classes=3,size=8").unwrap();
    let index = out.join("train.shards");
    let store = Arc::new(Cutter::new(&out.join("train.packed")));
    let sources = [DataSource::File(index.clone()), DataSource::Shards { index: index.clone(), store: store.clone() }];
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let tasks = Tasks { seed: 1, budget: 4, task_batch: 5 };
    let [here, there] = sources.map(|source| {
        let mut learner = model.open(&source, Split::Train).unwrap().learner(&cpu, tasks);
        learner.load(&model.initial_parameters(1).unwrap());
        [(1, 0), (1, 3), (8, 1)].map(|(iteration, index)| learner.gradient(Iteration(iteration), index).unwrap())
    });
    assert!(here == there);
    let (opened, expected) = (store.opened.lock().unwrap(), store.expected.lock().unwrap());
    assert!(opened.is_subset(&expected) && !opened.is_empty(), "{opened:?} {expected:?}");
}
