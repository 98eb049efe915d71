//! The command `ata data pack`: packs images in ata's own layout.

use std::path::Path;

use ata_data::{DataSource, FolderOptions, Images, Packing, ShardIndex, Split, Unpacked, hex, sha256_of_file};

use crate::args::PackArgs;
use crate::failure::Failure;
use crate::inputs::{note_bad_images, note_left_out};
use crate::output::{Counting, print_message};

pub(crate) fn run(args: &PackArgs) -> Result<(), Failure> {
    let PackArgs { folder, out, size, options, shard_mb } = args;
    let FolderOptions { skip_bad, validation } = options.options();
    if !folder.is_dir() {
        return Err(Failure::data(format!("{}: no such folder; expected one with images", folder.display())));
    }
    let unpacked = Unpacked::find(folder, validation)?.ok_or_else(|| {
        Failure::data(format!(
            "{}: no images found; expected train/CLASS/*.png and test/CLASS/*.png (.jpg, .webp), archives *train*.tar and *test*.tar, or \
             CIFAR-10's data_batch_1.bin",
            folder.display()
        ))
    })?;
    let mut counting = Counting::new("images packed");
    let shard_bytes = shard_mb.map(|megabytes| megabytes * 1_000_000);
    let packing = Packing { size: *size, skip_bad, shard_bytes };
    let skipped = unpacked.pack(out, packing, &mut |done, total| counting.set(done, total));
    counting.finish();
    note_left_out(&skipped.inspect_err(note_bad_images)?);
    for split in [Split::Train, Split::Test] {
        print_message(&describe(out, split)?)?;
        if shard_mb.is_some() {
            print_message(&describe_shards(&out.join(split.shards_name()))?)?;
        }
    }
    Ok(())
}

fn describe(out: &Path, split: Split) -> Result<String, Failure> {
    let path = out.join(split.packed_name());
    let images = Images::open(&DataSource::File(path.clone()), split)?;
    let (info, digest) = (images.info(), hex(&sha256_of_file(&path)?));
    let (count, classes, size) = (images.count(), info.classes.len(), info.size);
    Ok(format!("{}: {count} images of {size} × {size} pixels in {classes} classes, sha256 {digest}", path.display()))
}

fn describe_shards(path: &Path) -> Result<String, Failure> {
    let (index, digest) = (ShardIndex::read(path)?, hex(&sha256_of_file(path)?));
    let (shards, images) = (index.shards().len(), index.images_of_shard());
    Ok(format!("{}: {shards} shards of {images} images, sha256 {digest}", path.display()))
}
