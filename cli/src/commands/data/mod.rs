//! The command `ata data`: training images.

mod fetch;
mod pack;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ata_data::{DataSource, Images, Split, Synthetic, hex, sha256_of_file};

use crate::args::DataCommand;
use crate::failure::Failure;
use crate::output::print_message;

pub(crate) fn run(command: DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Fetch(args) => fetch::run(args)?,
        DataCommand::Pack(args) => pack::run(&args)?,
        DataCommand::Verify { path } => verify(&path)?,
        DataCommand::Synth { folder, seed, train, test } => synthesize(&folder, seed, train, test)?,
    }
    Ok(())
}

fn verify(path: &Path) -> Result<(), Failure> {
    // The archive is unpacked here, once for both splits.
    let folder = Images::folder(path)?;
    for split in [Split::Train, Split::Test] {
        print_message(&check(&folder, split)?)?;
    }
    Ok(())
}

/// Reads the whole split, and describes its content.
fn check(folder: &Path, split: Split) -> Result<String, Failure> {
    let path = Images::locate(folder, split)?;
    let images = Images::open(&DataSource::File(path.clone()), split)?;
    let (name, count, digest) = (path.display(), images.count(), hex(&sha256_of_file(&path)?));
    let Some(shard) = images.samples_of_shard() else {
        return Ok(format!("{name}: {count} records, all labels in range, sha256 {digest}"));
    };
    // A shard is checked when its first image is read.
    (0..count).step_by(shard as usize).try_for_each(|first| images.read(first).map(drop))?;
    let shards = count.div_ceil(shard);
    Ok(format!("{name}: {count} images in {shards} shards, which have the digests in it, sha256 {digest}"))
}

fn synthesize(folder: &Path, seed: u64, train: u64, test: u64) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|cause| Failure::disk(format!("cannot create {}: {cause}", folder.display())))?;
    for (split, records) in [(Split::Train, train), (Split::Test, test)] {
        let path = folder.join(split.file_name());
        write(&path, &Synthetic::new(split, seed), records)
            .map_err(|cause| Failure::disk(format!("cannot write {}: {cause}", path.display())))?;
        print_message(&format!("{}: {records} records", path.display()))?;
    }
    Ok(())
}

fn write(path: &Path, data: &Synthetic, records: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    for index in 0..records {
        file.write_all(&data.record(index))?;
    }
    file.flush()
}
