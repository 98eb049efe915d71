//! Tests models on packed images, to which they adapt.

use std::fs;
use std::path::PathBuf;

use ata_data::{DataSource, FolderOptions, Packing, Split, Tasks, Unpacked};
use ata_learn::{DeviceChoice, builtin_model};
use ata_types::Iteration;
use image::{Rgb, RgbImage};
use tempfile::TempDir;

/// Writes 50 training images and 20 test images of each of three classes, and packs them.
fn packed(size: usize) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let (images, out) = (folder.path().join("images"), folder.path().join("out"));
    for (split, count) in [("train", 50), ("test", 20)] {
        for (number, class) in ["ant", "bee", "cat"].into_iter().enumerate() {
            let class = images.join(split).join(class);
            fs::create_dir_all(&class).unwrap();
            for at in 0..count {
                let colour = Rgb([50 * number as u8, at, 7]);
                RgbImage::from_pixel(16, 16, colour).save(class.join(format!("{at:03}.png"))).unwrap();
            }
        }
    }
    let packing = Packing { size, skip_bad: false, shard_bytes: None };
    Unpacked::find(&images, None).unwrap().unwrap().pack(&out, packing, &mut |_, _| ()).unwrap();
    (folder, out)
}

/// A model takes classes and size from the data, and refuses others. A worker that has its specification and a file computes the same
/// gradients.
#[test]
fn a_model_is_adapted_to_packed_images() {
    let (_folder, out) = packed(16);
    let adapted = builtin_model("cnn:widths=4/4/8/16")
        .unwrap()
        .adapt(&out, FolderOptions::default(), &mut |_, _| ())
        .unwrap()
        .unwrap();
    assert_eq!((adapted.parameters.join(","), adapted.data), ("classes=3,size=16".to_owned(), out.clone()));
    let (model, there) = (adapted.model, builtin_model("cnn:widths=4/4/8/16,classes=3,size=16").unwrap());
    assert_eq!(
        (model.class_names(), model.parameter_count()),
        (["ant", "bee", "cat"].map(String::from).into(), there.parameter_count())
    );
    assert_eq!(model.metadata()["classes"], "ant,bee,cat");
    let test = out.join("test.packed");
    let mut bytes = fs::read(&test).unwrap();
    let name = bytes.windows(3).position(|name| name == b"bee").unwrap();
    bytes[name] = b'B';
    fs::write(&test, bytes).unwrap();
    let error = model.open(&DataSource::File(test), Split::Test).err().unwrap().to_string();
    assert!(error.contains("are not those of the training images"), "{error}");
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let tasks = Tasks { seed: 1, budget: 2, task_batch: 8 };
    let parameters = model.initial_parameters(1).unwrap();
    let [here, there] = [model, there].map(|model| {
        let source = DataSource::File(model.locate(&out, Split::Train).unwrap());
        let mut learner = model.open(&source, Split::Train).unwrap().learner(&cpu, tasks);
        learner.load(&parameters);
        learner.gradient(Iteration(1), 1).unwrap()
    });
    assert!(here == there && here.gradient.iter().any(|value| *value != 0.0));
    // The loss of an untrained model is ln 3 = 1.10.
    assert!((0.8..1.6).contains(&here.loss), "{}", here.loss);

    let refused =
        builtin_model("cnn:classes=4").unwrap().open(&DataSource::File(out.join("train.packed")), Split::Train);
    assert!(refused.err().unwrap().to_string().contains("the data has 3 classes of 16 × 16 pixels"));
}

/// Evaluation batches shrink, since activations grow with the number of pixels.
#[test]
fn evaluation_batches_of_larger_images_have_fewer() {
    for (size, expected) in [(16, 250), (64, 128)] {
        let (_folder, out) = packed(size);
        let model = builtin_model(&format!("cnn:classes=3,size={size}")).unwrap();
        let test = model.open(&DataSource::File(out.join("test.packed")), Split::Test).unwrap();
        let evaluator = test.evaluator(&DeviceChoice::Cpu.open().unwrap());
        assert_eq!(evaluator.batches().batch_samples, expected, "{size}");
    }
}
