//! Tests of `ata data pack`, and of training on a folder of images.

use std::fs::File;
use std::path::Path;

use crate::support::Sandbox;

/// Writes images of 20 × 16 pixels: 30 of each of two classes to train on, and 10 to test with.
fn images(folder: &Path) {
    for (split, count) in [("train", 30), ("test", 10)] {
        for (class, value) in [("dark", 20), ("light", 200)] {
            let folder = folder.join(split).join(class);
            std::fs::create_dir_all(&folder).unwrap();
            for at in 0..count {
                let mut encoder = png::Encoder::new(File::create(folder.join(format!("{at}.png"))).unwrap(), 20, 16);
                encoder.set_color(png::ColorType::Rgb);
                let pixels: Vec<u8> = (0..20 * 16 * 3).map(|pixel| value + ((pixel * 7 + at) % 50) as u8).collect();
                encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
            }
        }
    }
}

const UP: [&str; 11] =
    ["up", "--workers", "2", "--task-time", "none", "--lr", "0.01", "--task-batch", "2", "--device", "cpu"];

/// The run is the same whether images are packed explicitly or automatically, with or without parameters in the specification.
#[test]
fn a_model_learns_from_a_folder_of_images() {
    let sandbox = Sandbox::new();
    images(&sandbox.path("photos"));
    let up = |data: &str, model: &str, more: &[&str]| {
        sandbox.summary(&[&UP[..], &["--data", data, "--model", model], more].concat())
    };
    let summary = up("photos", "cnn:widths=4/4/8/16,size=16", &["--out", "a", "--iterations", "30"]);
    assert_eq!(summary["test_accuracy"], 1.0);
    let said = sandbox.text(&["data", "pack", "photos", "packed", "--size", "16"]);
    assert!(said.contains("60 images of 16 × 16 pixels in 2 classes"), "{said}");
    let again = up("packed", "cnn:widths=4/4/8/16", &["--out", "b", "--iterations", "30"]);
    assert_eq!(again["parameters_sha256"], summary["parameters_sha256"]);
    assert!(sandbox.text(&["data", "verify", "packed"]).contains("60 records, all labels in range"));

    let eval = sandbox.summary(&["eval", "b", "--data", "packed"]);
    let names: Vec<_> = eval["classes"].as_array().unwrap().iter().map(|class| class["name"].clone()).collect();
    assert_eq!((names, &eval["samples"]), (vec!["dark".into(), "light".into()], &20.into()));
    // This folder also has two classes, but with other names.
    for class in ["dark", "light"] {
        for split in ["train", "test"] {
            let folder = sandbox.path("photos").join(split);
            std::fs::rename(folder.join(class), folder.join(format!("not {class}"))).unwrap();
        }
    }
    sandbox.fails(&["eval", "b", "--data", "photos"], 65, "class 0 is 'not dark'");
    // The run is resumed with the command that started it.
    let resumed = up("packed", "cnn:widths=4/4/8/16", &["--resume", "b", "--iterations", "31"]);
    assert_eq!(resumed["iterations"], 31);
}

/// Workers fetch shards from the object store and not from the coordinator.
#[cfg(feature = "object-store")]
#[test]
fn images_in_an_object_store() {
    let sandbox = Sandbox::new();
    images(&sandbox.path("photos"));
    sandbox.text(&["data", "pack", "photos", "packed", "--size", "256", "--shard-mb", "1"]);
    let url = format!("file://{}", sandbox.path("packed").display());
    let train = |data: &str, out: &str| {
        let run = ["--data", data, "--iterations", "3", "--model", "cnn:widths=2/2/2/4", "--budget", "4", "--out", out];
        sandbox.summary(&[&UP[..], &run].concat())
    };
    let (here, there) = (train("packed", "a"), train(&url, "b"));
    assert_eq!(here["parameters_sha256"], there["parameters_sha256"]);
    assert_eq!(here["test_loss"], there["test_loss"]);
    let eval = sandbox.summary(&["eval", "b"]);
    assert_eq!((&eval["loss"], &eval["data"]), (&there["test_loss"], &url.clone().into()));

    let up = ["up", "--data", &url];
    std::fs::remove_file(sandbox.path("packed/test.shards")).unwrap();
    sandbox.fails(&up, 65, "test.shards: pack the images with `ata data pack DIR OUT --shard-mb 64`");
    std::fs::write(sandbox.path("packed/test.shards"), "no index").unwrap();
    sandbox.fails(&up, 65, "is it cut short?");
}

#[test]
fn images_in_shards() {
    let sandbox = Sandbox::new();
    images(&sandbox.path("photos"));
    // A record of 256 × 256 pixels has 197 kB, so a shard of a megabyte contains five of the 60 images.
    let said = sandbox.text(&["data", "pack", "photos", "packed", "--size", "256", "--shard-mb", "1"]);
    assert!(said.contains("train.shards: 12 shards of 5 images"), "{said}");
    let run = ["--data", "packed", "--iterations", "3", "--model", "cnn:widths=2/2/2/4", "--budget", "4"];
    sandbox.text(&[&UP[..], &run].concat());
    let verify = ["data", "verify", "packed"];
    assert!(sandbox.text(&verify).contains("60 images in 12 shards"));
    let path = sandbox.path("packed/train.packed");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    sandbox.fails(&verify, 65, "shard 11, images 55 to 59, has changed");
}

#[test]
fn a_folder_without_test_images_is_split() {
    let sandbox = Sandbox::new();
    images(&sandbox.path("photos"));
    std::fs::remove_dir_all(sandbox.path("photos/test")).unwrap();
    let up = [&UP[..], &["--data", "photos/train", "--iterations", "1", "--out", "a"]].concat();
    sandbox.fails(&up, 65, "--validation 5%");
    sandbox.summary(&[&up[..], &["--validation", "20%"]].concat());
    sandbox.text(&["data", "pack", "photos", "packed", "--validation", "0.2"]);
    // Both ways to the images give the same split.
    let count = |data: &[&str]| sandbox.summary(&[&["eval", "a"], data].concat())["samples"].clone();
    assert_eq!(count(&[]), count(&["--data", "packed"]));
    for (data, share, code) in
        [("synthetic", "5%", 64), ("packed", "5%", 65), ("photos", "5", 64), ("photos", "0%", 64)]
    {
        sandbox.fails(&["up", "--data", data, "--validation", share], code, "--validation");
    }
}

#[test]
fn bad_images_end_the_command_with_65_unless_they_are_left_out() {
    let sandbox = Sandbox::new();
    images(&sandbox.path("photos"));
    std::fs::write(sandbox.path("photos/train/dark/broken.png"), "no image").unwrap();
    std::fs::write(sandbox.path("photos/train/dark/notes.txt"), "no image").unwrap();
    for args in [&["data", "pack", "photos", "packed"][..], &["up", "--data", "photos"]] {
        let said = sandbox.fails(args, 65, "2 of the files cannot be read as images");
        assert!(["broken.png: ", "notes.txt: "].iter().all(|name| said.contains(name)), "{said}");
    }
    sandbox.fails(&["data", "pack", "absent", "packed"], 65, "no such folder");
    sandbox.fails(&["data", "pack", "photos/train", "packed"], 65, "expected train/CLASS/*.png");
    let said = sandbox.said(&["data", "pack", "photos", "packed", "--skip-bad"]);
    assert!(said.lines().last().unwrap().contains("2 files were left out"), "{said}");
    // A run names them each time, although it packs the images once.
    for out in ["a", "b"] {
        let up = [&UP[..], &["--data", "photos", "--skip-bad", "--iterations", "1", "--out", out]].concat();
        let said = sandbox.said(&up);
        assert!(
            ["broken.png: ", "notes.txt: ", "2 files were left out"].iter().all(|text| said.contains(text)),
            "{said}"
        );
    }
    let said = sandbox.said(&["eval", "a"]);
    assert!(said.contains("2 files were left out"), "{said}");
    // Existing files are kept.
    assert_eq!(sandbox.run(&["data", "pack", "photos", "packed", "--skip-bad"]).status.code(), Some(74));
    assert_eq!(sandbox.run(&["data", "pack", "photos", "other", "--size", "20"]).status.code(), Some(64));
}
